"""The next command names leftovers of killed ones, and clean removes these and nothing else."""

import json
import os
import shlex
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import pytest

pytestmark = [pytest.mark.root, pytest.mark.steady]
SAMPLE = Path(__file__).resolve().parents[3] / "traces" / "samples" / "postfix-dovecot"
MAIN = [sys.executable, "-m", "spoolscope.cli.main"]


@pytest.fixture(autouse=True)
def state(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))


def spoolscope(*words: object) -> subprocess.CompletedProcess[str]:
    return subprocess.run([*MAIN, *map(str, words)], capture_output=True, text=True, check=False)


def mounts(process: int) -> list[str]:
    """Return the mounts at mount points of spoolscope in a process's namespace."""
    lines = Path(f"/proc/{process}/mounts").read_text().splitlines()
    return [line for line in lines if line.split()[1].startswith("/run/spoolscope/")]


def loops(place: Path) -> list[str]:
    said = subprocess.run(["losetup", "--all"], capture_output=True, text=True, check=True).stdout
    return [line for line in said.splitlines() if f"({place}" in line]


def wait_for(what: Callable[[], object]) -> None:
    deadline = time.monotonic() + 60
    while not what():
        assert time.monotonic() < deadline
        time.sleep(0.02)


def held_with_a_mount(process: subprocess.Popen[bytes]) -> bool:
    """Stop a command that has mounted something: the commands of the test may take their time."""
    if not mounts(process.pid):
        return False
    process.send_signal(signal.SIGSTOP)
    wait_for(lambda: Path(f"/proc/{process.pid}/stat").read_text().rsplit(") ")[-1][0] == "T")
    if mounts(process.pid):
        return True
    process.send_signal(signal.SIGCONT)
    return False


def kill(process: subprocess.Popen[bytes], number: signal.Signals = signal.SIGKILL) -> bytes:
    process.send_signal(number)
    return process.communicate(timeout=60)[1]


def replay_words(out: Path) -> list[str]:
    part = ["--slice", "..2s", "--rounds", "2", "--repeats", "0", "--no-record"]
    return ["replay", str(SAMPLE), "--on", "ext4", "--on", "xfs", *part, "-o", str(out)]


def test_a_killed_replay_is_named_and_cleaned_up(
    tmp_path: Path, require: Callable[..., None], spool: Callable[[str], Path]
) -> None:
    require("xfs")
    out, bystander = tmp_path / "out", spool("ext4")
    process = subprocess.Popen([*MAIN, *replay_words(out)], stderr=subprocess.PIPE)
    wait_for(lambda: held_with_a_mount(process))
    point = Path(mounts(process.pid)[0].split()[1])
    assert point.is_dir()
    assert not point.is_mount()
    (scratch,) = out.glob(".spoolscope-*")
    refused = spoolscope(*replay_words(out), "--force")
    assert refused.returncode == 1
    assert f"a command works in {scratch}" in refused.stderr
    assert spoolscope("clean").stdout == "Nothing is left of killed commands.\n"
    assert len(mounts(process.pid)) == len(loops(out)) == 1
    kill(process)
    wait_for(lambda: not loops(out))  # they vanish with the last of its processes
    assert list(scratch.rglob("*.img"))
    (out / "mine").write_text("a file of the operator")
    named = spoolscope("info", SAMPLE)
    assert named.returncode == 0
    assert f"left behind: {scratch}, the plan and images" in named.stderr
    assert "'spoolscope clean' removes it" in named.stderr
    assert str(scratch) in spoolscope("clean", "--dry-run").stdout
    assert scratch.exists()
    assert point.exists()
    cleaned = spoolscope("clean")
    assert (cleaned.returncode, cleaned.stderr) == (0, "")
    assert bystander.is_mount()
    assert not scratch.exists()
    assert not point.exists()
    assert {path.name for path in out.iterdir()} >= {"mine", "replay.json", "plan.json"}
    assert "left behind" not in spoolscope("info", SAMPLE).stderr
    assert spoolscope("clean").stdout == "Nothing is left of killed commands.\n"


USED_BY_A_PROGRAM = """
import os, signal, sys
from pathlib import Path
from spoolscope.replay.candidates import parse
from spoolscope.replay.places import scratch
from spoolscope.replay.targets import SMALLEST_BYTES, prepared
with scratch(Path(sys.argv[1]), Path(sys.argv[1])) as place:
    with prepared(parse("ext4"), place, SMALLEST_BYTES) as target:
        print(target.mount, flush=True)
        os.kill(os.getpid(), signal.SIGKILL)
"""


def test_the_mount_of_a_killed_program_that_uses_the_package_is_cleaned_up(
    tmp_path: Path, require: Callable[..., None]
) -> None:
    require("ext4")
    words = [sys.executable, "-c", USED_BY_A_PROGRAM, tmp_path]
    killed = subprocess.run(words, capture_output=True, text=True, check=False)
    assert killed.returncode == -signal.SIGKILL
    mount = Path(killed.stdout.strip())
    assert mount.is_mount()
    assert len(loops(tmp_path)) == 1
    assert spoolscope("clean").returncode == 0
    assert loops(tmp_path) == []
    assert not mount.exists()
    assert [path for path in tmp_path.iterdir() if path.name != "state"] == []


def test_a_killed_recording_is_named_with_both_ways(
    tmp_path: Path, spool: Callable[[str], Path], when_ready: Callable[..., None]
) -> None:
    mount, trace = spool("ext4"), tmp_path / "a.trace"
    words = ["record", "--spool", str(mount), "-o", str(trace)]
    process = subprocess.Popen([*MAIN, *words], stderr=subprocess.PIPE)
    when_ready(trace, lambda: (mount / "mail").write_text("x"))
    wait_for((mount / "mail").exists)
    time.sleep(1.5)  # until the recorder has written its data
    kill(process)
    (work,) = tmp_path.glob(".a.trace.*")
    named = spoolscope("info", SAMPLE).stderr
    assert f"left behind: {work}, the capture, with names as they are" in named
    recover = f"spoolscope record --recover {work} -o NEW"
    assert f"'{recover}' makes a trace of it" in named
    again = shlex.split(recover)[1:-1]
    # The recorder ends some time after the front end.
    wait_for(lambda: spoolscope(*again, tmp_path / "b.trace", "--keep-names", "-f").returncode != 1)
    assert json.loads((tmp_path / "b.trace" / "meta.json").read_text())["counts"]["syscalls"] > 0
    assert spoolscope("clean").returncode == 0
    assert {path.name for path in tmp_path.iterdir() if "trace" in path.name} == {"b.trace"}


def test_an_interrupted_replay_is_taken_up_by_the_command_that_it_prints(
    tmp_path: Path, require: Callable[..., None]
) -> None:
    require("ext4")
    require("xfs")
    out = tmp_path / "out"

    def runs() -> list[dict[str, object]]:
        file = out / "replay.json"
        return json.loads(file.read_text())["runs"] if file.exists() else []

    process = subprocess.Popen([*MAIN, *replay_words(out)], stderr=subprocess.PIPE)
    wait_for(runs)
    said = kill(process, signal.SIGINT).decode()
    finished = runs()
    assert 1 <= len(finished) <= 3
    assert f"{len(finished)} of 4 runs are finished and kept; continue with '" in said
    command = said.partition("continue with '")[2].partition("'\n")[0]
    words = shlex.split(command)
    assert words[-1] == "--resume"
    planned = (out / "plan.json").read_bytes()
    other = spoolscope(*words[words.index("spoolscope") + 1 :], "--pace", "afap")
    assert other.returncode == 2
    assert spoolscope(*replay_words(out), "--slice", "..1s", "--resume").returncode == 2
    assert (out / "plan.json").read_bytes() == planned
    assert "was made otherwise: pace" in other.stderr
    done = spoolscope(*words[words.index("spoolscope") + 1 :])
    assert done.returncode in (0, 3), done.stderr
    after = json.loads((out / "replay.json").read_text())
    assert (after["finished"], len(after["runs"])) == (True, 4)
    assert after["runs"][: len(finished)] == finished
    assert [run["run"] for run in after["runs"]] == after["order"]
    compared = json.loads(spoolscope("compare", out, "--json").stdout)
    assert compared["rounds"] == 2


def test_two_recordings_of_one_output_are_refused_at_the_start(
    tmp_path: Path, spool: Callable[[str], Path], when_ready: Callable[..., None]
) -> None:
    mount, trace = spool("ext4"), tmp_path / "a.trace"
    words = ["record", "--spool", str(mount), "-o", str(trace)]
    process = subprocess.Popen([*MAIN, *words], stderr=subprocess.PIPE)
    ready: list[bool] = []
    when_ready(trace, lambda: ready.append(True))
    wait_for(lambda: ready)
    second = spoolscope(*words, "-d", "1")
    assert second.returncode == 2
    assert f"another command is writing {trace} now" in second.stderr
    os.kill(process.pid, signal.SIGINT)
    process.communicate(timeout=60)
    assert (trace / "meta.json").is_file()
