"""Commits without a recorded tracepoint, found by the sleeps of threads.

jfs and reiserfs have no tracepoints at all. A commit of reiserfs, a checkpoint of f2fs and a
segment of nilfs2 begin with the first sleep inside them, or with the wakeup of the thread that
does them, and end with the last sleep: time on a CPU before and after it is left out. Writes of
the log of jfs end in interrupts: a write lasts as long as the threads that it woke together had
slept, but begins at the earliest at the end of the write before.
"""

from collections.abc import Iterator
from functools import cached_property
from typing import Any, NamedTuple

import numpy as np

from spoolscope.tracers.call_index import CallIndex
from spoolscope.tracers.commit_askers import Askers, comms_of
from spoolscope.tracers.events import BLOCKED, WAKERS
from spoolscope.traces.capture import Capture, Records

Commit = dict[str, Any]
LOCKS = ("mutex_lock", "__mutex_lock", "rwsem_down", "down_write", "down_read", "f2fs_down")
TOGETHER_NS = 500_000
"""2,830 gaps between wakeups of threads that waited for the log of jfs were measured (6.1 and
6.12, emulated): 922 were at most 0.2 ms long, 1,811 over 1 ms, and 97 between."""


class Work(NamedTuple):
    """A kind of commit, and how it is recognised.

    Attributes:
        kind: As in the table of commits.
        fstype: The filesystem.
        inside: Functions that do the commit. A thread that takes a lock directly in one of them
            waits for another thread that does it.
        thread: Prefix of the name of the kernel thread that only does this; "" if there is none.
    """

    kind: str
    fstype: str
    inside: tuple[str, ...]
    thread: bytes


WORKS = (
    Work("reiserfs_commit", "reiserfs", ("flush_commit_list",), b""),
    Work("f2fs_checkpoint", "f2fs", ("f2fs_write_checkpoint",), b"f2fs_ckpt"),
    Work(
        "nilfs_segment",
        "nilfs2",
        ("nilfs_segctor_do_construct", "nilfs_segctor_thread"),
        b"segctord",
    ),
)
JFS_GROUP, JFS_WAIT = "jfs_log_write", "lmGroupCommit"


class BySleep:
    """Finds commits in the absences of threads from the CPU."""

    def __init__(self, capture: Capture, index: CallIndex) -> None:
        self._capture, self._calls = capture, index
        self._askers, self._comms = Askers(capture), comms_of(capture)

    @cached_property
    def _switches(self) -> Records:
        """Absences by thread and time; most filesystems have tracepoints and need none."""
        switches = self._capture.records["switch"]
        return switches[np.lexsort((switches["out_ns"], switches["tid"]))]

    def commits(self) -> list[Commit]:
        """Return the commits of the recorded filesystems that have no tracepoints for them."""
        spools = self._capture.meta.get("spools", [])
        found: list[Commit] = []
        for fstype in {spool["fstype"] for spool in spools}:
            own = [c for work in WORKS if work.fstype == fstype for c in self._done(work)]
            own += self._jfs() if fstype == "jfs" else []
            devs = {spool["dev"] for spool in spools if spool["fstype"] == fstype}
            dev = devs.pop() if len(devs) == 1 else None
            found += [commit | {"dev": dev} for commit in own]
        found.sort(key=lambda commit: int(commit["ts_ns"]))
        return [commit | {"txn_id": number} for number, commit in enumerate(found)]

    def _done(self, work: Work) -> Iterator[Commit]:
        doing = self._doing(work)
        asleep = self._switches["state"] == BLOCKED
        inside = np.isin(self._switches["stack"], doing) & asleep
        for tid in np.unique(self._switches["tid"][inside]):
            own = self._switches["tid"] == tid
            yield from self._runs(work, self._switches[own & asleep], inside[own & asleep])

    def _doing(self, work: Work) -> list[int]:
        """Return the stacks of threads that commit, without those that wait for a commit."""
        stacks = self._capture.stacks_with(*work.inside).tolist()
        return [stack for stack in stacks if not self._waits(stack, work)]

    def _waits(self, stack: int, work: Work) -> bool:
        """Return whether the innermost function of the work asks for a lock or is idle."""
        symbols = self._capture.symbols
        frames = [symbols.get(int(a), "").split(".")[0] for a in self._capture.stacks[stack] if a]
        at = next(i for i, frame in enumerate(frames) if frame in work.inside)
        before = frames[at - 1] if at else ""
        return before.startswith((*LOCKS, "schedule"))

    def _runs(self, work: Work, sleeps: Records, inside: Any) -> Iterator[Commit]:
        """Join the sleeps of a thread in one call to a commit, if no other sleep is between them.

        Args:
            work: What is done.
            sleeps: Sleeps of one thread, in time order.
            inside: For each sleep, whether it is in the work.
        """
        calls = sleeps["call_ns"]
        goes_on = inside[1:] & inside[:-1] & (calls[1:] == calls[:-1])
        first = np.flatnonzero(inside & ~np.append(False, goes_on))
        last = np.flatnonzero(inside & ~np.append(goes_on, False))
        for a, b in zip(first.tolist(), last.tolist(), strict=True):
            begin, woken = int(sleeps["out_ns"][a]), None
            if a and work.thread and self._comm(sleeps[a]).startswith(work.thread):
                woken = sleeps[a - 1]
                begin = int(woken["in_ns"])
            yield self._commit(work.kind, sleeps[a], woken, begin, int(sleeps["in_ns"][b]))

    def _jfs(self) -> Iterator[Commit]:
        waiting = np.isin(self._switches["stack"], self._capture.stacks_with(JFS_WAIT))
        waits = self._switches[waiting & (self._switches["state"] == BLOCKED)]
        waits = waits[np.argsort(waits["wake_ns"], kind="stable")]
        apart = np.diff(waits["wake_ns"].astype(np.int64)) > TOGETHER_NS
        before = 0
        for group in np.split(waits, np.flatnonzero(apart) + 1):
            if len(group):
                first = group[np.argmin(group["out_ns"])]
                begin, end = max(before, int(first["out_ns"])), int(group["wake_ns"][-1])
                before = end
                yield self._commit(JFS_GROUP, first, None, begin, end)

    def _commit(
        self, kind: str, sleep: np.void, woken: np.void | None, begin: int, end: int
    ) -> Commit:
        return {
            "ts_ns": begin,
            "dur_ns": end - begin,
            "kind": kind,
            "tid": int(sleep["tid"]),
            "comm": self._comm(sleep),
            **(self._by_waker(woken) if woken is not None else self._by_itself(sleep)),
        }

    def _comm(self, sleep: np.void) -> bytes:
        return self._comms.get(int(sleep["tid"]), b"")

    def _by_itself(self, sleep: np.void) -> Commit:
        (seq,) = self._calls.seq(sleep["tid"][None], sleep["call_ns"][None]).tolist()
        return {
            "trigger": self._askers.kind(sleep, seq),
            "trigger_pid": int(sleep["pid"]),
            "trigger_tid": int(sleep["tid"]),
            "trigger_seq": seq if seq >= 0 else None,
            "trigger_comm": self._comm(sleep),
            "trigger_stack_id": int(sleep["stack"]) or None,
        }

    def _by_waker(self, sleep: np.void) -> Commit:
        """Return the thread that ended the sleep as trigger; an interrupt counts as timer."""
        if WAKERS[sleep["waker"]] != "task":
            return {"trigger": "timer"}
        (seq,) = self._calls.seq(sleep["waker_tid"][None], sleep["waker_call_ns"][None]).tolist()
        return {
            "trigger": "call" if seq >= 0 else "other",
            "trigger_pid": int(sleep["waker_pid"]),
            "trigger_tid": int(sleep["waker_tid"]),
            "trigger_seq": seq if seq >= 0 else None,
            "trigger_comm": bytes(sleep["waker_comm"]),
        }
