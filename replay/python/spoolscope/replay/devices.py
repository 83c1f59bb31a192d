"""Block devices to replay on: found by name, and described for results."""

import os
import stat
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from spoolscope.traces.errors import usage_error

SECTOR_BYTES = 512
"""Bytes of a sector in /sys, whatever the device's own is."""


@dataclass(frozen=True)
class Device:
    """A block device, or a partition of one.

    Attributes:
        path: The path that was given, made absolute.
        node: The special file that this path led to.
        number: Device number, as major:minor.
        sequence: Number of the disk since the machine was booted: a later disk with the same name
            and number has another one. Empty before Linux 5.15, which does not have it.
    """

    path: Path
    node: Path
    number: str
    sequence: str

    @classmethod
    def at(cls, path: Path) -> "Device":
        """Find a device.

        Raises:
            SpoolscopeError: there is none.
        """
        try:
            found = path.stat()
        except OSError as error:
            raise usage_error(f"no device {path}: {error.strerror}", "see lsblk") from error
        if not stat.S_ISBLK(found.st_mode):
            raise usage_error(f"{path} is not a block device", "give one of those that lsblk lists")
        number = f"{os.major(found.st_rdev)}:{os.minor(found.st_rdev)}"
        made = cls(path.absolute(), path.resolve(), number, "")
        if not made.place.is_dir():
            raise usage_error(f"no disk is behind {path}", "give one of those that lsblk lists")
        return cls(made.path, made.node, number, made.of_disk("diskseq"))

    @property
    def place(self) -> Path:
        """Its directory in /sys."""
        return Path("/sys/dev/block", self.number)

    @property
    def name(self) -> str:
        """The kernel's name for it."""
        return self.place.resolve().name

    @property
    def disk(self) -> Path:
        """The directory in /sys of the disk that it is, or is a partition of."""
        place = self.place.resolve()
        return place.parent if (place / "partition").exists() else place

    @property
    def size_bytes(self) -> int:
        """Its size."""
        return int((self.place / "size").read_text()) * SECTOR_BYTES

    @property
    def discards(self) -> bool:
        """True if it can discard blocks (trim)."""
        return int(self.of_disk("queue/discard_max_bytes") or 0) > 0

    def check_same(self) -> None:
        """Make sure that its name still leads to it.

        Raises:
            SpoolscopeError: it leads to another device, or to none.
        """
        if Device.at(self.path) != self:
            raise usage_error(
                f"{self.path} has changed meanwhile: it led to {self.node} ({self.number})",
                "see what it leads to now, and begin again",
            )

    def of_disk(self, name: str) -> str:
        """Return an attribute of its disk; empty if there is none."""
        try:
            return (self.disk / name).read_text().strip()
        except OSError:
            return ""

    def facts(self) -> dict[str, Any]:
        """Return its facts for run.json: what may make it fast or slow, but no serial number."""
        scheduler = self.of_disk("queue/scheduler")
        return {
            "name": self.name,
            "model": self.of_disk("device/model") or self.of_disk("device/name") or None,
            "size_bytes": self.size_bytes,
            "rotational": self.of_disk("queue/rotational") == "1",
            "scheduler": scheduler.partition("[")[2].partition("]")[0] or scheduler or None,
            "write_cache": self.of_disk("queue/write_cache") or None,
            "logical_block_bytes": int(self.of_disk("queue/logical_block_size") or 0),
            "physical_block_bytes": int(self.of_disk("queue/physical_block_size") or 0),
            "discards": self.discards,
        }

    def partitions(self) -> list["Device"]:
        """Return its partitions."""
        found = []
        for place in sorted(self.place.glob("*/partition")):
            with suppress(OSError):  # the table is read anew: none that is in use goes away
                found.append(_known(place.parent))
        return found

    def relatives(self) -> list[tuple[str, "Device"]]:
        """Return it, its partitions and the disk it is a partition of, each with a description."""
        found = [("", self), *(("its partition ", part) for part in self.partitions())]
        if self.disk != self.place.resolve():
            found.append(("the disk of this partition, ", _known(self.disk)))
        return found


def _known(place: Path) -> Device:
    """Return a device that the kernel knows, by its directory in /sys."""
    node = Path("/dev", place.name.replace("!", "/"))
    return Device(node, node, (place / "dev").read_text().strip(), "")
