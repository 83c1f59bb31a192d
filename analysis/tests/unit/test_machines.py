"""Machines, without booting one."""

import io
import os
import re
import socket
import subprocess
import tarfile
import threading
from collections.abc import Iterator
from functools import partial
from pathlib import Path

import pytest
from click.testing import CliRunner

from spoolscope.cli import inside_machine
from spoolscope.cli import replay as cli_replay
from spoolscope.cli.machines import of_kernels, reference_of, refuse_unbooted
from spoolscope.cli.vm import command
from spoolscope.lab.vm import kernels
from spoolscope.lab.vm.machine import RIGHT, Machine
from spoolscope.lab.vm.results import JOB_BYTES, Ended, job
from spoolscope.lab.vm.watch import SilentError, Watch
from spoolscope.replay.candidates import parse
from spoolscope.replay.job import blocks, slots
from spoolscope.tracers.path_ids import PathIds
from spoolscope.traces.errors import SpoolscopeError


def test_kernels_are_ordered_by_number_and_told_apart_from_others() -> None:
    offered = ["6.1.0-9-amd64", "6.1.0-56-amd64", "6.1.0-47-amd64"]
    other = ["6.1.0-56-cloud-amd64", "6.1.0-56-amd64-unsigned", "6.12.117+deb12-amd64"]
    packages = [f"linux-image-{release}" for release in (*offered, *other)]
    assert kernels._releases("6.1", packages) == [offered[0], offered[2], offered[1]]
    assert kernels._releases("6.12", packages) == ["6.12.117+deb12-amd64"]


@pytest.mark.parametrize("series", ["6", "v6.1", "6.1.0", "../6.1", ""])
def test_a_series_is_two_numbers(series: str) -> None:
    with pytest.raises(SpoolscopeError, match="no kernel series"):
        kernels.fetch(series)


def asked(*candidates: str, vm: tuple[str, ...] = (), **more: object) -> dict[str, object]:
    nothing = {"device": None, "journal_device": None, "icount": False, "no_record": False}
    return {"candidates": candidates, "vm": vm} | nothing | more


def test_candidates_are_multiplied_by_kernels_only_if_there_are_several() -> None:
    assert of_kernels(asked("ext4", "jfs")) == ["ext4", "jfs"]
    assert of_kernels(asked("ext4", vm=("6.1",))) == ["ext4"]
    assert of_kernels(asked("ext4", vm=("6.1", "6.1"))) == ["ext4"]
    wanted = ["ext4@6.1", "ext4@6.12", "xfs@6.1", "xfs@6.12"]
    assert of_kernels(asked("ext4", "xfs", vm=("6.1", "6.12"))) == wanted
    assert reference_of("xfs", wanted) == "xfs@6.1"
    assert reference_of("xfs@6.12", wanted) == "xfs@6.12"


@pytest.mark.parametrize(
    ("options", "told"),
    [
        (asked("ext4", "dir:/mnt", vm=("6.1",)), "dir:/mnt is on this machine"),
        (asked("ext4", vm=("6.1",), device=Path("/dev/sdx")), "/dev/sdx is on this machine"),
        (asked("ext4", icount=True), "--icount counts"),
        (asked("ext4", vm=("6.1",), icount=True, no_record=True), "only a recording has"),
        (asked("ext4@6.1"), "ext4@6.1 names results"),
    ],
)
def test_what_is_of_one_machine_is_not_asked_of_another(options, told) -> None:
    with pytest.raises(SpoolscopeError, match=told):
        of_kernels(options)


SAMPLE = Path(__file__).parents[3] / "traces" / "samples" / "courier"


@pytest.mark.parametrize(
    ("words", "told"),
    [
        (["--on", "nowhere"], "unknown candidate 'nowhere'"),
        (["--on", "reiserfs", "--vm", "7.2"], "Debian's kernel 7.2 has no reiserfs"),
        (["--on", "ext4", "--reference", "xfs"], "'xfs' is no candidate of this replay"),
        (["--on", "ext4", "--pace", "gallop"], "gallop"),
        (["--on", "ext4", "--slice", "99h.."], "the recording ends at"),
        (["--on", "ext4", "--workers", "pool", "--scale-users", "2"], "--workers pool does not go"),
    ],
)
def test_what_no_machine_can_do_is_refused_before_one_boots(
    words: list[str], told: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def boots(*_words: object) -> None:
        raise AssertionError("a machine was booted")

    monkeypatch.setattr(cli_replay, "replay_in_machines", boots)
    out = tmp_path / "out"
    vm = [] if "--vm" in words else ["--vm", "6.1"]
    asked = [str(SAMPLE), *words, *vm, "-o", str(out), "-q"]
    with pytest.raises(SpoolscopeError, match=re.escape(told)):
        cli_replay.command.main(asked, standalone_mode=False)
    assert not out.exists()


@pytest.mark.parametrize(("name", "program"), [("ext4", "mkfs.ext4"), ("ext4-md-raid1", "mdadm")])
def test_a_program_that_is_missing_here_is_missing_in_a_machine(
    name: str, program: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    refuse_unbooted([parse("ext4")], ["6.1"])
    monkeypatch.setattr("spoolscope.replay.images.program_path", lambda: "/nonexistent")
    with pytest.raises(SpoolscopeError, match=f"program {program} is missing"):
        refuse_unbooted([parse(name)], ["6.1"])


def test_a_candidate_names_its_kernel() -> None:
    plain, on_kernel = parse("ext4"), parse("ext4@6.12")
    assert (on_kernel.name, on_kernel.kernel, on_kernel.mkfs) == ("ext4@6.12", "6.12", plain.mkfs)
    assert plain.kernel == ""
    assert parse("dir:/srv/a@b").kernel == ""


def test_runs_of_one_round_on_one_kernel_share_a_machine() -> None:
    names = ["ext4@6.1", "ext4@6.12", "xfs@6.1", "xfs@6.12"]
    order = slots([parse(name) for name in names], 8, 7)
    found = list(blocks(order))
    assert [slot for block in found for slot in block] == order
    assert [(len(block), block[0].round) for block in found] == [
        (2, number) for number in range(1, 9) for _ in range(2)
    ]
    firsts = {
        tuple(block[0].candidate.kernel for block in found[i : i + 2]) for i in range(0, 16, 2)
    }
    assert firsts == {("6.1", "6.12"), ("6.12", "6.1")}  # no kernel is always first


def test_the_job_is_what_a_shell_reads_back() -> None:
    made = job(["echo", "a b", "$x'"], [Path("/tmp/o u t")], Path("/a dir"), {"A": "1 2"}, "{}")
    with tarfile.open(fileobj=io.BytesIO(made)) as tar:
        text = {name: tar.extractfile(name).read().decode() for name in tar.getnames()}
    assert "export A='1 2'\n" in text["job"]
    assert text["job"].endswith("cd '/a dir' || exit 1\nexec echo 'a b' '$x'\"'\"''\n")
    assert "'tmp/o u t'" in text["back"]
    with pytest.raises(SpoolscopeError, match="too long"):
        job(["x" * JOB_BYTES], [], Path("/"), {}, "{}")


def test_what_was_not_written_is_not_brought(tmp_path: Path) -> None:
    with (tmp_path / "disk").open("w+b") as disk:
        disk.truncate(2 * JOB_BYTES)
        assert not Ended(0, interrupted=False, disk=disk).bring(Path("/x/y"), tmp_path / "y")
    assert [p.name for p in tmp_path.iterdir()] == ["disk"]


@pytest.mark.parametrize("there", ["nothing", "the same", "another kind"])
def test_what_is_brought_is_added_to_what_is_there(there: str, tmp_path: Path) -> None:
    inside, at = tmp_path / "inside", tmp_path / "at"
    (inside / "d").mkdir(parents=True)
    (inside / "d" / "new").write_text("new")
    (inside / "f").write_text("new")
    at.mkdir()
    if there == "the same":
        (at / "d").mkdir()
        (at / "d" / "old").write_text("old")
        (at / "f").write_text("old")
    if there == "another kind":
        (at / "f").mkdir()
    with (tmp_path / "disk").open("w+b") as disk:
        disk.truncate(JOB_BYTES)
        disk.seek(0, io.SEEK_END)
        with tarfile.open(fileobj=disk, mode="w") as tar:
            tar.add(inside, "x")
        ended = Ended(0, interrupted=False, disk=disk)
        assert ended.bring(Path("/x/d"), at / "d")
        if there == "another kind":
            with pytest.raises(SpoolscopeError, match="f cannot be replaced: Is a directory"):
                ended.bring(Path("/x/f"), at / "f")
            return
        assert ended.bring(Path("/x/f"), at / "f")
    assert (at / "f").read_text() == (at / "d" / "new").read_text() == "new"
    assert (at / "d" / "old").exists() == (there == "the same")


def test_what_is_there_is_replaced_by_force_only(tmp_path: Path) -> None:
    words = ["--bring", str(tmp_path), "--kernel", "x", "--", "true"]
    refused = CliRunner().invoke(command, words)
    assert refused.exception.message == f"{tmp_path} exists"
    assert refused.exception.remedy == "bring another name, or use --force"
    forced = CliRunner().invoke(command, ["--force", *words])
    assert forced.exception.message == "'x' is no kernel series"


@pytest.fixture
def ends() -> Iterator[list[socket.socket]]:
    """Yield the machine's ends of its control port and of an output port, then our ends."""
    made = [*socket.socketpair(), *socket.socketpair()]
    yield [made[0], made[2], made[1], made[3]]
    for end in made:
        end.close()


def test_output_and_status_come_through_in_whatever_pieces(ends) -> None:
    inside, printing, control, stream = ends
    printed = io.BytesIO()
    watch = Watch(control, {stream: printed}, 5.0)

    def guest() -> None:
        for piece in (b"u", b"p\nbe", b"at\nexit 4", b"2 0\n"):
            inside.sendall(piece)
            printing.sendall(piece)
        inside.close()
        printing.close()

    thread = threading.Thread(target=guest)
    thread.start()
    watch.until_the_end()
    thread.join()
    assert (watch.began, watch.status, watch.carried) == (True, 42, 0)
    assert printed.getvalue() == b"up\nbeat\nexit 42 0\n"


def test_silence_is_not_waited_for_without_end(ends) -> None:
    inside, _, control, stream = ends
    watch = Watch(control, {stream: io.BytesIO()}, 0.2)
    inside.sendall(b"up\n")
    with pytest.raises(SilentError):
        watch.until_the_end()
    assert (watch.began, watch.status) == (True, None)


def test_numpy_is_kept_from_what_the_emulator_does_wrongly(tmp_path: Path) -> None:
    kernel = kernels.Kernel("6.1", "6.1.0-1-amd64", tmp_path)
    assert Machine(kernel, 2048, icount=True).environment == RIGHT | {"PYTHONHASHSEED": "0"}


def test_no_machine_imports_pandas(tmp_path: Path) -> None:
    """An emulator takes seconds for it. What is asked for here makes an array when imported."""
    (tmp_path / "pandas.py").write_text("raise SystemExit('pandas is imported')")
    words = inside_machine.command(partial(dict, asked=PathIds), resume=False, record=False)
    path = os.environ | {"PYTHONPATH": str(tmp_path)}
    done = subprocess.run(words, env=path, capture_output=True, text=True, check=False)
    assert (done.returncode, done.stderr) == (0, "")
