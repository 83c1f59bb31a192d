"""The machine that a replay runs on: one that was booted for it says so itself."""

import json
from pathlib import Path
from typing import Any

FACTS = Path("/run/spoolscope-vm/machine.json")
"""Written by the lab's machine when it starts."""


def guest_facts() -> dict[str, Any] | None:
    """Return series and release of the kernel, accelerator, host ... of a lab's machine.

    None: this is no such machine.
    """
    try:
        told: dict[str, Any] = json.loads(FACTS.read_text())
    except FileNotFoundError:
        return None
    return told
