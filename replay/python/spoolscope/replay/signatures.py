"""Signatures: what a device says that it holds, whether spoolscope wrote it, and their removal."""

import json
import os
import time
from collections.abc import Sequence
from dataclasses import dataclass

from spoolscope.replay import images
from spoolscope.replay.device_uses import claimed
from spoolscope.replay.devices import Device, refused

LABEL = "spsc-replay"
"""The name of filesystems and journals that spoolscope makes on devices; xfs has room for 12."""

DATA = "data"
"""What a device holds that has no known signature, and is not empty where one would be."""

XFS_LOG = "xfs_external_log"

_ENDS = 1 << 20
"""Bytes at the begin and at the end of a device that are looked at, and made empty."""
QUIET_S, MOST_S = 0.5, 30.0
"""Devices have settled if they did nothing for so long; seconds that it may take."""


@dataclass(frozen=True)
class Signature:
    """What wipefs finds on a device: type, label and UUID, empty where it has none."""

    type: str
    label: str
    uuid: str

    def __str__(self) -> str:
        """Say it in words."""
        return f"{self.type} ({self.label})" if self.label else self.type


def signatures(device: Device) -> list[Signature]:
    """Return the signatures on a device; ``DATA`` if there is none and it is not empty.

    Raises:
        SpoolscopeError: it cannot be read.
    """
    said = images.run("wipefs", "--json", "--no-act", device.node)
    found = [
        Signature(one["type"], one["label"] or "", one["uuid"] or _uuid_of_log(device, one["type"]))
        for one in (json.loads(said)["signatures"] if said.strip() else [])
    ]
    if not found:
        with device.node.open("rb", buffering=0) as file:
            if any(file.read(_ENDS)):
                return [Signature(DATA, "", "")]
    return found


def _uuid_of_log(device: Device, kind: str) -> str:
    """Return the UUID of the filesystem that a log belongs to, which wipefs does not tell."""
    if kind != XFS_LOG:
        return ""
    return images.run("blkid", "-p", "-s", "LOGUUID", "-o", "value", device.node).strip()


def foreign(devices: Sequence[Device]) -> list[tuple[Device, Signature]]:
    """Return what spoolscope did not write on devices and their partitions.

    Some logs have no label: they are known by the UUID of their filesystem.
    """
    parts = (part for device in devices for part in device.partitions())
    found = [(device, one) for device in (*devices, *parts) for one in signatures(device)]
    ours = {one.uuid for _, one in found if one.label == LABEL and one.uuid}
    return [(at, one) for at, one in found if one.label != LABEL and one.uuid not in ours]


def check_signatures(devices: Sequence[Device], overwritten: Sequence[str]) -> None:
    """Make sure that devices hold nothing but what spoolscope wrote, or what may be overwritten.

    Raises:
        SpoolscopeError: there is something else; it is named.
    """
    wrong = [found for found in foreign(devices) if found[1].type not in overwritten]
    if not wrong:
        return
    first = wrong[0][0]
    held = dict.fromkeys(_words(one) for device, one in wrong if device == first)
    asked = dict.fromkeys(f"--overwrite-signature {one.type}" for _, one in wrong)
    raise refused(
        f"device {first.path} holds {' and '.join(held)}, which spoolscope did not write",
        f"see 'lsblk -f'; if nothing of it is needed, {' '.join(asked)}",
    )


def _words(one: Signature) -> str:
    return "data of an unknown kind" if one.type == DATA else str(one)


def wipe(device: Device) -> bool:
    """Remove all signatures of a device, and trim it where it can be; tell whether it was.

    Raises:
        SpoolscopeError: it is in use, or cannot be written to.
    """
    parts = device.partitions()
    with claimed(device) as descriptor:
        # Forced, which would not heed that it is in use: we have it alone.
        if device.discards:
            images.run("blkdiscard", "--force", device.node)
        # First: were we killed, there would be data without a signature, which is not ours to wipe.
        empty, size = bytes(_ENDS), device.size_bytes
        for at in (0, max(size - _ENDS, 0)):
            os.pwrite(descriptor, empty[: size - at], at)
        os.fsync(descriptor)
        images.run("wipefs", "--all", "--force", "--quiet", device.node)
    if parts:
        images.run("blockdev", "--rereadpt", device.node)
    return device.discards


def settle(devices: Sequence[Device]) -> int:
    """Wait until devices have done nothing for a while; return how long that took, in ns."""
    began = changed = time.monotonic()
    before: list[str] = []
    while time.monotonic() - changed < QUIET_S and time.monotonic() - began < MOST_S:
        if (now := [(device.place / "stat").read_text() for device in devices]) != before:
            before, changed = now, time.monotonic()
        time.sleep(QUIET_S / 10)
    return round((time.monotonic() - began) * 1e9)
