"""The slow disk: a file with delays, or with times of a device model, behind a loop device."""

import json
import mmap
import os
import statistics
import subprocess
import time
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Self

from spoolscope.traces import native_failures
from spoolscope.traces.devices import DeviceModel
from spoolscope.traces.errors import SpoolscopeError
from spoolscope.traces.native import find_binary

END = 1 << 62
"""Past the end of every disk, bytes."""
CLOSING_S = 10.0
_PAGE, _READS = 4096, 200


@dataclass(frozen=True)
class Delayed:
    """One request that the disk delayed, by the disk's own log.

    Attributes:
        kind: read, write or flush.
        offset: Its offset, bytes; likewise ``size``. Both are 0 for a flush.
        begin_ns: Arrival, since the epoch; ``end_ns`` is the time of the answer.
    """

    kind: str
    offset: int
    size: int
    begin_ns: int
    end_ns: int


class SlowDisk:
    """A running slow disk over an image; as a context manager it ends with the block."""

    def __init__(self, image: Path, place: Path, model: DeviceModel | None = None) -> None:
        """Start the disk.

        Args:
            image: File with the contents; its size is that of the disk.
            place: Directory in which ``disk``, the file for the loop device, appears.
            model: Device model for :meth:`play`.

        Raises:
            SpoolscopeError: no FUSE, or no right to mount.
        """
        if not Path("/dev/fuse").exists():
            raise SpoolscopeError(
                "no slow disk without FUSE (/dev/fuse)", remedy="load the kernel module fuse"
            )
        self.path = place / "disk"
        self.path.touch()
        self._log = place / "disk.log"
        self._process = subprocess.Popen(
            [
                find_binary("spoolscope-slowdisk"),
                image,
                self.path,
                self._log,
                *(() if model is None else ("--model", model.json)),
            ],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            env=native_failures.environment(),
        )
        self._expect("ready")
        self._come_first()

    def delay(self, kind: str, delay_ns: int, start: int = 0, end: int = END) -> None:
        """Delay requests of a kind that touch the bytes from ``start`` to ``end``, exclusive.

        It holds from now on; of several delays that match a request, the latest added one holds.
        """
        self._tell(f"{kind} {start} {end} {delay_ns}")

    def clear(self) -> None:
        """Delay nothing from now on."""
        self._tell("clear")

    def play(self, device: Path) -> None:
        """Give requests the times of the device model from now on.

        Args:
            device: The loop device over :attr:`path`; the time of a request through it without the
                model is measured first.
        """
        self.rest()
        self._tell(f"path {_quickest_read_ns(device)}")
        self._tell("model on")

    def rest(self) -> None:
        """Stop the device model's times from now on."""
        self._tell("model off")

    def delayed(self) -> list[Delayed]:
        """Return the requests that were delayed so far, in the order of their answers."""
        lines = (line.split() for line in self._log.read_text().splitlines())
        return [Delayed(kind, *map(int, numbers)) for kind, *numbers in lines]

    def close(self) -> None:
        """End the disk. Further use of it gives I/O errors: unmount first."""
        if self._process.stdin is not None:
            self._process.stdin.close()
        try:
            self._process.wait(CLOSING_S)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()
        for pipe in (self._process.stdout, self._process.stderr):
            if pipe is not None:
                pipe.close()
        subprocess.run(["umount", "--lazy", self.path], capture_output=True, check=False)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_error: object) -> None:
        self.close()

    def _come_first(self) -> None:
        """Get real-time priority, if allowed, as a real disk does not wait for a CPU."""
        with suppress(OSError):
            for thread in Path(f"/proc/{self._process.pid}/task").iterdir():
                os.sched_setscheduler(int(thread.name), os.SCHED_FIFO, os.sched_param(1))

    def _tell(self, line: str) -> None:
        if self._process.stdin is None:  # pragma: no cover - it is a pipe
            raise ValueError("the disk has no input")
        self._process.stdin.write(f"{line}\n")
        self._process.stdin.flush()
        self._expect("ok")

    def _expect(self, answer: str) -> None:
        said = self._process.stdout.readline().strip() if self._process.stdout else ""
        if said == answer:
            return
        name, remedy = "spoolscope-slowdisk", "run as root, with FUSE"
        if said:
            error = native_failures.of_answer(name, json.loads(said), remedy=remedy)
        else:
            words = self._process.stderr.read() if self._process.stderr else ""
            status = self._process.wait()
            error = native_failures.of_process(name, status, words, remedy=remedy)
        self.close()
        raise SpoolscopeError(f"the slow disk failed: {error.message}", remedy=error.remedy)


def _quickest_read_ns(device: Path) -> int:
    """Return the time of a read of 4 KiB past the page cache: the median of many."""
    times = []
    descriptor = os.open(device, os.O_RDONLY | os.O_DIRECT)
    try:
        with mmap.mmap(-1, _PAGE) as page:
            for _ in range(_READS):
                begin = time.monotonic_ns()
                os.preadv(descriptor, [page], 0)
                times.append(time.monotonic_ns() - begin)
    finally:
        os.close(descriptor)
    return int(statistics.median(times))
