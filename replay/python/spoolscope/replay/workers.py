"""``--workers pool``: a job does not wait for the process that did it in the recording.

A server hands the next job to a worker that is idle, or starts one. A replay keeps it for the
recorded process, where it waits if that is slower here. With a pool every *job* has a worker of its
own, which begins when the job was due: no job waits for a worker. That is true to the server as
long as its limit of processes is not reached.

A job is the work of a single-threaded process between two moments at which nothing that it opened
or mapped is left. Such a moment is a pause of 1 ms, or a flock on a descriptor from before, by
which Postfix's workers take turns to accept. The job goes to a worker if it needs nothing of the
process: no descriptor from before, no fork, and the same user, group, umask and directory at its
end as at its begin; the worker gets these. Locks end when their files are closed. A process with
one job is no worker, and keeps it.
"""

from collections import Counter
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np

from spoolscope.replay import on_disk
from spoolscope.replay.ops import EXEC, EXIT, FAULT, FORK, Ops
from spoolscope.replay.outcomes import Plan, read_plan
from spoolscope.traces.abi import DUPLICATES
from spoolscope.traces.calls import CALLS, of_effect, of_kind
from spoolscope.traces.errors import usage_error
from spoolscope.traces.files import replacing
from spoolscope.traces.flat import DTYPES, NONE

OWN, POOL = "own", "pool"
WORKERS = (OWN, POOL)
PAUSE_NS = 1_000_000
# Pids from here on identify added threads of a plan: Linux gives lower ones to processes.
_FIRST_PID = 1 << 22
_TO_DIRFD = 3
_UNCHANGED = 0xFFFFFFFF
_OPENS = frozenset(call.id for call in CALLS.values() if call.returns_fd)
_TIES = frozenset(CALLS[name].id for name in of_kind("fchdir", "chroot", "close_range"))
_OF_GROUPS, _OF_USERS = (
    frozenset(
        CALLS[name].id for name in of_effect("becomes") if CALLS[name].position(word) is not None
    )
    for word in ("gid", "uid")
)
_DUP2 = frozenset(CALLS[name].id for name in of_kind("dup2"))
_NEEDS = (
    *("start_ns", "end_ns", "op", "ret", "fd", "fd2", "dirfd", "dirfd2", "base", "base2", "cmd"),
    *("arg", "mode", "path"),
)
Op = dict[str, int]


@dataclass(frozen=True)
class State:
    """State of a process besides its descriptors; ``cwd`` is a string of the plan."""

    uid: int
    gid: int
    umask: int
    cwd: int

    def after(self, op: Op) -> "State":
        """Return the state after an operation."""
        kind = op["op"]
        if op["ret"] < 0:
            return self
        if kind in _OF_USERS and (uid := op["arg"] & _UNCHANGED) != _UNCHANGED:
            return replace(self, uid=uid)
        if kind in _OF_GROUPS and (gid := op["arg"] >> 32 & _UNCHANGED) != _UNCHANGED:
            return replace(self, gid=gid)
        if kind == CALLS["umask"].id:
            return replace(self, umask=op["mode"])
        return replace(self, cwd=op["path"]) if kind == CALLS["chdir"].id else self


@dataclass
class Job:
    """Operations of a process between two pauses.

    Attributes:
        begin: State of the process at the begin; ``now``: its present state.
        ops: Places of its operations in the plan.
        opened: Descriptors that it opened and has not closed; ``mapped``: number of mappings.
        tied: It needs something of its process.
    """

    begin: State
    now: State
    ops: list[int] = field(default_factory=list)
    opened: set[int] = field(default_factory=set)
    mapped: int = 0
    tied: bool = False

    @property
    def over(self) -> bool:
        """True if nothing that it opened or mapped is open or mapped any more."""
        return not self.opened and not self.mapped

    @property
    def moves(self) -> bool:
        """True if another process can do it, with the same state of its own process after it."""
        return bool(self.ops) and self.over and not self.tied and self.now == self.begin

    def add(self, at: int, op: Op) -> None:
        """Add an operation."""
        self.ops.append(at)
        self.now = self.now.after(op)
        kind = op["op"]
        used = {op["fd"], op["fd2"]} - {-1}
        used |= {op["dirfd"]} if op["base"] == _TO_DIRFD else set()
        used |= {op["dirfd2"]} if op["base2"] == _TO_DIRFD else set()
        used -= {op["fd2"]} if kind in _DUP2 else set()
        self.tied |= kind in (FORK, EXEC, EXIT) or kind in _TIES
        self.tied |= bool(used - self.opened) or (kind == FAULT and not self.mapped)
        if op["ret"] < 0:
            return
        if kind in _OPENS or (kind == CALLS["fcntl"].id and op["cmd"] in DUPLICATES):
            self.opened.add(op["ret"])
        elif kind == CALLS["close"].id:
            self.opened.discard(op["fd"])
        self.mapped += (kind == CALLS["mmap"].id) - (kind == CALLS["munmap"].id)


class _Process:
    """Finds the jobs of one process; those that can move are in ``found``."""

    def __init__(self, begin: State) -> None:
        self.found: list[Job] = []
        self.begun = 0
        self._job, self._ended_ns = Job(begin, begin), 0
        self._lost = False

    def see(self, at: int, op: Op) -> None:
        """Take in the next operation of the process."""
        takes_turns = op["op"] == CALLS["flock"].id and op["fd"] not in self._job.opened
        if self._job.over and (takes_turns or op["start_ns"] - self._ended_ns >= PAUSE_NS):
            self.end()
        self._ended_ns = op["end_ns"]
        if takes_turns and self._job.over:
            return  # the flock stays with the process
        self._job.add(at, op)
        self._lost |= op["op"] in _TIES  # from here on the state is unknown

    def end(self) -> None:
        """End the present job."""
        job = self._job
        self.begun += bool(job.ops)
        if job.moves and not self._lost:
            self.found.append(job)
        self._job = Job(job.now, job.now)


def jobs_of(plan: Plan) -> dict[int, list[Job]]:
    """Return the jobs that can go to other workers, by thread of the plan.

    A process with one job is no worker and keeps it; a process with several threads, or that shares
    its descriptors, keeps all.
    """
    threads = plan.threads
    shared = Counter(threads["pid"].tolist())
    parents = set(threads["parent"][threads["flags"] != 0].tolist())
    seen: dict[int, _Process] = {}
    for at, thread in enumerate(threads):
        if shared[int(thread["pid"])] == 1 and not thread["flags"] and at not in parents:
            state = (int(thread[name]) for name in ("uid", "gid", "umask", "cwd"))
            seen[at] = _Process(State(*state))
    for part in on_disk.parts(len(plan.ops)):
        ops = plan.ops[part]
        columns = [ops[name].tolist() for name in _NEEDS]
        owners = ops["thread"].tolist()
        for at, (thread, *values) in enumerate(zip(owners, *columns, strict=True), part.start):
            if thread in seen:
                seen[thread].see(at, dict(zip(_NEEDS, values, strict=True)))
    for process in seen.values():
        process.end()
    return {at: one.found for at, one in seen.items() if one.found and one.begun > 1}


def pool(plan_file: Path) -> dict[str, Any]:
    """Give every job in a plan a worker of its own; return the entry of run.json.

    Raises:
        SpoolscopeError: the trace has no such jobs.
    """
    plan = read_plan(plan_file)
    jobs = jobs_of(plan)
    moved = [(thread, job) for thread, some in jobs.items() for job in some]
    if not moved:
        raise usage_error(
            "no process of this trace has a job that another could do: none pauses with nothing "
            "open that it opened, and works again",
            remedy="leave out --workers pool",
        )
    ops: Ops = np.array(plan.ops)
    added = np.zeros(len(moved), DTYPES["plan_thread"])
    for number, (thread, job) in enumerate(moved):
        added[number] = plan.threads[thread]
        for name, value in asdict(job.begin).items():
            added[name][number] = value
        ops["thread"][job.ops] = len(plan.threads) + number
        added["start_ns"][number] = max(int(ops["start_ns"][job.ops[0]]), 1)
    added["parent"] = NONE
    added["tid"] = added["pid"] = _FIRST_PID + np.arange(len(moved))
    _write(plan_file, added, ops)
    comms = (bytes(plan.threads["comm"][thread]) for thread, _ in moved)
    names = Counter(comm.decode(errors="replace") for comm in comms)
    return {"workers": len(moved), "processes": len(jobs), "jobs": dict(names.most_common())}


def _write(plan_file: Path, added: Ops, ops: Ops) -> None:
    """Write a plan anew, with more threads and changed operations."""
    raw = plan_file.read_bytes()
    size = DTYPES["plan_header"].itemsize
    header = np.frombuffer(raw[:size], DTYPES["plan_header"]).copy()
    end = (
        int(header["threads_at"][0]) + int(header["n_threads"][0]) * DTYPES["plan_thread"].itemsize
    )
    first = int(header["ops_at"][0])
    past = first + ops.nbytes
    for name in (
        "ops_at",
        "entries_at",
        "fds_at",
        "xattrs_at",
        "string_index_at",
        "string_bytes_at",
    ):
        header[name] += added.nbytes
    header["n_threads"] += len(added)
    with replacing(plan_file) as file:
        file.write(header.tobytes() + raw[size:end] + added.tobytes() + raw[end:first])
        file.write(ops.tobytes() + raw[past:])
