"""Take layers below a filesystem down in a machine, with the programs that made them.

The program prints as JSON how often the last program of each layer was tried: while the device was
open until the second time, and after the layer had been removed by hand. It also prints what is
left.
"""

import json
import time
from collections.abc import Callable, Sequence
from io import BufferedReader
from pathlib import Path
from typing import Any
from unittest.mock import patch

from spoolscope.replay.candidates import parse
from spoolscope.replay.commands import carried_out
from spoolscope.replay.layers import Command
from spoolscope.replay.storage import on_images
from spoolscope.replay.targets import SMALLEST_BYTES
from spoolscope.traces.errors import SpoolscopeError

PLACE = Path("/run/spoolscope-vm/scratch")
ENDS_WITHIN_S = 30
# One for each program that takes layers down; mdadm stops an array that is gone.
REFUSED_IF_GONE = ("ext4-lvm", "ext4-dm-crypt")
NAMES = (*REFUSED_IF_GONE, "ext4-md-raid1")


class Taking:
    """Carries commands out and counts them; the device is open until the second one."""

    def __init__(self) -> None:
        self.n = 0
        self.by_hand = False
        self.device: BufferedReader | None = None

    def __call__(self, asked: Sequence[Command]) -> list[dict[str, Any]]:
        if self.by_hand:
            carried_out(asked)
        self.n += 1
        if self.n > 1 and self.device is not None:
            self.device.close()
        return carried_out(asked)


def held(name: str, taking: Taking) -> int:
    """Return the attempts to take layers down while their device is open."""
    with on_images(parse(name), PLACE, SMALLEST_BYTES) as storage:
        taking.n, taking.device = 0, storage.main.open("rb")
    return taking.n


def gone(name: str, taking: Taking) -> tuple[int, str]:
    """Return the attempts to take layers down that are gone, and the error."""
    try:
        with on_images(parse(name), PLACE, SMALLEST_BYTES):
            taking.n, taking.by_hand = 0, True
    except SpoolscopeError as error:
        return taking.n, error.message
    return taking.n, ""


def left() -> list[str]:
    """Return block devices that stay; the kernel frees them a moment after their last use."""
    until = time.monotonic() + ENDS_WITHIN_S
    while True:
        files = [*Path("/sys/block").glob("dm-*"), *Path("/sys/block").glob("md*")]
        files += Path("/sys/block").glob("loop*/loop/backing_file")
        if not files or time.monotonic() > until:
            return [str(file) for file in files]
        time.sleep(0.1)


def taken_down(name: str, how: Callable[[str, Taking], Any]) -> Any:
    with patch("spoolscope.replay.stack.carried_out", taking := Taking()):
        return how(name, taking)


if __name__ == "__main__":
    told = {
        "held": {name: taken_down(name, held) for name in NAMES},
        "gone": {name: taken_down(name, gone) for name in REFUSED_IF_GONE},
    }
    print(json.dumps(told | {"left": left()}), flush=True)
