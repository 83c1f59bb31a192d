"""Layers below a filesystem: dm-crypt, LVM and md over loop devices, taken down afterwards."""

import os
import re
import secrets
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path
from typing import Any

from spoolscope.replay import images
from spoolscope.replay.commands import carried_out
from spoolscope.replay.interrupts import undisturbed
from spoolscope.replay.layers import LAYERS, Command
from spoolscope.replay.patience import Patience
from spoolscope.traces.errors import SpoolscopeError
from spoolscope.traces.files import write_file

THIN_PART = 0.85
"""Share of a disk for a thin volume: the pool has its own metadata, and leaves some room."""

RELEASE_S = 10.0
"""Seconds for which a device may be in use after an unmount."""

IN_USE = re.compile(r"\bin use\b|\bbusy\b|exclusive access")
"""Words of LVM; of cryptsetup and mdadm; of mdadm for a device that is mounted elsewhere."""

_STEP = 4 << 20  # sizes of logical volumes are multiples of it


@contextmanager
def stacked(
    layers: Sequence[str], devices: Sequence[Path], place: Path, said: list[dict[str, Any]]
) -> Iterator[Path]:
    """Set up layers over block devices, yield the top one, and take them down in the end.

    Args:
        layers: Names, lowest first; the lowest takes all devices.
        devices: Block devices.
        place: Directory for a key.
        said: List to which the commands and their output are added.

    Raises:
        SpoolscopeError: a program is missing, or refused.
    """
    with ExitStack() as down:
        for number, name in enumerate(layers, 1):
            layer = LAYERS[name]
            values = {
                "name": f"spoolscope-{os.getpid()}-{number}",
                "key": str(_key(place)),
                "bytes": str(_whole(images.size_of(devices[0]) * THIN_PART)),
            }
            images.run("modprobe", layer.module)
            undo = _filled(layer.undo, devices, values)
            try:
                said += carried_out(_filled(layer.make, devices, values))
            except BaseException:
                with suppress(SpoolscopeError):  # not all of it was made
                    _taken_down(undo, 0)
                raise
            down.callback(_taken_down, undo, RELEASE_S)
            devices = [Path(layer.device.format_map(values))]
        yield devices[0]


def disks_of(layers: Sequence[str]) -> int:
    """Return the number of disks that the lowest layer is made of; 1 without layers."""
    return LAYERS[layers[0]].devices if layers else 1


def share_of(layers: Sequence[str], size_bytes: int) -> int:
    """Return the size that each disk must have, so that the top layer has ``size_bytes``."""
    data = LAYERS[layers[0]].data if layers else 1
    return _whole(size_bytes / data / THIN_PART) + _STEP


def written_share(layers: Sequence[str]) -> float:
    """Return the bytes that the disks below hold for each byte of the top layer."""
    lowest = LAYERS.get(layers[0]) if layers else None
    return lowest.devices / lowest.data if lowest else 1.0


def _whole(size: float) -> int:
    return int(size) // _STEP * _STEP


def _filled(
    commands: Sequence[Command], devices: Sequence[Path], values: dict[str, str]
) -> list[Command]:
    """Return commands with values for words in braces; "{devices}" becomes a word for each."""
    filled: list[Command] = []
    for command in commands:
        words: list[str] = []
        for word in command:
            words += map(str, devices) if word == "{devices}" else [word.format_map(values)]
        filled.append(tuple(words))
    return filled


def _key(place: Path) -> Path:
    """Return a file with a key for this disk alone, whose data is thrown away."""
    file = place / "key"
    if not file.exists():
        write_file(file, secrets.token_bytes(32), private=True)
    return file


def _taken_down(commands: Sequence[Command], patience_s: float) -> None:
    with undisturbed():
        for command in commands:
            try:
                _run_when_free(command, Patience(patience_s))
            except SpoolscopeError as error:
                raise SpoolscopeError(
                    f"a layer below the filesystem stays: {error.message}",
                    remedy=f"once nothing uses it: {' '.join(command)}",
                ) from error


def _run_when_free(command: Command, patience: Patience) -> None:
    """Run a command; retry if its device is in use, as one may be for a moment after an unmount."""
    while True:
        try:
            carried_out([command])
        except SpoolscopeError as error:
            if not (IN_USE.search(error.message) and patience.lasts()):
                raise
        else:
            return
