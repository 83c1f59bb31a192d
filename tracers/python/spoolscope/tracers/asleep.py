"""Threads that sleep in the kernel during a whole recording.

A call that began before the recording is in no table. If it hangs, that is what the recording was
made for: so such threads are named beside it.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

_MOST = 50_000  # threads that are looked at; it takes some 20 us for each
_KERNEL_THREAD = 0x200000  # PF_KTHREAD


@dataclass(frozen=True)
class Sleeper:
    """A thread of a program in uninterruptible sleep.

    Attributes:
        pid: Its process.
        tid: Its number.
        comm: Its name.
        frames: Functions of its stack, the innermost first; empty if they cannot be read.
        switches: How often it has gone to sleep.
    """

    pid: int
    tid: int
    comm: str
    frames: tuple[str, ...]
    switches: int


def sleepers() -> dict[int, Sleeper]:
    """Return the threads of programs that sleep uninterruptibly now, by tid."""
    return {one.tid: one for task in _tasks() if (one := _sleeper(task)) is not None}


def still(before: Mapping[int, Sleeper]) -> list[Sleeper]:
    """Return those that have not run since."""
    found = []
    for one in before.values():
        now = _sleeper(Path(f"/proc/{one.pid}/task/{one.tid}"))
        if now is not None and (now.comm, now.switches) == (one.comm, one.switches):
            found.append(now)
    return found


def _tasks() -> Iterator[Path]:
    left = _MOST
    for process in Path("/proc").iterdir():
        if not process.name.isdigit():
            continue
        try:
            tasks = list((process / "task").iterdir())
        except OSError:  # it has ended
            continue
        yield from tasks[:left]
        left -= len(tasks)
        if left <= 0:
            return


def _sleeper(task: Path) -> Sleeper | None:
    try:
        stat = (task / "stat").read_bytes()
        comm, _, rest = stat.partition(b"(")[2].rpartition(b") ")
        words = rest.split()
        if words[0] != b"D" or int(words[6]) & _KERNEL_THREAD:
            return None
        switches = next(
            int(line.split()[1])
            for line in (task / "status").read_text(errors="replace").splitlines()
            if line.startswith("voluntary_ctxt_switches")
        )
    except (OSError, IndexError, ValueError, StopIteration):  # it has ended
        return None
    pid = int(task.parts[2])
    return Sleeper(pid, int(task.name), comm.decode(errors="replace"), _frames(task), switches)


def _frames(task: Path) -> tuple[str, ...]:
    """Return the stack: lines as ``[<0>] function+0x1/0x2``."""
    try:
        lines = (task / "stack").read_text().splitlines()
    except OSError:
        return ()
    return tuple(line.split()[1].partition("+")[0] for line in lines if len(line.split()) > 1)
