"""The machine that a replay runs on: one that was booted for it says so itself."""

import json
from pathlib import Path
from typing import Any

FACTS = Path("/run/spoolscope-vm/machine.json")
"""Written by the lab's machine when it starts."""

# A run in an emulated machine, and in one whose clock counts instructions, takes as many times as
# long, by the clock of the machine that emulates.
EMULATED, COUNTED = 4.0, 8.0


def guest_facts() -> dict[str, Any] | None:
    """Return series and release of the kernel, accelerator, host ... of a lab's machine.

    None: this is no such machine.
    """
    try:
        told: dict[str, Any] = json.loads(FACTS.read_text())
    except FileNotFoundError:
        return None
    return told


def slowness() -> float:
    """Return about how many times as long as elsewhere a run takes here."""
    facts = guest_facts() or {}
    if facts.get("accelerator") != "tcg":
        return 1.0
    return COUNTED if facts["icount"] else EMULATED
