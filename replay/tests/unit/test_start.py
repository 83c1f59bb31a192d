"""Files that were open, locked or mapped when the recording began are so again."""

import subprocess

import pytest

from spoolscope.replay.outcomes import call_name, read_plan
from spoolscope.replay.plan import build
from spoolscope.replay.run import replay
from spoolscope.traces.trace import Trace

REG = 0o100600
START = 1_700_000_000_000_000_000
RDONLY, RDWR = 0, 2
SETLK, SETLKW, WRLCK, UNLCK = 6, 7, 1, 2
LOCK_EX, LOCK_NB = 2, 4


def opened(script, pid: int, fd: int, path: str, ino: int, **values) -> None:
    script.thread(pid)
    row = {"pid": pid, "fd": fd, "path_id": script.path(path), "ino": ino, "obj_mode": REG,
           "flags": RDWR, "offset": 0}  # fmt: skip
    script.open_files.append({**row, **values})


def lock(script, pid: int, at: float, cmd: int, kind: int, ret: int = 0, **values) -> None:
    script.call(pid, at, "fcntl", "f", ret=ret, base=0, fd=5, ino=7, obj_mode=REG, cmd=cmd,
                lock_type=kind, offset=0, size=0, **values)  # fmt: skip


def held(pid: int | None, kind: str, ino: int = 7, **values) -> dict:
    row = {"ts_ns": START, "pid": pid, "kind": kind, "exclusive": True, "waiting": False,
           "ino": ino, "start": 0, "length": None}  # fmt: skip
    return {**row, **values}


def ends_with_mode(script, tmp_path, name: str) -> int:
    """Replay with nothing divergent; return the mode of a name that was left."""
    modes = []

    def look(target, command, _, _show: object) -> int:
        done = subprocess.run(command, check=False)
        modes.append((target / name).stat().st_mode)
        return done.returncode

    (tmp_path / "target").mkdir()
    trace, place = script.write(tmp_path / "trace"), f"dir:{tmp_path / 'target'}"
    (row,) = replay(trace, [place], tmp_path / "out", pace="afap", recorder=look)
    assert (row["divergent"], row["final_state"]["mismatched"]) == (0, 0)
    assert row["executed"] == row["syscalls"]
    return modes[0]


def results(script, tmp_path):
    """Replay into a directory; return operations by name, and their outcomes."""
    target = tmp_path / "target"
    target.mkdir()
    trace = script.write(tmp_path / "trace")
    rows = replay(trace, [f"dir:{target}"], tmp_path / "out", pace="afap")
    build(Trace.open(trace), tmp_path / "plan")
    plan = read_plan(tmp_path / "plan")
    import pyarrow.parquet as pq

    (file,) = (tmp_path / "out").glob("*/outcomes.parquet")
    outcomes = pq.read_table(file).to_pylist()
    names = [call_name(op) for op in plan.ops]
    return rows[0], list(zip(names, plan.ops, outcomes, strict=True))


def of(found, name: str, pid_op: int | None = None) -> list[dict]:
    return [out for n, op, out in found if n == name and (pid_op is None or op["fd"] == pid_op)]


@pytest.mark.parametrize("kind", ["posix", "ofd", "flock"])
def test_a_lock_held_before_refuses_others(script, tmp_path, kind):
    """The try of another process fails as recorded, because the lock is held for real."""
    script.entry("f", ino=7, mode=REG, size=100)
    opened(script, 10, 5, "f", 7)
    opened(script, 11, 5, "f", 7)
    script.more["held_locks"] = [held(None if kind == "ofd" else 10, kind)]
    if kind == "flock":
        script.call(11, 1, "flock", "f", ret=-11, base=0, fd=5, ino=7, cmd=LOCK_EX | LOCK_NB)
    else:
        lock(script, 11, 1, SETLK, WRLCK, ret=-11)
    row, found = results(script, tmp_path)
    assert (row["executed"], row["divergent"]) == (1, 0)
    assert {out["verdict"] for _, _, out in found} == {"same"}


def test_a_waiter_waits_for_a_lock_held_before(script, tmp_path):
    script.entry("f", ino=7, mode=REG, size=100)
    for pid in (10, 11):
        opened(script, pid, 5, "f", 7)
    script.more["held_locks"] = [held(10, "posix")]
    lock(script, 11, 1, SETLKW, WRLCK, dur_ms=300)
    script.call(10, 2, "fsync", "f", base=0, fd=5, ino=7, obj_mode=REG)
    lock(script, 10, 290, SETLK, UNLCK)
    target = tmp_path / "target"
    target.mkdir()
    trace, plan = script.write(tmp_path / "trace"), tmp_path / "plan"
    build(Trace.open(trace), plan)
    replay(trace, [f"dir:{target}"], tmp_path / "out", pace="original")
    import pyarrow.parquet as pq

    (file,) = (tmp_path / "out").glob("*/outcomes.parquet")
    rows = pq.read_table(file).to_pylist()
    ops = read_plan(plan).ops
    (got,) = (r for r, op in zip(rows, ops, strict=True) if op["cmd"] == SETLKW)
    (gave,) = (r for r, op in zip(rows, ops, strict=True) if op["lock_type"] == UNLCK)
    assert got["issue_ns"] < gave["issue_ns"] < got["end_ns"]


def test_locks_changed_while_they_were_read(script, tmp_path):
    """The snapshot is later: one lock was released meanwhile, another taken."""
    script.entry("f", ino=7, mode=REG, size=100)
    script.entry("g", ino=8, mode=REG, size=100)
    for pid in (10, 11):
        opened(script, pid, 5, "f", 7)
        opened(script, pid, 6, "g", 8)
    script.more["held_locks"] = [held(10, "posix", ts_ns=START - 9_000_000)]
    lock(script, 10, -5, SETLK, UNLCK)
    script.call(10, -4, "fcntl", "g", base=0, fd=6, ino=8, cmd=SETLKW, lock_type=WRLCK, offset=0,
                size=0)  # fmt: skip
    lock(script, 11, 1, SETLK, WRLCK)
    script.call(11, 2, "fcntl", "g", ret=-11, base=0, fd=6, ino=8, cmd=SETLK, lock_type=WRLCK,
                offset=0, size=0)  # fmt: skip
    _, found = results(script, tmp_path)
    assert {out["verdict"] for _, _, out in found} == {"same"}
    assert len(found) == 5


def test_processes_share_positions_of_files_opened_before(script, tmp_path):
    script.entry("f", ino=7, mode=REG, size=100)
    opened(script, 10, 5, "f", 7, description=0, offset=10)
    opened(script, 11, 4, "f", 7, description=0, offset=10)
    opened(script, 12, 4, "f", 7, description=1 << 41, offset=10)
    common = {"base": 0, "ino": 7, "obj_mode": REG, "obj_size": 100, "size": 60}
    script.call(10, 1, "read", "f", ret=60, fd=5, offset=10, **common)
    script.call(11, 2, "read", "f", ret=30, fd=4, offset=70, **common)
    script.call(12, 3, "read", "f", ret=60, fd=4, offset=10, **common)
    row, found = results(script, tmp_path)
    assert row["divergent"] == 0, found


def test_a_nameless_file_is_opened_by_all_before_its_name_goes(script, tmp_path):
    for pid in range(10, 30):
        opened(script, pid, 5, "gone", 7, deleted=True, size=50)
        script.call(pid, 1, "fstat", "gone", base=0, fd=5, ino=7, obj_mode=REG, obj_size=50)
    script.call(10, 2, "stat", "gone", ret=-2)
    row, _ = results(script, tmp_path)
    assert (row["executed"], row["divergent"]) == (21, 0)
    assert row["final_state"]["mismatched"] == 0


def mapping(script, pid: int, path: str, ino: int, **values) -> dict:
    row = {"ts_ns": START, "pid": pid, "path_id": script.path(path), "ino": ino, "prot": 3,
           "address": 0x7F0000000000, "length": 12288, "offset": 4096, "shared": True}  # fmt: skip
    return {**row, **values}


def fault(pid: int, at_ms: float, ino: int, page: int | None, **values) -> dict:
    row = {"ts_ns": START + int(at_ms * 1e6), "pid": pid, "tid": pid, "ino": ino, "page": page}
    return {**row, **values}


def test_recorded_faults_touch_pages_of_a_mapping(script, tmp_path):
    """Faults past the end of the file find no page, and no task dies of them."""
    script.thread(10)
    script.entry("f", ino=7, mode=REG, size=3 * 4096 - 10)
    script.more["mappings"] = [mapping(script, 10, "f", 7)]
    script.more["faults"] = [
        fault(10, 1, 7, 1), fault(10, 2, 7, None, first_page=2, write=True), fault(10, 3, 7, 3),
        fault(10, 4, 7, 9), fault(10, 5, 8, 1),
    ]  # fmt: skip
    script.call(10, 6, "msync", base=0, arg=0x7F0000000000, size=8192, flags=4)
    script.call(10, 7, "munmap", base=0, arg=0x7F0000000000, size=12288)
    script.call(10, 8, "stat", "f", ino=7, obj_mode=REG, obj_size=3 * 4096 - 10)
    row, found = results(script, tmp_path)
    assert [out["verdict"] for out in of(found, "fault")] == [
        "same", "same", "diverged", "skipped", "skipped",
    ]  # fmt: skip
    assert (row["executed"], row["divergent"]) == (3, 0)
    assert row["faults"] == {"recorded": 5, "touched": 2}
    assert row["final_state"]["mismatched"] == 0


def test_an_open_file_that_the_snapshot_missed_has_its_mode_and_moves_with_it(script, tmp_path):
    """A delivery was under way: its name went while the snapshot listed the directory."""
    opened(script, 10, 5, "tmp/m", 7, obj_mode=0o100640)
    script.more["missed_names"] = [{"path_id": script.path("tmp/m"), "ino": 7, "directory": False}]
    script.entry("new", ino=2, mode=0o040755)
    script.call(10, 1, "rename", "tmp/m", path2="new/m")
    script.call(10, 2, "write", "new/m", ret=9, base=0, fd=5, ino=7, obj_mode=0o100640, size=9,
                offset=0, obj_size=9)  # fmt: skip
    assert ends_with_mode(script, tmp_path, "new/m") == 0o100640


def test_a_directory_that_the_snapshot_missed_has_the_mode_of_its_open(script, tmp_path):
    """The entry of its name has only its type."""
    script.more["missed_names"] = [{"path_id": script.path("box"), "ino": 7, "directory": True}]
    script.call(10, 1, "openat", "box", ret=3, flags=0o200000, ino=7, obj_mode=0o040700)
    assert ends_with_mode(script, tmp_path, "box") == 0o040700


def test_a_directory_that_was_removed_while_it_was_open_is_gone_again(script, tmp_path):
    script.entry("new", ino=2, mode=0o040755)
    opened(script, 10, 5, "box", 7, obj_mode=0o040755, flags=0o200000, deleted=True)
    script.call(10, 1, "fstat", "box", base=0, fd=5, ino=7, obj_mode=0o040755)
    row, _ = results(script, tmp_path)
    assert (row["executed"], row["divergent"], row["final_state"]["mismatched"]) == (1, 0, 0)


def test_a_file_without_a_name_from_the_beginning_is_open_again(script, tmp_path):
    """A file made with O_TMPFILE has a name here until it is open."""
    opened(script, 10, 5, "box", 7, flags=0o20200002, deleted=True)
    script.call(10, 1, "pwrite64", "box", ret=9, base=0, fd=5, ino=7, obj_mode=REG, size=9,
                offset=0, obj_size=9)  # fmt: skip
    row, _ = results(script, tmp_path)
    assert (row["executed"], row["divergent"], row["final_state"]["mismatched"]) == (1, 0, 0)


@pytest.mark.parametrize(
    "how", [("fstat", {"fd": 5, "base": 0}), ("newfstatat", {"dirfd": 5, "base": 3, "flags": 4096})]
)
def test_a_file_that_only_its_descriptor_tells_of_is_the_one_that_calls_use(script, tmp_path, how):
    """Without a snapshot, as in an import, only the table of open files has its name."""
    opened(script, 10, 5, "box", 7)
    script.call(10, 1, how[0], "box", **how[1], ino=7, obj_mode=REG, obj_size=700)
    script.call(10, 2, "pread64", "box", ret=100, base=0, fd=5, ino=7, obj_mode=REG, size=100,
                offset=0, obj_size=700)  # fmt: skip
    row, _ = results(script, tmp_path)
    assert (row["executed"], row["divergent"], row["final_state"]["mismatched"]) == (2, 0, 0)
