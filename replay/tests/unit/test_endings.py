"""Ends of replays by signals; other replays and files of others stay untouched."""

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pyarrow.parquet as pq
import pytest

from spoolscope.replay.directories import remove
from spoolscope.replay.plan import build
from spoolscope.replay.planned import plan
from spoolscope.replay.run import replay
from spoolscope.traces.errors import SpoolscopeError
from spoolscope.traces.native import find_binary
from spoolscope.traces.trace import Trace

DIR = 0o040700


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT, signal.SIGHUP])
def test_an_ended_replay_leaves_no_process(script, tmp_path, target, number):
    script.thread(10)
    script.fork(10, 11, 1)
    for tid in (10, 11, 12):
        script.call(tid, 60_000, "stat", "x", ret=-2)
    process = engine(script, tmp_path, target, 4)
    process.send_signal(number)
    assert process.wait(timeout=60) == 130
    assert _members(process.pid) == []


@pytest.mark.slow
@pytest.mark.parametrize(
    ("number", "send"),
    [(signal.SIGINT, os.killpg), (signal.SIGHUP, os.killpg), (signal.SIGTERM, os.kill)],
)
def test_an_ended_replay_keeps_what_was_done(script, tmp_path, target, number, send):
    """The signal comes from the terminal to all processes, or to the first process only."""
    script.call(10, 1, "mkdir", "made", mode=0o700)
    script.call(10, 60_000, "stat", "made", obj_mode=DIR)
    with begun(script, tmp_path, target) as process:
        send(process.pid, number)
        _, told = process.communicate(timeout=60)
    [kept] = (tmp_path / "out").glob("*/outcomes.*")
    assert "the replay was ended: interrupted" in told
    assert f"the 1 calls until then in {kept}" in told
    assert pq.read_table(kept)["verdict"].to_pylist() == ["same", "pending"]
    assert (process.returncode, _members(process.pid), list(target.iterdir())) == (1, [], [])


def test_a_replay_whose_beginner_is_killed_ends(script, tmp_path, target):
    script.call(10, 1, "mkdir", "made", mode=0o700)
    script.call(10, 60_000, "stat", "made", obj_mode=DIR)
    with begun(script, tmp_path, target) as process:
        process.kill()
    assert ended(process.pid)


def test_without_an_order_a_lock_is_not_kept_from_those_who_had_it_before(script, tmp_path, target):
    """The process that has it at the end may get it first here, and then never releases it."""
    opened = {"ret": 3, "flags": 0o102, "mode": 0o600, "ino": 5, "obj_mode": 0o100600}
    lock = {"base": 0, "fd": 3, "cmd": 2, "ino": 5, "obj_mode": 0o100600}
    for at in range(2000):
        script.call(10, at / 100, "stat", "x", ret=-2, dur_ms=0.001)
    script.call(10, 30, "openat", "lock", **opened)
    script.call(10, 31, "flock", "lock", **lock)
    script.call(10, 32, "close", "lock", base=0, fd=3, ino=5)
    script.call(11, 50, "openat", "lock", **opened)
    script.call(11, 51, "flock", "lock", **lock)
    trace = script.write(tmp_path / "trace")
    (row,) = replay(trace, [f"dir:{target}"], tmp_path / "out", pace="afap", order="none")
    assert row["makespan_ns"] < 8e9  # a process without progress for 10 s is given up
    assert (row["divergent"], row["orders_given_up"]) == (0, 0)


def test_two_replays_do_not_share_a_target(script, tmp_path, target):
    script.call(10, 1, "mkdir", "made", mode=0o700)
    script.call(10, 60_000, "stat", "made", obj_mode=DIR)
    with begun(script, tmp_path, target) as first:
        (target / "made").rmdir()  # empty now, but in use by the first replay
        with pytest.raises(SpoolscopeError, match="another replay uses"):
            replay(tmp_path / "trace", [f"dir:{target}"], tmp_path / "second", pace="afap")
        (target / "made").mkdir()
        with pytest.raises(SpoolscopeError, match="not empty"):
            replay(tmp_path / "trace", [f"dir:{target}"], tmp_path / "second", pace="afap")
        assert (target / "made").exists()
        assert not (tmp_path / "second").exists()
        first.terminate()
    assert first.returncode == 1


def test_what_came_into_the_target_before_the_replay_stays(script, tmp_path, target, monkeypatch):
    script.call(10, 1, "stat", "x", ret=-2)

    def late(*arguments):
        (target / "precious").touch()
        return plan(*arguments)

    monkeypatch.setattr("spoolscope.replay.run.plan", late)
    with pytest.raises(SpoolscopeError, match="not empty"):
        replay(script.write(tmp_path / "trace"), [f"dir:{target}"], tmp_path / "out")
    assert [path.name for path in target.iterdir()] == ["precious"]
    assert not (tmp_path / "out").exists()


def test_places_of_a_replay_are_checked_before_anything_is_done(script, tmp_path, target):
    script.call(10, 1, "stat", "x", ret=-2)
    trace, one = script.write(tmp_path / "trace"), f"dir:{target}"
    for out, work, on, told in (
        (tmp_path / "out", tmp_path / "nope", [one], "no directory"),
        (tmp_path / "out", tmp_path / "trace/meta.json", [one], "no directory"),
        (target / "below/out", None, [one], "lies in target"),
        (tmp_path / "out", target, [one], "lies in target"),
        (tmp_path / "out", None, [one, one], "would have one name"),
    ):
        with pytest.raises(SpoolscopeError, match=told) as error:
            replay(trace, on, out, work=work)
        assert error.value.exit_code == 2
    assert sorted(path.name for path in tmp_path.iterdir()) == ["target", "trace"]
    assert list(target.iterdir()) == []


def begun(script, tmp_path: Path, target: Path) -> "subprocess.Popen[str]":
    """Begin a replay of a trace that makes a directory first."""
    trace, out = script.write(tmp_path / "trace"), tmp_path / "out"
    words = [sys.executable, "-m", "spoolscope.cli.main", "replay", trace, "--on", f"dir:{target}",
             "--no-record", "--quiet", "-o", out]  # fmt: skip
    process = subprocess.Popen(words, stderr=subprocess.PIPE, text=True, start_new_session=True)
    deadline = time.monotonic() + 60
    while not (target / "made").exists() and time.monotonic() < deadline:
        time.sleep(0.05)
    return process


def test_a_killed_engine_takes_its_tasks_along(script, tmp_path, target):
    script.thread(10)
    script.fork(10, 11, 1)
    for tid in (10, 11):
        script.call(tid, 60_000, "stat", "x", ret=-2)
    process = engine(script, tmp_path, target, 3)
    process.kill()
    process.wait()
    assert ended(process.pid)


def engine(script, tmp_path: Path, target: Path, members: int) -> "subprocess.Popen[bytes]":
    """Begin the engine alone, and wait until it has ``members`` processes, its own included."""
    plan_file = tmp_path / "plan"
    build(Trace.open(script.write(tmp_path / "trace")), plan_file)
    words = [find_binary("spoolscope-replay"), "run", plan_file, "--target", target]
    process = subprocess.Popen(words, stdout=subprocess.DEVNULL, start_new_session=True)
    deadline = time.monotonic() + 60
    while len(_members(process.pid)) < members and time.monotonic() < deadline:
        time.sleep(0.05)
    assert len(_members(process.pid)) == members
    return process


def ended(session: int) -> bool:
    """Return whether all processes of a session end within a minute."""
    deadline = time.monotonic() + 60
    while (left := _members(session)) and time.monotonic() < deadline:
        time.sleep(0.05)
    return not left


def _members(session: int) -> list[int]:
    """Return the live processes of a session."""
    found = []
    for entry in Path("/proc").iterdir():
        if not entry.name.isdigit():
            continue
        try:
            fields = (entry / "stat").read_text().rsplit(")", 1)[1].split()
        except OSError:
            continue
        if int(fields[3]) == session and fields[0] not in "ZX":
            found.append(int(entry.name))
    return found


@pytest.mark.parametrize("mode", [0o500, 0o300, 0])
def test_what_is_closed_to_who_is_not_root_is_removed_all_the_same(tmp_path, mode):
    closed = tmp_path / "closed/below"
    closed.mkdir(parents=True)
    (closed / "file").touch()
    for directory in (closed, closed.parent):
        directory.chmod(mode)
    tmp_path.chmod(0o777)
    child = os.fork()
    if not child:
        try:
            os.chdir(tmp_path)
            if os.geteuid() == 0:
                for path in (closed / "file", closed, closed.parent):
                    os.chown(path, 65_534, 65_534)
                os.setresuid(65_534, 65_534, 65_534)
            remove(Path("closed"))
        finally:
            os._exit(0)
    assert os.waitpid(child, 0)[1] == 0
    assert list(tmp_path.iterdir()) == []


def test_an_ended_plan_leaves_nothing(script, tmp_path):
    script.call(10, 1, "stat", "x", ret=-2)
    trace, scratch = script.write(tmp_path / "trace"), tmp_path / "scratch"
    scratch.mkdir()
    ended = "import os, sys; from spoolscope.cli import main, plan; "
    ended += "plan.plan = lambda *_: os.kill(os.getpid(), 15); "
    ended += "sys.argv = ['spoolscope', 'plan', sys.argv[1]]; main.main()"
    env = {**os.environ, "TMPDIR": str(scratch)}
    done = subprocess.run([sys.executable, "-c", ended, trace], env=env, check=False)
    assert done.returncode == 1
    assert list(scratch.iterdir()) == []
