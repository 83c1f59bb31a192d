"""Removal of the directory in which a killed replay, or other command, was working."""

import shutil
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path

from spoolscope.replay import images
from spoolscope.replay.device_uses import locked
from spoolscope.replay.devices import Device
from spoolscope.replay.nfs import stop_left
from spoolscope.replay.pools import release_left
from spoolscope.replay.signatures import foreign, signatures, wipe
from spoolscope.traces.errors import SpoolscopeError
from spoolscope.traces.mounts import mounts
from spoolscope.traces.unfinished import Unfinished


def clear(place: Path) -> None:
    """Unmount what is mounted in or from a directory, free its loop devices, remove it.

    Raises:
        SpoolscopeError: something in it is in use, or cannot be removed.
    """
    place = place.resolve()  # as the kernel names it
    stop_left()
    for mount in reversed(_mounts_of(place)):
        images.unmount(mount)
    if still := _mounts_of(place):
        raise SpoolscopeError(
            f"{still[0]} cannot be unmounted", remedy=f"end what uses it: fuser -vm {still[0]}"
        )
    release_left(_loops_below(place))
    for device in _loops_below(place):
        try:
            images.run("losetup", "--detach", device)
        except SpoolscopeError:  # it may have gone with its mount
            if device in _loops_below(place):
                raise
    try:
        shutil.rmtree(place)
    except OSError as error:
        raise SpoolscopeError(
            f"cannot remove {place}: {error.strerror}", remedy="remove it by hand"
        ) from error


def _mounts_of(place: Path) -> list[Path]:
    """Return mount points in a directory, and of images that lie in it, oldest first.

    There are some only if a program that uses this package was killed: the command itself has
    a mount namespace of its own, whose mounts go with it.
    """
    loops = _loops_below(place)
    return [m.place for m in mounts() if m.place.is_relative_to(place) or m.source in loops]


def _loops_below(place: Path) -> list[str]:
    """Return loop devices whose file lies in a directory."""
    files = Path("/sys/block").glob("loop*/loop/backing_file")
    found = []
    for file in files:
        with suppress(OSError):  # it is detached meanwhile
            backing = Path(file.read_text(errors="surrogateescape").rstrip("\n"))
            if backing.is_relative_to(place):
                found.append(f"/dev/{file.parts[3]}")
    return found


def wipe_left(paths: Sequence[Path]) -> list[Path]:
    """Wipe devices on which a killed command has left its filesystem; return those.

    A device that holds anything else by now is left as it is.

    Raises:
        SpoolscopeError: one is still in use.
    """
    devices = [Device.at(path) for path in paths if path.is_block_device()]
    with locked(devices):
        others = {device for device, _ in foreign(devices)}
        ours = (one for one in devices if others.isdisjoint([one, *one.partitions()]))
        wiped = [one for one in ours if signatures(one)]
        for device in reversed(wiped):  # a journal is known to be ours by its filesystem
            wipe(device)
    return [device.path for device in wiped]


def remove_left(left: Unfinished) -> list[Path]:
    """Remove what a killed command has left; return the devices that were wiped.

    Devices come first: if one of them is in use, the note about it must stay.

    Raises:
        SpoolscopeError: something is in use, or cannot be removed.
    """
    wiped = wipe_left(left.devices)
    clear(left.place)
    return wiped
