"""The program blktrace, used where its files in debugfs are accessible."""

import os
import re
import shutil
import signal
import subprocess
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import IO

from spoolscope.traces.errors import SpoolscopeError

_START_S = 10.0
_SETTLED_S = 0.3
_POLL_S = 0.02


class BlktraceRefusedError(Exception):
    """blktrace cannot be used here, for the reason in the message."""


@contextmanager
def tracing_by_blktrace(disks: Sequence[str], output: Path) -> Iterator[Callable[[], int]]:
    """Write the block events of some disks to files while the block runs.

    Args:
        disks: Kernel names, as below /sys/block.
        output: Directory for blktrace's files, DISK.blktrace.CPU.

    Yields:
        A function that returns, after the block, how many events blktrace dropped.

    Raises:
        BlktraceRefusedError: there is no such program, or it could not begin.
        SpoolscopeError: blktrace failed later.
    """
    missing = [p for p in ("blktrace", "setpriv") if not shutil.which(p)]
    if missing:
        raise BlktraceRefusedError(f"no program {missing[0]}")
    # If this process is killed, blktrace ends in order and leaves no setting behind.
    command = ["setpriv", "--pdeathsig", "INT", "blktrace", "-b", "1024", "-n", "8"]
    for disk in disks:
        command += ["-d", f"/dev/{disk}"]
    dropped = 0
    with tempfile.TemporaryFile() as said:
        process = subprocess.Popen(
            [*command, "-D", str(output)], stdout=said, stderr=subprocess.STDOUT
        )
        try:
            _wait_until_begun(process, disks, said)
            yield lambda: dropped
        finally:
            if process.poll() is None:
                process.send_signal(signal.SIGINT)
                process.wait()
        words = _read(said)
        if process.returncode:
            raise SpoolscopeError(
                f"blktrace failed: {_first_line(words)}", remedy="leave out --blktrace"
            )
        dropped = sum(map(int, re.findall(r"Total: .*\(dropped (\d+)\)", words)))


def _wait_until_begun(
    process: "subprocess.Popen[bytes]", disks: Sequence[str], said: IO[bytes]
) -> None:
    """Wait until blktrace has a thread for every CPU and has printed no error for a while.

    Its files do not show that it has begun: they stay empty until a buffer is full.
    """
    enables = [Path(f"/sys/block/{disk}/trace/enable") for disk in disks]
    threads = len(os.sched_getaffinity(0)) + 1
    deadline = time.monotonic() + _START_S
    since = None
    while since is None or time.monotonic() - since < _SETTLED_S:
        if process.poll() is not None or _read(said) or time.monotonic() > deadline:
            raise BlktraceRefusedError(_first_line(_read(said)) or "blktrace did not begin")
        begun = all(enable.read_text().strip() == "1" for enable in enables)
        if not begun or len(list(Path(f"/proc/{process.pid}/task").glob("*"))) < threads:
            since = None
        elif since is None:
            since = time.monotonic()
        time.sleep(_POLL_S)


def _read(said: IO[bytes]) -> str:
    # Not read(): blktrace shares the file position.
    return os.pread(said.fileno(), 1 << 20, 0).decode(errors="replace")


def _first_line(text: str) -> str:
    return next(iter(text.strip().splitlines()), "")
