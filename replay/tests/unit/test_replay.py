"""Replays into a directory: verdicts, final state, safety, endings."""

import errno
import json
import os
import stat
import subprocess
from itertools import pairwise
from pathlib import Path

import pyarrow.parquet as pq
import pytest

from spoolscope.replay.engine import Engine
from spoolscope.replay.one_run import is_true
from spoolscope.replay.outcomes import VERDICTS
from spoolscope.replay.plan import build
from spoolscope.replay.run import replay
from spoolscope.replay.whatif import parse
from spoolscope.traces.errors import SpoolscopeError
from spoolscope.traces.native import find_binary
from spoolscope.traces.results import (
    DIVERGENCES_FILE,
    REPLAY_FILE,
    RUN_FILE,
    Divergences,
    ReplayResult,
    RunResult,
)
from spoolscope.traces.results_format import OUTCOMES
from spoolscope.traces.trace import Trace
from spoolscope.traces.typed_json import decode, encode

REG, DIR = 0o100600, 0o040700
CREATE = 0o301
SYMLINK_FLAGS = {"kind2": "text"}


def run(script, tmp_path: Path, target: Path, pace: str = "afap"):
    trace = script.write(tmp_path / "trace")
    rows = replay(trace, [f"dir:{target}"], tmp_path / "out", pace=pace)
    return rows[0], tmp_path / "out" / Path(rows[0]["run"]).name


def deliver(script, tid: int, at: float, name: str, ino: int, size: int = 5000) -> None:
    script.call(tid, at, "openat", f"tmp/{name}", ret=3, flags=CREATE, mode=0o600, ino=ino,
                obj_mode=REG, obj_size=0)  # fmt: skip
    script.call(tid, at + 1, "write", f"tmp/{name}", ret=size, base=0, fd=3, size=size, offset=0,
                ino=ino, obj_mode=REG, obj_size=size)  # fmt: skip
    script.call(tid, at + 2, "fsync", f"tmp/{name}", base=0, fd=3, ino=ino, obj_mode=REG,
                obj_size=size)  # fmt: skip
    script.call(tid, at + 3, "close", f"tmp/{name}", base=0, fd=3, ino=ino)
    script.call(tid, at + 4, "rename", f"tmp/{name}", path2=f"new/{name}")


def test_a_delivery_leaves_what_the_trace_left(script, tmp_path, target):
    script.entry("tmp", ino=2, mode=DIR)
    script.entry("new", ino=3, mode=DIR)
    deliver(script, 10, 1, "a", 100)
    deliver(script, 11, 2, "b", 101)
    script.call(10, 20, "stat", "new/b", ino=101, obj_mode=REG, obj_size=5000)
    row, out = run(script, tmp_path, target)
    assert (row["syscalls"], row["executed"], row["divergent"]) == (11, 11, 0)
    assert row["final_state"] == {"checked": 4, "mismatched": 0, "examples": []}
    assert is_true(row)
    assert list(target.iterdir()) == []  # as it was before
    table = pq.read_table(out / "outcomes.parquet")
    assert table.column("call").to_pylist() == list(range(11))
    assert set(table.column("verdict").to_pylist()) == {"same"}


def test_a_result_that_differs_is_listed_with_its_cause(script, tmp_path, target):
    script.call(10, 1, "mkdir", "d", mode=0o700)
    script.call(10, 2, "rmdir", "d", ret=-39)  # the trace is wrong: it was empty
    script.call(10, 3, "stat", "d", ret=0, obj_mode=DIR)
    row, out = run(script, tmp_path, target)
    assert row["divergent"] == 2
    (root,) = json.loads((out / "divergences.json").read_text())["roots"]
    assert root["cause"] == "rmdir: success instead of ENOTEMPTY"
    assert (root["n"], root["followed"]) == (1, 1)  # the stat follows from the rmdir
    assert (root["example"]["thread_seq"], root["example"]["path"]) == ("10:1", "d")
    assert row["divergences"]["roots"] == [root]


def test_results_hold_no_path_of_this_machine(script, tmp_path, target):
    """They may be copied and read elsewhere; only the candidate's name holds the target's path."""
    script.call(10, 1, "mkdir", "d", mode=0o700)
    row, out = run(script, tmp_path, target)
    files = [*out.parent.glob("*.json"), *out.glob("*.json")]
    assert {file.name for file in files} >= {"replay.json", "run.json", "plan.json"}
    for file in files:
        text = file.read_text().replace(row["candidate"], "")
        assert str(tmp_path) not in text, file
    header = json.loads((out.parent / "replay.json").read_text())
    assert (header["trace"], header["runs"][0]["run"]) == ("../trace", out.name)


def test_results_are_what_their_contract_says(script, tmp_path, target):
    script.call(10, 1, "mkdir", "d", mode=0o700)
    script.call(10, 2, "rmdir", "d", ret=-39)
    _row, run_ = run(script, tmp_path, target, pace="original")
    for kind, directory, name in (
        (ReplayResult, run_.parent, REPLAY_FILE),
        (RunResult, run_, RUN_FILE),
        (Divergences, run_, DIVERGENCES_FILE),
    ):
        written = json.loads((directory / name).read_text())
        assert encode(decode(kind, written)) == written, name
    columns = pq.read_schema(run_ / "outcomes.parquet")
    assert [(c.name, c.type) for c in columns] == [(c.name, c.type) for c in OUTCOMES]


def test_a_finished_replay_goes_on_with_nothing_left_to_do(script, tmp_path, target):
    script.call(10, 1, "mkdir", "d", mode=0o700)
    row, _run = run(script, tmp_path, target)
    again = replay(
        tmp_path / "trace", [f"dir:{target}"], tmp_path / "out", pace="afap", resume=True
    )
    assert again == [row]


def test_wrong_data_is_a_mismatch(script, tmp_path, target):
    deliver(script, 10, 1, "a", 100)
    plan = tmp_path / "plan"
    build(Trace.open(script.write(tmp_path / "trace")), plan)
    words = ["run", plan, "--target", target, "--pace", "afap"]
    subprocess.run([find_binary("spoolscope-replay"), *words], check=True, capture_output=True)
    assert Engine(plan).verify(target)["mismatched"] == 0
    message = target / "new" / "a"
    data = bytearray(message.read_bytes())
    data[1234] ^= 1
    message.write_bytes(data)
    (state,) = Engine(plan).verify(target)["examples"]
    assert (state["path"], state["what"]) == ("new/a", "data")
    assert "1234" in state["found"]


def test_children_inherit_descriptors_and_offsets(script, tmp_path, target):
    script.entry("f", ino=7, mode=REG, size=100)
    script.call(10, 1, "openat", "f", ret=3, flags=0, ino=7, obj_mode=REG, obj_size=100)
    script.call(10, 2, "read", "f", ret=60, base=0, fd=3, size=60, offset=0, ino=7, obj_mode=REG,
                obj_size=100)  # fmt: skip
    script.fork(10, 11, 3)
    script.call(11, 4, "read", "f", ret=40, base=0, fd=3, size=60, offset=60, ino=7, obj_mode=REG,
                obj_size=100)  # fmt: skip
    script.call(11, 5, "close", "f", base=0, fd=3, ino=7)
    script.fork(11, 12, 6)  # a grandchild
    script.call(12, 7, "lseek", "f", ret=-9, base=0, fd=3, offset=0, cmd=1)
    script.call(10, 8, "lseek", "f", ret=100, base=0, fd=3, offset=0, cmd=1, ino=7, obj_mode=REG)
    row, _ = run(script, tmp_path, target)
    assert (row["executed"], row["divergent"]) == (6, 0)


def test_threads_share_descriptors(script, tmp_path, target):
    script.entry("f", ino=7, mode=REG, size=10)
    script.thread(10)
    script.thread(11, pid=10)
    script.call(10, 1, "openat", "f", ret=3, flags=0, ino=7, obj_mode=REG, obj_size=10)
    script.call(11, 2, "read", "f", ret=10, base=0, fd=3, size=99, offset=0, ino=7, obj_mode=REG,
                obj_size=10)  # fmt: skip
    script.call(11, 3, "close", "f", base=0, fd=3, ino=7)
    script.call(10, 4, "fstat", "f", ret=-9, base=0, fd=3)
    row, _ = run(script, tmp_path, target)
    assert (row["executed"], row["divergent"]) == (4, 0)


def test_record_locks_of_processes_conflict(script, tmp_path, target):
    script.entry("log", ino=7, mode=REG, size=10)
    for tid in (10, 11):
        script.call(tid, 1 + tid / 100, "openat", "log", ret=3, flags=2, ino=7, obj_mode=REG)
    lock = {"base": 0, "fd": 3, "ino": 7, "offset": 0, "size": 0}
    script.call(10, 2, "fcntl", "log", cmd=6, lock_type=1, **lock)
    script.call(11, 3, "fcntl", "log", ret=-11, cmd=6, lock_type=1, **lock)
    script.call(11, 4, "fcntl", "log", cmd=7, lock_type=1, dur_ms=3, **lock)
    script.call(10, 6, "fcntl", "log", cmd=6, lock_type=2, **lock)
    row, out = run(script, tmp_path, target)
    assert row["divergent"] == 0
    ends = pq.read_table(out / "outcomes.parquet").column("end_ns").to_pylist()
    assert ends[4] > pq.read_table(out / "outcomes.parquet").column("issue_ns").to_pylist()[5]


def test_the_recorded_pace_is_kept(script, tmp_path, target):
    for number in range(10):
        script.call(10 + number % 2, 200 * number, "stat", "x", ret=-2)
    row, out = run(script, tmp_path, target, pace="scaled=2")
    issued = pq.read_table(out / "outcomes.parquet").column("issue_ns").to_pylist()
    assert all(at >= 100_000_000 * n for n, at in enumerate(issued))
    # Half a pause, and the time that it took without the scale: both are far on a busy machine.
    assert row["lateness_p50_ns"] < 50_000_000
    assert 900_000_000 <= row["makespan_ns"] < 1_800_000_000


def test_thinking_keeps_pauses_after_the_call_before(script, tmp_path, target):
    # Recorded as if writing took no time: a replay that kept times, not pauses, would not wait.
    script.call(10, 1, "openat", "f", ret=3, flags=CREATE, mode=0o600, ino=7, obj_mode=REG,
                obj_size=0, dur_ms=0)  # fmt: skip
    size = 1 << 20
    for n in range(10):
        script.call(10, 20 * n + 21, "write", "f", ret=size, base=0, fd=3, size=size, ino=7,
                    offset=n * size, obj_mode=REG, obj_size=(n + 1) * size, dur_ms=0)  # fmt: skip
    script.fork(10, 11, 230)
    script.call(11, 250, "stat", "x", ret=-2)
    row, out = run(script, tmp_path, target, pace="think")
    rows = pq.read_table(out / "outcomes.parquet").to_pylist()
    assert (row["loop"], row["divergent"]) == ("closed", 0)
    *parents, fork, child = rows
    assert len(parents) == 11
    for before, after in pairwise(parents):
        assert after["issue_ns"] - before["end_ns"] >= 20_000_000
    assert child["issue_ns"] - fork["issue_ns"] >= 20_000_000
    late = row["certificate"]["lateness"]
    assert late["parts"]["slower_calls"]["ns"] == 0
    assert late["calls"] == 12


def test_a_stalled_order_is_given_up_and_said(script, execute, target):
    # Two processes want each other's lock: the kernel refuses or the watchdog ends it.
    for path, ino in (("a", 1), ("b", 2)):
        script.entry(path, ino=ino, mode=REG)
    for tid, (first, second) in {10: ("a", "b"), 11: ("b", "a")}.items():
        for fd, path in enumerate((first, second), 3):
            script.call(tid, 1 + fd / 10 + tid / 100, "openat", path, ret=fd, flags=2,
                        ino=1 + "ab".index(path), obj_mode=REG)  # fmt: skip
            script.call(tid, 2 + fd + tid / 100, "flock", path, base=0, fd=fd, cmd=2,
                        ino=1 + "ab".index(path))  # fmt: skip
    outcomes, _ = execute(script, target, "--stall", "0.5")
    assert "diverged" in {VERDICTS[v] for v in outcomes["verdict"]}
    assert (outcomes["verdict"] != 0).all()


def test_nothing_outside_the_target_is_touched(script, tmp_path, execute, target):
    canary = tmp_path / "canary"
    canary.write_text("untouched")
    before = canary.stat()
    script.call(10, 1, "symlink", "out", path2=str(canary), **SYMLINK_FLAGS)
    script.call(10, 2, "symlink", "up", path2="../" * 20 + str(canary), **SYMLINK_FLAGS)
    script.entry("old", ino=5, mode=0o120777, target_id=script.path(str(canary), "text"))
    for at, name in enumerate(("out", "up", "old"), 3):
        script.call(10, at, "openat", name, ret=3, flags=0o1001, ino=50 + at, obj_mode=REG)
        script.call(10, at + 0.2, "truncate", name, ret=0, offset=0)
        script.call(10, at + 0.4, "chmod", name, ret=0, mode=0o777)
    outcomes, _ = execute(script, target)
    assert len(outcomes) == 11
    after = canary.stat()
    assert canary.read_text() == "untouched"
    assert (after.st_mode, after.st_mtime_ns) == (before.st_mode, before.st_mtime_ns)


def test_devices_are_never_made(script, execute, target):
    script.entry("disk", ino=5, mode=0o060666)
    script.call(10, 1, "mknod", "null", mode=0o020666, arg=259)
    script.call(10, 2, "mknod", "fifo", mode=0o010600)
    script.call(10, 3, "openat", "fifo", ret=3, flags=0, obj_mode=0o010600)
    outcomes, _ = execute(script, target)
    assert [VERDICTS[v] for v in outcomes["verdict"]] == ["skipped", "same", "skipped"]
    kinds = {entry.name: stat.S_IFMT(entry.lstat().st_mode) for entry in target.iterdir()}
    assert kinds == {"fifo": stat.S_IFIFO, "disk": stat.S_IFSOCK, "null": stat.S_IFSOCK}


def test_a_fixture_beyond_the_free_space_is_refused(script, tmp_path, target):
    script.entry("huge", ino=5, mode=REG, size=1 << 60)
    script.call(10, 1, "stat", "huge", ino=5, obj_mode=REG, obj_size=1 << 60)
    with pytest.raises(SpoolscopeError, match="free"):
        run(script, tmp_path, target)
    assert list(target.iterdir()) == []


@pytest.mark.parametrize(
    ("syscall", "values"),
    [
        ("fallocate", {"ret": -95, "offset": 0, "size": 1 << 60}),
        ("fallocate", {"ret": 0, "offset": 0, "size": 1 << 60, "flags": 1}),  # keeps the size
        ("write", {"ret": -1, "offset": 0, "size": 1 << 60}),
    ],
)
def test_calls_that_may_fill_the_disk_are_refused(script, tmp_path, target, syscall, values):
    """Their recorded result does not matter: here the disk may have room."""
    for at in range(10_000 if syscall == "write" else 1):
        script.call(10, at, syscall, "big", base=0, fd=3, ino=5, obj_mode=REG, obj_size=0, **values)
    with pytest.raises(SpoolscopeError, match="free"):
        run(script, tmp_path, target)
    assert list(target.iterdir()) == []


def test_a_path_that_leaves_the_spool_is_refused(script, tmp_path, target):
    script.call(10, 1, "unlink", "a/../../b")
    with pytest.raises(SpoolscopeError, match="leaves the spool"):
        run(script, tmp_path, target)


def test_a_used_directory_and_the_production_spool_are_refused(script, tmp_path, target):
    script.call(10, 1, "stat", "x", ret=-2)
    spool = tmp_path / "spool"
    (spool / "empty").mkdir(parents=True)
    trace = script.write(tmp_path / "trace", spools=[{"mount": str(spool), "dev": 1}])
    for place in (spool, spool / "empty"):
        with pytest.raises(SpoolscopeError, match="recorded on"):
            replay(trace, [f"dir:{place}"], tmp_path / "out")
    (target / "mail").write_text("precious")
    with pytest.raises(SpoolscopeError, match="not empty"):
        replay(trace, [f"dir:{target}"], tmp_path / "out")
    assert (target / "mail").read_text() == "precious"
    assert not (tmp_path / "out").exists()


def test_what_lies_outside_can_take_the_number_of_a_file(script, tmp_path, target):
    """A shell restores its output like this: the file is closed, and its lock released."""
    opened = {"ret": 3, "flags": 0o102, "mode": 0o600, "ino": 5, "obj_mode": REG}
    script.call(10, 1, "openat", "log", **opened)
    script.call(10, 2, "dup2", "log", ret=1, base=0, fd=3, fd2=1, ino=5, obj_mode=REG)
    script.call(10, 3, "close", "log", base=0, fd=3, ino=5, obj_mode=REG)
    script.call(10, 4, "flock", "log", base=0, fd=1, cmd=6, ino=5, obj_mode=REG)
    script.call(10, 5, "dup2", ret=1, fd=10, fd2=1)
    script.call(11, 6, "openat", "log", **opened)
    script.call(11, 7, "flock", "log", base=0, fd=3, cmd=6, ino=5, obj_mode=REG)
    row, _ = run(script, tmp_path, target)
    assert (row["executed"], row["divergent"]) == (7, 0)


def test_the_name_of_a_socket_is_made(script, execute, target):
    for at, error in enumerate((0, errno.EADDRINUSE, errno.EINVAL)):
        script.call(10, at, "bind", "smtp", ret=-error, base=2, size=110)
    script.call(10, 3, "chmod", "smtp", mode=0o600)
    outcomes, state = execute(script, target)
    assert [VERDICTS[v] for v in outcomes["verdict"]] == ["same", "same", "skipped", "same"]
    assert (target / "smtp").is_socket()
    assert state["mismatched"] == 0, state["examples"]


def test_an_acl_that_is_no_more_than_a_mode_is_set(script, execute, target):
    """Set as by cp -p. If its mode was not recorded, the next call on the file shows it."""
    acl = {"path2": "system.posix_acl_access", "kind2": "text", "size": 28, "base": 0, "ino": 5}
    script.entry("mail", ino=5, mode=0o100600)
    script.call(10, 1, "openat", "mail", ret=3, flags=2, ino=5, obj_mode=REG)
    script.call(10, 2, "fsetxattr", "mail", fd=3, obj_mode=REG, **acl)
    script.call(10, 3, "close", "mail", base=0, fd=3, ino=5, obj_mode=0o100640)
    script.call(10, 4, "getxattr", "mail", ret=-61, path2="system.posix_acl_default", kind2="text")
    outcomes, state = execute(script, target)
    assert [VERDICTS[v] for v in outcomes["verdict"]] == ["same"] * 4
    assert (target / "mail").stat().st_mode == 0o100640
    assert state["mismatched"] == 0


def test_an_acl_is_as_long_as_it_was_and_comes_to_the_same_mode(script, execute, target):
    """Three entries are no more than a mode; seven name users or groups."""
    acl = {"path2": "system.posix_acl_access", "kind2": "text", "base": 0, "obj_mode": REG}
    for number, (size, mode) in enumerate([(28, 0o604), (60, 0o751), (28, 0)]):
        name, ino = f"mail{number}", 5 + number
        script.entry(name, ino=ino, mode=0o100600)
        script.call(10, 2 * number, "openat", name, ret=3 + number, flags=2, ino=ino, obj_mode=REG)
        script.call(10, 2 * number + 1, "fsetxattr", name, fd=3 + number, ino=ino, size=size,
                    mode=mode, **acl)  # fmt: skip
    outcomes, state = execute(script, target)
    assert [VERDICTS[v] for v in outcomes["verdict"]] == ["same"] * 6
    found = [(target / f"mail{number}").stat().st_mode & 0o777 for number in range(3)]
    assert found == [0o604, 0o751, 0]
    assert len(os.getxattr(target / "mail1", "system.posix_acl_access")) == 60
    assert state["mismatched"] == 0, state["examples"]


def test_an_acl_of_a_mode_that_nothing_tells_is_skipped(script, execute, target):
    acl = {"path2": "system.posix_acl_access", "kind2": "text", "size": 28, "base": 0, "ino": 5}
    script.entry("mail", ino=5, mode=0o100600)
    script.call(10, 1, "openat", "mail", ret=3, flags=2, ino=5, obj_mode=REG)
    script.call(10, 2, "fsetxattr", "mail", fd=3, obj_mode=REG, **acl)
    outcomes, _ = execute(script, target)
    assert [VERDICTS[v] for v in outcomes["verdict"]] == ["same", "skipped"]


def test_who_reads_a_file_waits_for_what_is_copied_to_it(script, tmp_path):
    """Only the descriptor shows where copy_file_range and sendfile write to."""
    for at, call in enumerate(("copy_file_range", "sendfile")):
        copied, ino, when = f"copy.{at}", 6 + at, 100 * at
        script.entry(f"mail.{at}", ino=16 + at, mode=REG, size=9000)
        script.call(10, when + 1, "openat", f"mail.{at}", ret=3, ino=16 + at, obj_mode=REG)
        script.call(10, when + 2, "openat", copied, ret=4, flags=CREATE, ino=ino, obj_mode=REG,
                    obj_size=0, mode=0o600)  # fmt: skip
        script.call(10, when + 30, call, f"mail.{at}", ret=9000, base=0, fd=3, fd2=4, size=9000,
                    ino=16 + at, obj_mode=REG)  # fmt: skip
        script.call(11, when + 50, "stat", copied, ino=ino, obj_mode=REG, obj_size=9000)
    plan_file = tmp_path / "plan"
    build(Trace.open(script.write(tmp_path / "trace")), plan_file)
    told = Engine(plan_file).explain("resource", [3, 7])["explained"]
    waits = [[(edge["before"], edge["did"]) for edge in one["waits"]] for one in told]
    assert waits == [[(2, "changes")], [(6, "changes")]]


def test_a_slice_that_begins_after_the_end_is_refused(script, tmp_path, target):
    script.call(10, 1, "stat", "x", ret=-2)
    trace = script.write(tmp_path / "trace")
    late = parse([], 1, "5s..6s")
    with pytest.raises(SpoolscopeError, match="begins at 5 s, the recording ends"):
        replay(trace, [f"dir:{target}"], tmp_path / "out", what_if=late)
    assert not (tmp_path / "out").exists()


def test_lost_and_found_is_there_if_the_trace_has_it(script, tmp_path, target):
    """Only ext filesystems have it from mkfs, and `find` and backups look into it."""
    script.entry("lost+found", ino=11, mode=0o040700)
    script.call(10, 1, "newfstatat", "lost+found", obj_mode=DIR, ino=11)
    script.call(10, 2, "openat", "lost+found", ret=3, flags=0o200000, obj_mode=DIR, ino=11)
    row, _ = run(script, tmp_path, target)
    assert (row["executed"], row["divergent"], row["final_state"]["mismatched"]) == (2, 0, 0)
    assert list(target.iterdir()) == []


def test_without_root_the_engine_confines_itself_too(script, tmp_path):
    script.entry("old", ino=5, mode=0o120777, target_id=script.path("/etc/hostname", "text"))
    script.call(10, 1, "openat", "old", ret=3, flags=0o1001, ino=6, obj_mode=REG)
    deliver(script, 10, 2, "a", 100)
    plan = tmp_path / "plan"
    build(Trace.open(script.write(tmp_path / "trace")), plan)
    place = Path("/var/tmp/spoolscope-nobody-test")
    subprocess.run(["rm", "-rf", place], check=True)
    place.mkdir(mode=0o777)
    try:
        if os.geteuid() == 0:
            place.chmod(0o777)
        binary = place / "replay"
        binary.write_bytes(find_binary("spoolscope-replay").read_bytes())
        binary.chmod(0o755)
        (place / "plan").write_bytes(plan.read_bytes())
        (place / "t").mkdir(mode=0o777)
        (place / "t").chmod(0o777)
        words = [binary, "run", place / "plan", "--target", place / "t", "--pace", "afap"]
        drop = ["setpriv", "--reuid", "65534", "--regid", "65534", "--clear-groups"]
        done = subprocess.run(
            [*(drop if os.geteuid() == 0 else []), *words], capture_output=True, text=True,
            check=False,
        )  # fmt: skip
        assert done.returncode == 0, done.stderr
        assert '"owners":false' in done.stdout
        assert (place / "t/new/a").stat().st_size == 5000
    finally:
        subprocess.run(["rm", "-rf", place], check=True)
