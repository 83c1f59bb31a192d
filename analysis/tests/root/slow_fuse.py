"""A slow FUSE server with a directory of invented files, by the raw protocol.

Run as ``slow_fuse.py MOUNT DELAY_MS LOG``; it mounts, prints "ready", serves until its standard
input ends, and unmounts. It delays each answer to a lookup or a read, and logs the actual delay.
"""

import ctypes
import errno
import os
import struct
import sys
import threading
import time
from pathlib import Path

FORGET, BATCH_FORGET, INTERRUPT = 2, 42, 36
LOOKUP, GETATTR, OPEN, READ, INIT, OPENDIR = 1, 3, 14, 15, 26, 27
RELEASE, FLUSH, RELEASEDIR = 18, 25, 29
SIZE = 100_000
FOREVER_S = 1000
libc = ctypes.CDLL(None, use_errno=True)


def attributes(node):
    mode, size = (0o040755, 4096) if node == 1 else (0o100644, SIZE)
    return struct.pack("=6Q10I", node, size, 8, 0, 0, 0, 0, 0, 0, mode, 1, 0, 0, 0, 4096, 0)


def answer(opcode, node, body):
    """Return the body of the answer; a number is an error."""
    if opcode == INIT:
        return struct.pack("=4I2H2I2H8I", 7, 31, 0, 0, 12, 9, 65536, 1, 16, 0, *[0] * 8)
    if opcode == LOOKUP:
        found = 2 + int(body.rstrip(b"\0"))
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


def serve(device, delay_s, log):
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


def main():
    mount, delay_ms, log = sys.argv[1:]
    device = os.open("/dev/fuse", os.O_RDWR)
    options = f"fd={device},rootmode=40000,user_id=0,group_id=0".encode()
    if libc.mount(b"slow_fuse", mount.encode(), b"fuse.slow", 0, options):
        raise OSError(ctypes.get_errno(), "cannot mount")
    with Path(log).open("w") as out:
        serving = (device, int(delay_ms) / 1000, out)
        threading.Thread(target=serve, args=serving, daemon=True).start()
        print("ready", flush=True)
        sys.stdin.read()
        libc.umount2(mount.encode(), 2)


main()
