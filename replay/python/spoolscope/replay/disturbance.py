"""Disturbed runs, in which other work used the machine: they are recognized, and made again.

A run is disturbed by CPU time that the host of a virtual machine took (steal), and by CPU time of
programs outside the replay. Kernel threads do not count: they work for the replay, too.
"""

import os
import resource
import time
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from spoolscope.replay.lifetime import kernel_threads_ns

STEAL, FOREIGN = 0.02, 0.10
"""Shares of all CPUs' time above which a run is disturbed."""
SHORTEST_NS = 1_000_000_000
"""Shorter runs are not judged: the kernel's ticks are too coarse."""


@dataclass(frozen=True)
class Reading:
    """Times since the machine started, ns.

    Attributes:
        all_ns: Time of all CPUs; programs_ns: its part for programs, and the kernel for them.
        steal_ns: Part of it that other machines of the host had.
        own_ns: CPU time of this process, and of its children that have ended.
        kernel_ns: CPU time of each kernel thread, by thread id.
        pressure_us: Time in which some task waited, by resource, where the kernel has PSI.
    """

    all_ns: int
    programs_ns: int
    steal_ns: int
    own_ns: int
    kernel_ns: dict[int, int]
    pressure_us: dict[str, int]

    @classmethod
    def now(cls) -> "Reading":
        """Read the present times."""
        tick = 1_000_000_000 // os.sysconf("SC_CLK_TCK")
        with Path("/proc/stat").open() as file:
            user, nice, system, *rest = (int(word) * tick for word in file.readline().split()[1:9])
        own = [resource.getrusage(of) for of in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN)]
        return cls(
            all_ns=user + nice + system + sum(rest),
            programs_ns=user + nice + system,
            steal_ns=rest[-1],
            own_ns=round(sum(spent.ru_utime + spent.ru_stime for spent in own) * 1e9),
            kernel_ns=kernel_threads_ns(),
            pressure_us=_pressure_us(),
        )


def _pressure_us() -> dict[str, int]:
    found = {}
    for name in ("cpu", "io", "memory"):
        with suppress(OSError, ValueError, IndexError):
            some = Path(f"/proc/pressure/{name}").read_text().splitlines()[0]
            found[name] = int(some.rpartition("total=")[2])
    return found


def disturbance(before: Reading, after: Reading, took_ns: int) -> dict[str, Any]:
    """Return the entry of run.json: shares of the CPUs' time, and why the run is disturbed.

    Args:
        before: The machine's times at the begin.
        after: Those at the end.
        took_ns: Time between them.
    """
    whole = max(after.all_ns - before.all_ns, 1)
    kernel = sum(max(ns - before.kernel_ns.get(one, 0), 0) for one, ns in after.kernel_ns.items())
    others = after.programs_ns - before.programs_ns - (after.own_ns - before.own_ns) - kernel
    steal, foreign = (after.steal_ns - before.steal_ns) / whole, max(others, 0) / whole
    why = []
    if took_ns >= SHORTEST_NS and steal > STEAL:
        why.append(f"the host took {100 * steal:.1f} % of the CPUs' time")
    if took_ns >= SHORTEST_NS and foreign > FOREIGN:
        why.append(f"programs outside the replay had {100 * foreign:.0f} % of the CPUs' time")
    pressure = {
        name: (us - before.pressure_us.get(name, us)) * 1000 / max(took_ns, 1)
        for name, us in after.pressure_us.items()
    }
    return {"steal": steal, "foreign": foreign, "some_waited": pressure, "why": why}


class Watch:
    """Reads the machine's times when it is made, and at the first call of ``end``."""

    def __init__(self) -> None:
        self._before, self._began = Reading.now(), time.monotonic_ns()
        self._found: dict[str, Any] | None = None

    def end(self) -> dict[str, Any]:
        """Return the disturbance until the first call of this method."""
        if self._found is None:
            self._found = disturbance(
                self._before, Reading.now(), time.monotonic_ns() - self._began
            )
        return self._found
