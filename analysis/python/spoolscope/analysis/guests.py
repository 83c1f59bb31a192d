"""Machines that a replay booted: what their runs are called, and what their times are worth."""

from collections.abc import Iterable, Mapping
from typing import Any

Row = Mapping[str, Any]
EMULATED = (
    "The runs were made in an emulated machine, where what needs the CPU takes three to ten times "
    "as long as on real hardware: its share of the time is too large."
)
COUNTED = (
    "The runs were made in an emulated machine whose clock counts instructions: its CPU times are "
    "exact, and those of no hardware."
)


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
    name, booted = str(row["candidate"]), series(row)
    # A candidate on a device model has an "@" of its own.
    return name.replace(f"@{booted}", "", 1) if booted else name


def tell_kernels_apart(rows: Iterable[dict[str, Any]]) -> None:
    """Make each kernel's another candidate where runs of several kernels come together."""
    rows = list(rows)
    kernels = {kernel for row in rows if (kernel := row.get("kernel"))}
    for row in rows if len(kernels) > 1 else ():
        label = f"@{series(row) or row.get('kernel')}"
        if label not in row["candidate"]:
            row["candidate"] += label


def weaknesses(rows: Iterable[Row]) -> list[str]:
    """Return a sentence on the times of machines that are emulated."""
    used = {accelerator(row) for row in rows}
    told = {"tcg": EMULATED, "tcg with --icount": COUNTED}
    return [sentence for name, sentence in told.items() if name in used]
