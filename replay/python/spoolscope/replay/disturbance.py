"""Disturbed runs, in which others had the machine: they are told apart, and made again.

Time that the host of a virtual machine took (steal), and time that programs had which are no part
of the replay. Kernel threads work for it, too, and are not among these.
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
"""Shares of all CPUs' time from which on a run is disturbed."""
SHORTEST_NS = 1_000_000_000
"""In less time the kernel's ticks tell too little."""


@dataclass(frozen=True)
class Reading:
    """Times since the machine started, ns.

    Attributes:
        all_ns: Of all CPUs; programs_ns that in which they ran programs or the kernel for them.
        steal_ns: That in which other machines of the host had them.
        own_ns: Of this process, and of those it started that have ended.
        kernel_ns: Of each kernel thread.
        pressure_us: In which some task waited, by resource (PSI), where the kernel tells.
    """

    all_ns: int
    programs_ns: int
    steal_ns: int
    own_ns: int
    kernel_ns: dict[int, int]
    pressure_us: dict[str, int]

    @classmethod
    def now(cls) -> "Reading":
        """Read them."""
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
    """Return what run.json has of it: shares of the CPUs' time, and why the run is disturbed.

    Args:
        before: The machine at the begin.
        after: At the end.
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
    """Reads the machine at its begin, and once at the end of what is watched."""

    def __init__(self) -> None:
        self._before, self._began = Reading.now(), time.monotonic_ns()
        self._found: dict[str, Any] | None = None

    def end(self) -> dict[str, Any]:
        """Return what happened until this was asked for the first time."""
        if self._found is None:
            self._found = disturbance(
                self._before, Reading.now(), time.monotonic_ns() - self._began
            )
        return self._found
