"""Targets of a recording: programs, control groups, units and processes, several at once."""

import os
import shutil
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from recordings import recorded_during

from spoolscope.tracers.session import Request, record
from spoolscope.traces.errors import SpoolscopeError
from spoolscope.traces.trace import Trace

pytestmark = [pytest.mark.root, pytest.mark.steady]

Start = Callable[..., "subprocess.Popen[str]"]


@pytest.fixture
def unit(require) -> Iterator[Path]:
    """Make a control group like that of a service; systemd is not needed."""
    mounts = [line.split() for line in Path("/proc/self/mounts").read_text().splitlines()]
    roots = [Path(words[1]) for words in mounts if words[2] == "cgroup2"]
    if not roots:
        require("cgroup2", "no cgroup v2 hierarchy is mounted")
    group = roots[0] / f"spoolscope-{os.getpid()}.slice" / f"postfix@{os.getpid()}.service"
    group.mkdir(parents=True)
    yield group
    group.rmdir()
    group.parent.rmdir()


@pytest.fixture
def start() -> Iterator[Start]:
    """Return ``start(program, name, group)``: the program writes the file when its input closes."""
    running: list[subprocess.Popen[str]] = []

    def begin(program: Path, file: Path, group: Path | None = None) -> "subprocess.Popen[str]":
        program.parent.mkdir(exist_ok=True)
        if not program.exists():
            shutil.copy(shutil.which("bash") or "/bin/bash", program)
        move = f"echo $$ > {group}/cgroup.procs;" if group else ""
        script = f"{move} echo moved; read _; echo x > {file}; (echo y > {file}.child)"
        process = subprocess.Popen(
            [program, "-c", script], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
        )
        assert process.stdout is not None
        process.stdout.readline()
        running.append(process)
        return process

    yield begin
    for process in running:
        process.kill()
        process.communicate()


def recording(
    mount: Path, tmp_path: Path, writers: list["subprocess.Popen[str]"], **targets
) -> Trace:
    """Record while the writers, which existed before, write their files."""
    trace = recorded_during(
        lambda: [writer.communicate("go\n") for writer in writers], mount, tmp_path, **targets
    )
    assert all((mount / f"{i}.child").exists() for i in range(len(writers)))
    return trace


def written(trace: Trace) -> set[str]:
    rows = trace.connect().execute(
        "SELECT path FROM syscalls JOIN paths USING (path_id) WHERE syscall = 'write'"
    )
    return {path for (path,) in rows.fetchall()}


def threads(trace: Trace) -> dict[int, list[str]]:
    query = "SELECT pid, comm, exe, cgroup FROM threads WHERE kind = 'task'"
    return {pid: row for pid, *row in trace.connect().execute(query).fetchall()}


def test_programs_of_one_name_are_told_apart(spool, tmp_path, start):
    mount = spool("ext4")
    ours, theirs = tmp_path / "dovecot" / "lmtp", tmp_path / "postfix" / "lmtp"
    writers = [start(ours, mount / "0"), start(theirs, mount / "1")]
    truth = {str(Path(f"/proc/{w.pid}/exe").readlink()) for w in writers}
    assert truth == {str(ours), str(theirs)}
    trace = recording(mount, tmp_path, writers, exes=[ours])
    assert written(trace) == {"0", "0.child"}
    found = threads(trace)
    assert found.keys() >= {writers[0].pid}
    assert {exe for _, exe, _ in found.values()} == {str(ours)}  # also of its child
    assert {comm for comm, _, _ in found.values()} == {"lmtp"}


def test_whoever_is_any_of_the_targets_is_recorded(spool, tmp_path, start, unit):
    mount = spool("ext4")
    program = tmp_path / "bin" / "writer"
    writers = [
        start(program, mount / "0", unit),
        start(tmp_path / "other" / "lmtp", mount / "1"),
        start(program, mount / "2"),
        start(program, mount / "3"),
        start(tmp_path / "odd" / "oddname", mount / "4"),
    ]
    trace = recording(
        mount,
        tmp_path,
        writers,
        units=[unit.name],
        exes=[tmp_path / "other" / "lmtp"],
        pids=[writers[2].pid],
        comms=["oddname"],
    )
    assert written(trace) == {f"{i}{child}" for i in (0, 1, 2, 4) for child in ("", ".child")}
    group = "/" + "/".join(unit.parts[-2:])
    assert threads(trace)[writers[0].pid] == ["writer", str(program), group]
    assert threads(trace)[writers[2].pid][2] != group


def test_a_cgroup_names_those_who_enter_it_later(spool, tmp_path, unit):
    mount = spool("ext4")
    late = (
        f"echo $$ > {unit}/cgroup.procs; exec dd if=/dev/zero of={mount}/late count=1 status=none"
    )
    trace = recorded_during(
        lambda: subprocess.run(["sh", "-c", late], check=True),
        mount,
        tmp_path,
        cgroups=[str(unit)],
    )
    assert written(trace) == {"late"}
    programs = {exe.rpartition("/")[2] for _, exe, _ in threads(trace).values() if exe}
    assert "dd" in programs


@pytest.mark.parametrize(
    ("target", "says"),
    [
        ({"units": ["no-such-unit"]}, "no control group of a unit no-such-unit.service"),
        ({"exes": [Path("/no/such/program")]}, "no such program"),
        ({"cgroups": ["/tmp"]}, "no such cgroup"),
    ],
)
def test_a_target_that_is_not_there(spool, tmp_path, target, says):
    with pytest.raises(SpoolscopeError, match=says):
        record(Request(spools=[spool("ext4")], output=tmp_path / "t", duration_s=1, **target))
