"""Search for the native programs."""

import os
import shutil
from pathlib import Path

from spoolscope.traces.errors import SpoolscopeError

BIN_DIR_VARIABLE = "SPOOLSCOPE_BIN_DIR"


def source_root() -> Path | None:
    """Return the source checkout this package runs from, or None when installed as a wheel."""
    root = Path(__file__).resolve().parents[4]
    return root if (root / "Cargo.toml").is_file() else None


def find_binary(name: str) -> Path:
    """Return the path of a native program, e.g. ``spoolscope-record``.

    It searches, in this order: the directory named by SPOOLSCOPE_BIN_DIR, the installed package,
    the checkout's target/release and target/debug, PATH.

    Raises:
        SpoolscopeError: it is not found; the message lists every place searched.
    """
    places = _directories()
    for place in places:
        candidate = place / name
        if candidate.is_file() and os.access(candidate, os.X_OK):
            return candidate
    if found := shutil.which(name):
        return Path(found)
    searched = ", ".join([*map(str, places), "PATH"])
    if source_root() is None:
        remedy = "install the wheel for this architecture, which 'make wheel' makes from sources"
    else:
        remedy = "run 'make setup'"
    raise SpoolscopeError(
        f"the native program {name} is not installed (searched {searched})",
        remedy=f"{remedy}, or set {BIN_DIR_VARIABLE} to the directory that holds it",
    )


def _directories() -> list[Path]:
    places = []
    if chosen := os.environ.get(BIN_DIR_VARIABLE):
        places.append(Path(chosen))
    places.append(Path(__file__).resolve().parent.parent / "bin")
    if root := source_root():
        places += [root / "target" / "release", root / "target" / "debug"]
    return places
