"""The throughput of devices over time."""

import threading
import time
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path

from spoolscope.replay.lifetime import Counters

EVERY_S = 0.25


@dataclass(frozen=True)
class Sample:
    """Bytes transferred by devices since the first sample.

    Attributes:
        at_ns: Time since the first sample.
        read_bytes: Sum over the devices; likewise ``written_bytes``.
    """

    at_ns: int
    read_bytes: int
    written_bytes: int


@contextmanager
def sampled(devices: Sequence[Path], every_s: float = EVERY_S) -> Iterator[list[Sample]]:
    """Sample the counters of devices into the list until the block ends.

    The devices are kept open: a loop device, with its counters, would vanish with the mount.
    """
    samples: list[Sample] = []
    with ExitStack() as held:
        for device in devices:
            held.enter_context(device.open("rb"))
        begin, first = time.monotonic_ns(), _now(devices)
        over = threading.Event()

        def look() -> None:
            read, written = (now - then for now, then in zip(_now(devices), first, strict=True))
            samples.append(Sample(time.monotonic_ns() - begin, read, written))

        def watch() -> None:
            look()
            while not over.wait(every_s):
                look()

        watcher = threading.Thread(target=watch, daemon=True)
        watcher.start()
        try:
            yield samples
        finally:
            over.set()
            watcher.join()
            look()


def _now(devices: Sequence[Path]) -> tuple[int, int]:
    counters = [Counters.now(device) for device in devices]
    return sum(one.read_bytes for one in counters), sum(one.written_bytes for one in counters)
