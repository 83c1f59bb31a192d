"""Files that a command opened in places where others may plant links, found by strace."""

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

SPOOLSCOPE = [sys.executable, "-m", "spoolscope.cli.main"]
_OPENED = re.compile(r'(?:openat\([^"]*|open\(|creat\()"([^"]+)"[^=]*')


def planted(shared: Path, victim: Path, *names: str) -> None:
    """Plant links to a file of this user in a directory where everybody may make them."""
    victim.write_text("precious")
    for name in names:
        (shared / name).symlink_to(victim)


def traced(place: Path, words: list[str]) -> "subprocess.CompletedProcess[str]":
    """Run spoolscope under strace, whose log is ``place / "log"``."""
    strace = shutil.which("strace")
    assert strace, "strace is missing: 'make setup' installs it"
    tracing = [strace, "-f", "-qq", "-s", "4096", "-e", "trace=open,openat,creat"]
    places = {"XDG_CONFIG_HOME": str(place / "config"), "XDG_STATE_HOME": str(place / "state")}
    return subprocess.run(
        [*tracing, "-o", str(place / "log"), *SPOOLSCOPE, *words],
        capture_output=True,
        text=True,
        env=os.environ | places,
        cwd=place,
    )


def opened_anew(place: Path, shared: Path) -> list[str]:
    """Return the calls that may have followed a link of another user in ``shared``.

    These are calls that may make or empty a file there and are not exclusive.
    """
    found = []
    for line in (place / "log").read_text(errors="replace").splitlines():
        match = _OPENED.search(line)
        if match is None or not ("O_CREAT" in line or "creat(" in line or "O_TRUNC" in line):
            continue
        if (place / match[1]).parent.resolve() == shared and "O_EXCL" not in line:
            found.append(line)
    return found
