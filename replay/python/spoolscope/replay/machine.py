"""The machine that a replay runs on: one that was booted for it states so in a file."""

import json
from pathlib import Path
from typing import Any

FACTS = Path("/run/spoolscope-vm/machine.json")
"""Written by the lab's machine when it starts."""

# Factors by which a run takes longer in an emulated machine, and in one whose clock counts
# instructions, by the clock of the host.
EMULATED, COUNTED = 4.0, 8.0


def guest_facts() -> dict[str, Any] | None:
    """Return series and release of the kernel, accelerator, host ... of a lab's machine.

    None is returned if this is no such machine.
    """
    try:
        measured: dict[str, Any] = json.loads(FACTS.read_text())
    except FileNotFoundError:
        return None
    return measured


def slowness() -> float:
    """Return the approximate factor by which a run takes longer here than elsewhere."""
    facts = guest_facts() or {}
    if facts.get("accelerator") != "tcg":
        return 1.0
    return COUNTED if facts["icount"] else EMULATED
