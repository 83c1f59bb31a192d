"""Machines that a replay booted: what their runs are called, and what their times are worth."""

import re
from collections.abc import Iterable, Mapping
from typing import Any

Row = Mapping[str, Any]
EMULATED = (
    "The runs were made in an emulated machine, where what needs the CPU takes three to ten times "
    "as long as on real hardware: its share of the time is too large; --icount compares CPU times "
    "exactly."
)
COUNTED = (
    "The runs were made in an emulated machine whose clock counts instructions, 1 ns each: what is "
    "compared is the CPU time of calls, exact, and that of no hardware; disks take no time there."
)
OF_PROCESSES = frozenset(
    {"clone", "clone3", "fork", "vfork", "execve", "execveat", "exit", "exit_group"}
)
"""Calls that a replayer makes in its own way: what they cost on a CPU is not what they did."""


def accelerator(row: Row) -> str:
    """Return what ran a run's instructions in a machine booted for it; empty if none was."""
    machine = row.get("machine") or {}
    counted = " with --icount" if machine.get("icount") else ""
    return f"{machine['accelerator']}{counted}" if machine else ""


def series(row: Row) -> str:
    """Return the series of the kernel that was booted, "6.1"; empty if none was."""
    return str((row.get("machine") or {}).get("series", ""))


def base_name(row: Row) -> str:
    """Return a candidate's name without the kernel it was on."""
    # A candidate on a device model has an "@" of its own.
    return str(row["candidate"]).replace(_label(row), "", 1)


def _label(row: Row) -> str:
    return f"@{series(row) or row.get('kernel')}"


def age_of_kernel(row: Row) -> list[int]:
    """Return what a run is sorted by, from the oldest kernel to the newest."""
    return [int(number) for number in re.findall(r"\d+", _label(row))]


def on_newer_kernels(rows: Iterable[Row]) -> list[tuple[str, str]]:
    """Return pairs of candidates: on a newer kernel, and the same one on the oldest kernel."""
    on: dict[str, dict[str, str]] = {}
    for row in sorted(rows, key=age_of_kernel):
        on.setdefault(base_name(row), {})[_label(row)] = str(row["candidate"])
    pairs = []
    for names in on.values():
        oldest, *newer = dict.fromkeys(names.values())
        pairs += [(name, oldest) for name in newer]
    return pairs


def counts_instructions(row: Row) -> bool:
    """Tell whether a run's times are counts of instructions."""
    return bool((row.get("machine") or {}).get("icount"))


def on_cpu(by_syscall: Mapping[str, Mapping[str, int]]) -> dict[str, dict[str, int]]:
    """Return what of {call: {cause: ns}} was on a CPU, without calls that a replayer makes."""
    return {
        call: {"cpu": causes.get("cpu", 0)}
        for call, causes in by_syscall.items()
        if call not in OF_PROCESSES
    }


def tell_kernels_apart(rows: Iterable[dict[str, Any]]) -> None:
    """Make each kernel's another candidate where runs of several kernels come together."""
    rows = list(rows)
    kernels = {kernel for row in rows if (kernel := row.get("kernel"))}
    for row in rows if len(kernels) > 1 else ():
        label = _label(row)
        if label not in row["candidate"]:
            row["candidate"] += label


def weaknesses(rows: Iterable[Row]) -> list[str]:
    """Return a sentence on the times of machines that are emulated."""
    used = {accelerator(row) for row in rows}
    told = {"tcg": EMULATED, "tcg with --icount": COUNTED}
    return [sentence for name, sentence in told.items() if name in used]
