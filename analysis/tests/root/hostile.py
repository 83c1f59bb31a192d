"""Use a spool with names that control a terminal: hostile.py MOUNT [SECONDS]."""

# ruff: noqa: PTH103, PTH104, PTH108, PTH116, PTH211
import contextlib
import os
import sys
import time
from pathlib import Path

COMM = b"\x1b]0;titled\x07"  # not the name of a file, as that would be hidden
NAMES = (
    b"\x1b]0;owned\x07",
    b"carriage\rreturn",
    b"line\nfeed\ttab",
    "\u202elive\u2066.txt".encode(),
    b"stray\xff\x9b2J",
    b"\x7f\xc2\x9b31m",
    "inv\u200bisi\u2060ble\ufeff".encode(),
)


def use(mount: bytes, n: int) -> None:
    box = mount + b"/" + NAMES[n % len(NAMES)]
    os.makedirs(box, exist_ok=True)
    for name in NAMES:
        file = os.open(box + b"/" + name, os.O_RDWR | os.O_CREAT, 0o600)
        os.write(file, b"x" * 100)
        os.fsync(file)
        os.close(file)
        os.rename(box + b"/" + name, box + b"/" + name + b".")
        with contextlib.suppress(FileNotFoundError):
            os.stat(box + b"/none" + name)
        os.setxattr(box + b"/" + name + b".", b"user." + name.replace(b"\n", b""), name)
        os.unlink(box + b"/" + name + b".")
        os.symlink(name, box + b"/" + name)
        os.unlink(box + b"/" + name)


def main() -> None:
    mount, seconds = os.fsencode(sys.argv[1]), float(sys.argv[2]) if len(sys.argv) > 2 else 0
    Path("/proc/self/comm").write_bytes(COMM)
    began, n = time.monotonic(), 0
    while n < 2 * len(NAMES) or time.monotonic() - began < seconds:
        use(mount, n)
        n += 1


if __name__ == "__main__":
    main()
