"""Devices that the user lets a replay format, anew for each run."""

from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from spoolscope.replay.candidates import Candidate
from spoolscope.replay.commands import formatted
from spoolscope.replay.device_uses import check_unused, locked
from spoolscope.replay.devices import Device
from spoolscope.replay.interrupts import undisturbed
from spoolscope.replay.layers import NFS, device_layers
from spoolscope.replay.signatures import LABEL, check_signatures, settle, wipe
from spoolscope.replay.storage import Storage
from spoolscope.traces.errors import usage_error

MIB = 1 << 20


@dataclass(frozen=True)
class Asked:
    """Devices as they are named on the command line.

    Attributes:
        device: Device for filesystems; None: images are used.
        journal: Device for separate journals and logs.
        formatted: The same devices once more, to confirm that they may be formatted.
        overwritten: Signatures that may be overwritten although spoolscope did not write them.
    """

    device: Path | None = None
    journal: Path | None = None
    formatted: Sequence[Path] = ()
    overwritten: Sequence[str] = ()


class Disks:
    """Devices of this replay until it ends; nothing on them is changed before ``fresh``.

    Attributes:
        unwiped: Devices that could not be wiped after a run: ``clean`` has to know them.
    """

    def __init__(self, main: Device, journal: Device | None, overwritten: Sequence[str]) -> None:
        """Check devices.

        Args:
            main: Device for filesystems.
            journal: Device for separate journals and logs.
            overwritten: Signatures that may be overwritten by the first run.

        Raises:
            SpoolscopeError: one may not be formatted; the message states why.
        """
        self.main, self.journal = main, journal
        self._overwritten = overwritten
        self.unwiped: list[Path] = []
        if journal is not None and any(one.number == journal.number for _, one in main.relatives()):
            raise usage_error(
                f"{main.path} and {journal.path} share a disk", "give two disks, or two partitions"
            )
        self._check()

    @property
    def all(self) -> list[Device]:
        """The devices; the one for the filesystem is first."""
        return [self.main] if self.journal is None else [self.main, self.journal]

    @property
    def paths(self) -> list[Path]:
        """Their paths, as they were given."""
        return [device.path for device in self.all]

    def check_candidates(self, candidates: Sequence[Candidate]) -> None:
        """Make sure that there is a device for each journal, and a journal for the device.

        Raises:
            SpoolscopeError: a device is missing, unused, too small, or no match for a candidate.
        """
        if all(one.directory for one in candidates):
            raise usage_error(
                f"no candidate would use {self.main.path}: directories lie where they are",
                "leave out --device, or add a candidate such as --on ext4",
            )
        for one in candidates:
            if one.directory is None and not formatted(one).label:
                raise usage_error(
                    f"{one.name} makes a filesystem without a label, which clean needs",
                    "leave it out, or replay it on an image, without --device",
                )
            if one.directory is None:
                _check_size(self.main, one.smallest, one.name)
            if device_layers(one.layers):
                raise usage_error(
                    f"{one.name} lies on {one.layers[0]}, which is set up over images only",
                    "leave it out, or replay it without --device",
                )
            if one.fstype in NFS:
                raise usage_error(
                    f"what a server exports to {one.name} lies on an image",
                    "leave it out, or replay it without --device",
                )
            if one.model:
                raise usage_error(
                    f"{one.name} plays another disk than {self.main.path}",
                    "give --device-model or --device",
                )
        apart = [one for one in candidates if one.journal and one.directory is None]
        if self.journal is None and apart:
            raise usage_error(
                f"{apart[0].name} has a separate journal, and no device is given for it",
                "give --journal-device PATH and --format-device PATH",
            )
        if self.journal is not None:
            if not apart:
                raise usage_error(
                    f"no candidate would use {self.journal.path}: none has a separate journal",
                    "leave out --journal-device, or add such a candidate",
                )
            _check_size(self.journal, max(one.journal for one in apart), "its journal")

    def check_room(
        self, needed_bytes: int, what: str = "this replay", smaller: str = "replay a part: --slice"
    ) -> None:
        """Make sure that the device is large enough.

        Args:
            needed_bytes: Room that is needed.
            what: What needs it.
            smaller: How it would need less.

        Raises:
            SpoolscopeError: it is not.
        """
        _check_size(self.main, needed_bytes, what, f"give a larger one, or {smaller}")

    @contextmanager
    def fresh(self, candidate: Candidate) -> Iterator[Storage]:
        """Yield the devices, trimmed and settled, for a candidate; they are wiped afterwards.

        Raises:
            SpoolscopeError: one has become another device or holds other data, or is in use.
        """
        used = self.all if candidate.journal else [self.main]
        for device in self.all:
            device.check_same()
        self._check()
        with locked(used):
            yield from self._lent(candidate, used)

    def _lent(self, candidate: Candidate, used: list[Device]) -> Iterator[Storage]:
        try:
            trimmed = [wipe(device) for device in used]
            settled_ns = settle(used)
            facts = [
                device.facts() | {"trimmed": done, "settled_ns": settled_ns}
                for device, done in zip(used, trimmed, strict=True)
            ]
            self._overwritten = ()
            journal = used[1].node if candidate.journal else None
            made = Storage(candidate, self.main.node, journal, label=LABEL)
            yield replace(made, devices=tuple(facts))
        finally:
            with undisturbed(), ExitStack() as wiping:
                for device in used:  # the others are wiped, too, if one fails
                    wiping.callback(self._wipe_at_last, device)

    def _wipe_at_last(self, device: Device) -> None:
        self.unwiped.append(device.path)
        wipe(device)
        self.unwiped.remove(device.path)

    def _check(self) -> None:
        for device in self.all:
            check_unused(device)
        check_signatures(self.all, self._overwritten)

    def identity(self) -> list[dict[str, Any]]:
        """Return facts about them that stay true if their names change."""
        facts = (device.facts() for device in self.all)
        return [{key: value for key, value in one.items() if key != "name"} for one in facts]


def given(asked: Asked) -> Disks | None:
    """Return the devices that are asked for, checked; None if images are used.

    Raises:
        SpoolscopeError: one is not confirmed by ``formatted``, or may not be formatted.
    """
    wanted = [path for path in (asked.device, asked.journal) if path is not None]
    if asked.device is None:
        if wanted or asked.formatted or asked.overwritten:
            raise usage_error("no device is given for filesystems", "add --device PATH")
        return None
    devices = [Device.at(path) for path in wanted]
    formatted = {Device.at(path).number for path in asked.formatted}
    for device in devices:
        if device.number not in formatted:
            raise usage_error(
                f"all that {device.path} holds would be lost",
                f"confirm it with --format-device {device.path}",
            )
    if formatted - {device.number for device in devices}:
        raise usage_error(
            "--format-device names a device that this replay does not use",
            "name the devices of --device and --journal-device only",
        )
    return Disks(devices[0], devices[1] if len(devices) > 1 else None, asked.overwritten)


def _check_size(
    device: Device, needed_bytes: int, what: str, remedy: str = "give a larger one"
) -> None:
    if device.size_bytes < needed_bytes:
        raise usage_error(
            f"device {device.path} has {device.size_bytes // MIB} MiB, but "
            f"{what} needs {-(-needed_bytes // MIB)} MiB",
            remedy,
        )
