"""Signatures on devices: finding them, recognizing those of spoolscope, and removing them."""

import json
import os
import time
from collections.abc import Sequence
from dataclasses import dataclass

from spoolscope.replay import images
from spoolscope.replay.device_uses import claimed
from spoolscope.replay.devices import Device
from spoolscope.replay.patience import Patience
from spoolscope.replay.reiserfs import REISERFS, has_journal, with_journal_apart
from spoolscope.traces.errors import SpoolscopeError, usage_error

LABEL = "spsc-replay"
"""Label of filesystems and journals that spoolscope makes on devices; xfs has room for 12."""

DATA = "data"
"""Type for a device that has no known signature, but is not empty where one would be."""

XFS_LOG = "xfs_external_log"

_ENDS = 1 << 20
"""Bytes at the begin and at the end of a device that are read, and overwritten with zeros."""
QUIET_S, MOST_S = 0.5, 30.0
"""Devices have settled if they did nothing for the first time; the second is the limit."""
PATIENCE_S = 5.0
"""A program may have a partition open for a while, as udev has after a disk was written to."""


@dataclass(frozen=True)
class Signature:
    """One find of wipefs on a device: type, label and UUID, empty where it has none."""

    type: str
    label: str
    uuid: str

    def __str__(self) -> str:
        """Return it in words."""
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
    if found:
        return found
    if (apart := with_journal_apart(device)) is not None:
        return [Signature(REISERFS, apart.label, apart.uuid)]
    return [Signature(DATA, "", "")] if _has_data(device) else []


def _has_data(device: Device) -> bool:
    """Look at both ends: the last MiB may hold remains of GPT, md and zfs without the first."""
    with device.node.open("rb", buffering=0) as file:
        if any(file.read(_ENDS)):
            return True
        file.seek(max(device.size_bytes - _ENDS, 0))
        return any(file.read(_ENDS))


def _uuid_of_log(device: Device, kind: str) -> str:
    """Return the UUID of the filesystem that a log belongs to, which wipefs does not show."""
    if kind != XFS_LOG:
        return ""
    return images.run("blkid", "-p", "-s", "LOGUUID", "-o", "value", device.node).strip()


def foreign(devices: Sequence[Device]) -> list[tuple[Device, Signature]]:
    """Return signatures on devices and their partitions that spoolscope did not write.

    Some logs have no label: they are recognized by the UUID of their filesystem, or by its facts
    about its journal.
    """
    parts = (part for device in devices for part in device.partitions())
    found = [(device, one) for device in (*devices, *parts) for one in signatures(device)]
    labelled = [(at, one) for at, one in found if one.label == LABEL]
    ours = {one.uuid for _, one in labelled if one.uuid}
    mains = [at for at, one in labelled if one.type == REISERFS]

    def is_ours(at: Device, one: Signature) -> bool:
        if one.type == DATA:
            return any(has_journal(main, at) for main in mains)
        return one.label == LABEL or one.uuid in ours

    return [(at, one) for at, one in found if not is_ours(at, one)]


def check_signatures(devices: Sequence[Device], overwritten: Sequence[str]) -> None:
    """Make sure that devices hold nothing but what spoolscope wrote, or what may be overwritten.

    Raises:
        SpoolscopeError: there is something else; the message names it.
    """
    wrong = [found for found in foreign(devices) if found[1].type not in overwritten]
    if not wrong:
        return
    first = wrong[0][0]
    held = dict.fromkeys(_words(one) for device, one in wrong if device == first)
    asked = dict.fromkeys(f"--overwrite-signature {one.type}" for _, one in wrong)
    raise usage_error(
        f"device {first.path} holds {' and '.join(held)}, which spoolscope did not write",
        f"see 'lsblk -f'; if nothing of it is needed, {' '.join(asked)}",
    )


def _words(one: Signature) -> str:
    return "data of an unknown kind" if one.type == DATA else str(one)


def wipe(device: Device) -> bool:
    """Remove all signatures of a device, and trim it if possible; return whether it was trimmed.

    Raises:
        SpoolscopeError: it is in use, or cannot be written to.
    """
    parts = device.partitions()
    with claimed(device) as descriptor:
        # The begin, with our label, goes last: if we were killed in between, there would be data
        # without a signature, which we may not wipe.
        empty, size = bytes(_ENDS), device.size_bytes
        os.pwrite(descriptor, empty[:size], max(size - _ENDS, 0))
        os.fsync(descriptor)
        # --force ignores that the device is in use: it is, by us alone.
        if device.discards:
            images.run("blkdiscard", "--force", device.node)
        os.pwrite(descriptor, empty[:size], 0)
        os.fsync(descriptor)
        images.run("wipefs", "--all", "--force", "--quiet", device.node)
    if parts:
        _forget_parts(device)
    return device.discards


def _forget_parts(device: Device) -> None:
    """Make the kernel drop the partitions of a disk; it refuses while one is open."""
    patience = Patience(PATIENCE_S)
    while True:
        try:
            images.run("blockdev", "--rereadpt", device.node)
        except SpoolscopeError:
            if not patience.lasts():
                raise
        else:
            return


def settle(devices: Sequence[Device]) -> int:
    """Wait until devices have done nothing for a while; return how long that took, in ns."""
    began = changed = time.monotonic()
    before: list[str] = []
    while time.monotonic() - changed < QUIET_S and time.monotonic() - began < MOST_S:
        if (now := [(device.place / "stat").read_text() for device in devices]) != before:
            before, changed = now, time.monotonic()
        time.sleep(QUIET_S / 10)
    return round((time.monotonic() - began) * 1e9)
