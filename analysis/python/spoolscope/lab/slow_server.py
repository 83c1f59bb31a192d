"""A slow FUSE server with a directory of invented files, named 0, 1, ..., by the raw protocol.

Run as ``slow_server.py MOUNT DELAY_MS LOG``, without the package; it mounts, prints "ready", serves
until its standard input ends, and unmounts. It delays each answer to a lookup or a read, and logs
the actual delay.
"""

import ctypes
import errno
import os
import struct
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TextIO

FORGET, BATCH_FORGET, INTERRUPT = 2, 42, 36
LOOKUP, GETATTR, OPEN, READ, INIT, OPENDIR = 1, 3, 14, 15, 26, 27
RELEASE, FLUSH, RELEASEDIR = 18, 25, 29
SIZE = 100_000
FOREVER_S = 1000
MNT_DETACH = 2
libc = ctypes.CDLL(None, use_errno=True)


def attributes(node: int) -> bytes:
    """Return the attributes of the directory (1) or of a file."""
    mode, size = (0o040755, 4096) if node == 1 else (0o100644, SIZE)
    return struct.pack("=6Q10I", node, size, 8, 0, 0, 0, 0, 0, 0, mode, 1, 0, 0, 0, 4096, 0)


def answer(opcode: int, node: int, body: bytes) -> bytes | int:
    """Return the body of the answer; a number is an error."""
    if opcode == INIT:
        return struct.pack("=4I2H2I2H8I", 7, 31, 0, 0, 12, 9, 65536, 1, 16, 0, *[0] * 8)
    if opcode == LOOKUP:
        if not (name := body.rstrip(b"\0")).isdigit():
            return errno.ENOENT
        found = 2 + int(name)
        return struct.pack("=4Q2I", found, 0, FOREVER_S, FOREVER_S, 0, 0) + attributes(found)
    if opcode == GETATTR:
        return struct.pack("=Q2I", FOREVER_S, 0, 0) + attributes(node)
    if opcode in (OPEN, OPENDIR):
        return struct.pack("=Q2I", 0, 0, 0)
    if opcode == READ:
        _, offset, size = struct.unpack_from("=2QI", body)
        return bytes(max(0, min(size, SIZE - offset)))
    if opcode in (RELEASE, FLUSH, RELEASEDIR):
        return b""
    return errno.ENOSYS


def serve(device: int, delay_s: float, log: TextIO) -> None:
    """Answer requests until the filesystem is unmounted."""
    while True:
        try:
            request = os.read(device, 1 << 17)
        except OSError:
            return
        _, opcode, unique, node = struct.unpack_from("=2I2Q", request)
        if opcode in (FORGET, BATCH_FORGET, INTERRUPT):
            continue
        said = answer(opcode, node, request[40:])
        body, error = (b"", -said) if isinstance(said, int) else (said, 0)
        if opcode in (LOOKUP, READ):
            begin = time.monotonic_ns()
            time.sleep(delay_s)
            log.write(f"{opcode} {time.monotonic_ns() - begin}\n")
            log.flush()
        os.write(device, struct.pack("=IiQ", 16 + len(body), error, unique) + body)


def main() -> None:
    """Mount, serve, and unmount at the end of the standard input."""
    mount, delay_ms, log = sys.argv[1:]
    device = os.open("/dev/fuse", os.O_RDWR)
    options = f"fd={device},rootmode=40000,user_id=0,group_id=0".encode()
    if libc.mount(b"slow_fuse", mount.encode(), b"fuse.slow", 0, options):
        raise OSError(ctypes.get_errno(), "cannot mount")
    with Path(log).open("w") as out:
        serving = (device, int(delay_ms) / 1000, out)
        threading.Thread(target=serve, args=serving, daemon=True).start()
        sys.stdout.write("ready\n")
        sys.stdout.flush()
        try:
            sys.stdin.read()
        finally:
            libc.umount2(mount.encode(), MNT_DETACH)


@contextmanager
def serving(mount: Path, delay_ms: int, log: Path) -> Iterator[int]:
    """Run a server that serves ``mount``, which is made; yield its process id."""
    mount.mkdir()
    words = [sys.executable, __file__, str(mount), str(delay_ms), str(log)]
    server = subprocess.Popen(words, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
    try:
        if server.stdout is None or server.stdout.readline() != "ready\n":
            raise OSError("the slow server did not start")
        yield server.pid
    finally:
        server.communicate(timeout=10)


if __name__ == "__main__":
    main()
