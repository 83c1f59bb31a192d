"""The tables of threads: one row per life, one per event in it."""

from collections.abc import Callable
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from spoolscope.tracers.lives import END, EXEC, EXIT, FORK, SEEN, Life, Lives
from spoolscope.tracers.state import State
from spoolscope.traces import constants
from spoolscope.traces.capture import Capture, Records
from spoolscope.traces.comms import Comms
from spoolscope.traces.programs import group, program

WATCHED = constants.TASK_WATCHED
EVENT_NAMES = np.array(["", "seen", "fork", "exec", "exit", "end", "comm", "watched"], dtype=object)
IN_CALL = constants.TASK_IN_CALL
SHARE_FILES, SHARE_FS = constants.TASK_SHARE_FILES, constants.TASK_SHARE_FS

Columns = dict[str, Any]
PathId = Callable[[bytes], int]
Int = npt.NDArray[np.int64]


def task_event_columns(
    capture: Capture, lives: Lives, comms: Comms, heirs: set[tuple[int, int]]
) -> Columns:
    """Return every event in the lives of threads that made a call, or forked one that did."""
    tasks, _ = _relevant(capture, lives, heirs)
    shift = np.int64(capture.start_real_ns - capture.start_mono_ns)
    parent = tasks["parent_tid"].astype(np.int32)
    return {
        "ts_ns": tasks["ts_ns"].astype(np.int64) + shift,
        "pid": tasks["pid"].astype(np.int32),
        "tid": tasks["tid"].astype(np.int32),
        "event": EVENT_NAMES[tasks["event"]],
        "parent_tid": np.ma.array(parent, mask=tasks["event"] != FORK),
        "comm": comms.column(tasks["comm"]),
    }


def _relevant(capture: Capture, lives: Lives, heirs: set[tuple[int, int]]) -> tuple[Records, Life]:
    """Select lives that matter to the spool: callers, holders and mappers of files, ancestors.

    It returns their events and the life of each event.
    """
    tasks, files = capture.records["task"], capture.records["open_file"]
    of_tasks = lives.of(tasks["tid"], tasks["ts_ns"])
    wanted = set(np.unique(lives.of_calls).tolist())
    known = np.isin(files["pid"], lives.tid)
    wanted |= set(lives.of(files["pid"][known], files["ts_ns"][known]).tolist())
    inherited = np.array(sorted(heirs), np.int64).reshape(-1, 2)
    wanted |= set(lives.of(inherited[:, 0], inherited[:, 1]).tolist())
    wanted |= set(of_tasks[tasks["event"] == WATCHED].tolist())
    for kind, time in (("fault", "ts_ns"), ("uring", "submit_ns")):
        rows = capture.records[kind]
        rows = rows[np.isin(rows["tid"], lives.tid)]
        wanted |= set(lives.of(rows["tid"], rows[time]).tolist())
    is_fork = (tasks["event"] == FORK) & np.isin(tasks["parent_tid"], lives.tid)
    forks = tasks[is_fork]
    by = lives.of(forks["parent_tid"], forks["ts_ns"])
    parents = dict(zip(of_tasks[is_fork].tolist(), by.tolist(), strict=True))
    for life in list(wanted):
        at = life
        while (at := parents.get(at, -1)) >= 0 and at not in wanted:
            wanted.add(at)
    kept = np.isin(of_tasks, np.fromiter(wanted, np.int64, len(wanted)))
    return tasks[kept], of_tasks[kept]


def calls_in_flight(capture: Capture) -> int:
    """Return the number of calls that had not returned when the recording ended."""
    tasks = capture.records["task"]
    return int(np.sum((tasks["event"] == END) & (tasks["flags"] & IN_CALL > 0)))


class Threads:
    """Puts the lives of threads together from their events.

    Args:
        capture: The capture.
        lives: Its lives.
        comms: How names are shown.
        path_id: Returns the id of a path.
        heirs: Processes that inherited files of the spool: pid, time of the fork.
    """

    def __init__(
        self,
        capture: Capture,
        lives: Lives,
        comms: Comms,
        path_id: PathId,
        heirs: set[tuple[int, int]],
    ) -> None:
        self._heirs = heirs
        self._capture, self._lives, self._comms, self._path_id = capture, lives, comms, path_id
        self._shift = capture.start_real_ns - capture.start_mono_ns
        self._groups = capture.meta.get("cgroups", {})
        self._rows: dict[int, Columns] = {}
        self._known = set(lives.tid.tolist())

    def columns(self, state: State) -> Columns:
        """Return the threads table: one row per life of a thread.

        Args:
            state: Has the working directories at the start.
        """
        tasks, of_tasks = _relevant(self._capture, self._lives, self._heirs)
        # For a thread older than the recording there may be no record: then its process is used.
        parents = [self._forking(tasks, by) for by in ("parent_tid", "parent_pid")]
        order = np.argsort(tasks["ts_ns"], kind="stable")
        for at in order.tolist():
            self._apply(tasks[at], int(of_tasks[at]), [int(by[at]) for by in parents])
        cwds = {pid: cwd for pid, cwd in state.cwds.items() if pid in self._known}
        pids = np.fromiter(cwds, np.int64, len(cwds))
        of_pids = self._lives.of(pids, np.full(len(pids), state.cut_ns))
        for life, cwd in zip(of_pids.tolist(), cwds.values(), strict=True):
            if life in self._rows:
                self._rows[life]["cwd_id"] = self._path_id(cwd)
        for row in self._rows.values():
            cgroup = self._groups.get(str(row["cgroup_id"]), "").encode(errors="surrogateescape")
            row["cgroup"] = group(cgroup, self._comms) or None
            row["exe"] = program(row["exe"], self._comms) or None
        names = _new_thread(np.zeros(1, tasks.dtype)[0]).keys()
        return {name: pa.array([row[name] for row in self._rows.values()]) for name in names}

    def _forking(self, tasks: Records, by: str) -> Int:
        """Return the life that called each fork; -1 for other events."""
        parents = np.full(len(tasks), -1, np.int64)
        forks = (tasks["event"] == FORK) & np.isin(tasks[by], self._lives.tid)
        parents[forks] = self._lives.of(tasks[by][forks], tasks["ts_ns"][forks])
        return parents

    def _apply(self, task: np.void, life: int, parents: list[int]) -> None:
        event, at_start = int(task["event"]), bool(task["path"]) and task["event"] == SEEN
        row = self._rows.get(life)
        if row is None:
            if at_start and self._lives.begin_ns[life]:
                return  # the snapshot's record of a thread that was just ending
            row = self._rows[life] = _new_thread(task)
        row["comm"] = self._comms.text(bytes(task["comm"])) or row["comm"]
        if apply := _THREAD_EVENTS.get(event):
            apply(row, task, self._shift)
        if event == FORK:
            forking = next((self._rows[by] for by in parents if by in self._rows), row)
            for name in ("exe", "exe_ino", "cgroup_id"):
                row[name] = forking[name]
        elif event == EXEC and task["path"]:
            row["exe"] = self._capture.strings[task["path"]]
        if at_start and row["start_ns"] is None:
            row["exe"] = self._capture.strings[task["exe"]]


def _new_thread(task: np.void) -> Columns:
    return {
        "tid": int(task["tid"]),
        "pid": int(task["pid"]),
        "parent_tid": None,
        "parent_pid": None,
        "start_ns": None,
        "end_ns": None,
        "exit_code": None,
        "comm": "",
        "kind": "task",
        "uid": int(task["uid"]),
        "gid": int(task["gid"]),
        "umask": int(task["umask"]),
        "cwd_id": None,
        "cgroup_id": 0,
        "cgroup": "",
        "exe_ino": 0,
        "exe": b"",
        "shares_files": False,
        "shares_fs": False,
        "n_calls": None,
    }


def _forked(row: Columns, task: np.void, shift: int) -> None:
    row["start_ns"] = int(task["ts_ns"]) + shift
    row["parent_tid"], row["parent_pid"] = int(task["parent_tid"]), int(task["parent_pid"])
    row["shares_files"] = bool(task["flags"] & SHARE_FILES)
    row["shares_fs"] = bool(task["flags"] & SHARE_FS)


def _seen(row: Columns, task: np.void, _: int) -> None:
    row["uid"], row["gid"] = int(task["uid"]), int(task["gid"])
    row["umask"] = int(task["umask"])
    row["exe_ino"] = int(task["exe_ino"]) or row["exe_ino"]
    row["cgroup_id"] = int(task["cgroup_id"]) or row["cgroup_id"]


def _executed(row: Columns, task: np.void, _: int) -> None:
    row["exe_ino"] = int(task["exe_ino"])
    row["cgroup_id"] = int(task["cgroup_id"])


def _exited(row: Columns, task: np.void, shift: int) -> None:
    row["end_ns"] = int(task["ts_ns"]) + shift
    row["exit_code"] = int(task["exit_code"])
    row["n_calls"] = int(task["n_calls"])


def _last_words(row: Columns, task: np.void, _: int) -> None:
    row["n_calls"] = int(task["n_calls"])


def _watched(row: Columns, _task: np.void, _shift: int) -> None:
    row["kind"] = "kernel"


_THREAD_EVENTS: dict[int, Callable[[Columns, np.void, int], None]] = {
    WATCHED: _watched,
    FORK: _forked,
    SEEN: _seen,
    EXEC: _executed,
    EXIT: _exited,
    END: _last_words,
}
