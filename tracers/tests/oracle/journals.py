"""Writers whose calls are known, and the kernel's own counters of a journal."""

import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

TRACING = Path("/sys/kernel/tracing")

# argv: directory, files per writer, writers, bytes; each file is written, synced and renamed. The
# last renames are synced, too, else they would be committed at some time after the program's end.
WRITERS = """
import ctypes, os, sys
place, files, writers, size = sys.argv[1], *map(int, sys.argv[2:])
for sub in ("tmp", "new"):
    os.makedirs(f"{place}/{sub}", exist_ok=True)
kids = []
for who in range(writers):
    if not (kid := os.fork()):
        for i in range(files):
            fd = os.open(f"{place}/tmp/{who}.{i}", os.O_CREAT | os.O_WRONLY)
            os.write(fd, bytes(size))
            os.fsync(fd)
            os.close(fd)
            os.rename(f"{place}/tmp/{who}.{i}", f"{place}/new/{who}.{i}")
        os._exit(0)
    kids.append(kid)
assert [os.waitpid(kid, 0)[1] for kid in kids] == [0] * writers
assert ctypes.CDLL(None).syncfs(os.open(place, os.O_RDONLY)) == 0
"""


def device_of(mount: Path) -> tuple[str, int]:
    """Return the kernel's name of the disk, and its number as the kernel packs it."""
    dev = mount.stat().st_dev
    link = Path(f"/sys/dev/block/{os.major(dev)}:{os.minor(dev)}").resolve()
    return link.name, os.major(dev) << 20 | os.minor(dev)


@contextmanager
def ftrace_counts(events: dict[str, str]) -> Iterator[dict[str, int]]:
    """Count events ("group/name": filter); the counts are filled in when the block ends."""
    counts: dict[str, int] = {}
    with ftrace(events) as lines:
        yield counts
    for event in events:
        counts[event] = sum(f" {event.split('/')[1]}: " in line for line in lines)


@contextmanager
def ftrace(events: dict[str, str]) -> Iterator[list[str]]:
    """Record events in a separate buffer, times by CLOCK_MONOTONIC; filled in at the end."""
    lines: list[str] = []
    place = TRACING / "instances" / f"evidence-{os.getpid()}"
    place.mkdir()
    try:
        # A new buffer has the options of the global one, which other programs may have changed.
        (place / "options" / "bin").write_text("0")
        (place / "options" / "context-info").write_text("1")
        (place / "trace_clock").write_text("mono")
        for event, condition in events.items():
            (place / "events" / event / "filter").write_text(condition)
            (place / "events" / event / "enable").write_text("1")
        yield lines
        (place / "tracing_on").write_text("0")
        lines += (place / "trace").read_text().splitlines()
    finally:
        place.rmdir()
