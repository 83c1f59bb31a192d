"""Targets: a candidate made ready on an image, a disk or in a directory, always cleaned up."""

import json
import shutil
import subprocess
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from pathlib import Path

from spoolscope.replay import images
from spoolscope.replay.age import GROWTH, Age
from spoolscope.replay.candidates import Candidate
from spoolscope.replay.commands import formatted, versions
from spoolscope.replay.directories import alone_in
from spoolscope.replay.disks import Disks
from spoolscope.replay.interrupts import undisturbed
from spoolscope.replay.lifetime import Lifetime, block_devices
from spoolscope.replay.modelled import Player
from spoolscope.replay.mount_points import mount_point
from spoolscope.replay.stack import written_share
from spoolscope.replay.storage import Storage, on_images
from spoolscope.traces.errors import SpoolscopeError

MIB = 1 << 20
SMALLEST_BYTES = 1 << 30


@dataclass
class Target:
    """A prepared candidate.

    Attributes:
        mount: Directory that becomes the spool.
        options: Mount options as the kernel lists them.
        storage: Its storage; None for a directory.
        player: Plays the candidate's device model, from ``cool`` on.
        disks: Holds the modelled disk until the end.
    """

    mount: Path
    options: str
    storage: Storage | None = None
    player: Player | None = None
    disks: ExitStack = field(default_factory=ExitStack)

    @property
    def copied(self) -> bool:
        """True if it holds the fixture already."""
        return self.storage is not None and self.storage.copied

    @property
    def filled_at(self) -> Path:
        """The directory to build the fixture in: with a server, the one that it exports."""
        return self.mount if self.storage is None else self.storage.below(self.mount)

    def written(self) -> Path:
        """Send all that an NFS client holds to its server; return the directory to verify."""
        if self.filled_at != self.mount:
            images.run("sync", "-f", self.mount)
        return self.filled_at

    def devices(self) -> list[Path]:
        """Return the block devices that it is on while it is mounted; none for a directory."""
        if self.storage is None:
            return []
        journal = [self.storage.journal] if self.storage.journal else []
        found = block_devices(self.storage.below(self.mount))
        if not found and self.storage.main.is_block_device():
            found = [self.storage.main]  # a pool, whose name is all that the mount shows
        return found + journal

    def cool(self, keep: Path | None = None, life: Lifetime | None = None) -> None:
        """Write everything back and forget it, so that the replay starts with cold caches.

        Args:
            keep: Path for a copy of the image as it is then.
            life: Receives the measurements.
        """
        life = life or Lifetime()
        if self.storage is None:
            images.run("sync", "-f", self.mount)
            return
        self.storage.unmount(self.mount)
        life.count("fill")
        if keep is not None and not self.copied:
            self.storage.keep(keep)
        self.storage.forget()
        if self.player is not None and self.storage.disk is None:
            self.storage = self.storage.played(self.player, self.disks)
        with life.step("mount_filled"):
            self.storage.mount(self.mount)


@contextmanager
def prepared(
    candidate: Candidate,
    work: Path,
    size_bytes: int,
    kept: Path | None = None,
    life: Lifetime | None = None,
    player: Player | None = None,
    devices: Disks | None = None,
) -> Iterator[Target]:
    """Make a candidate ready and remove every trace of it afterwards, whatever happens.

    Args:
        candidate: The candidate to make.
        work: Directory for images.
        size_bytes: Size of the image, unless the candidate needs a larger one.
        kept: Image to copy instead of making one, if it is there.
        life: Receives the measurements.
        player: Plays device models; without it an image has its own speed.
        devices: Devices to make it on, instead of an image.

    Raises:
        SpoolscopeError: no space for the image, a device may not be formatted any more, or mkfs or
            mount failed.
    """
    if candidate.directory is not None:
        with alone_in(candidate.directory):
            yield Target(candidate.directory.resolve(), "")
        return
    life = life or Lifetime()
    size_bytes = max(size_bytes, candidate.smallest)
    lent = devices.fresh(candidate) if devices else on_images(candidate, work, size_bytes, kept)
    with lent as storage:
        if not storage.copied:
            with life.step("mkfs"):
                life.ran(storage.format())
        life.facts["versions"] = versions(candidate)
        with ExitStack() as disks, _unmounted_at_last() as mount:
            try:
                with life.step("mount_copied" if storage.copied else "mount"):
                    life.ran(storage.mount(mount))
                for name in formatted(candidate).leaves:
                    (mount / name).unlink(missing_ok=True)
                yield Target(mount, _mounted_options(mount), storage, player, disks)
            finally:
                life.release()


@contextmanager
def _unmounted_at_last() -> Iterator[Path]:
    with mount_point() as mount:
        try:
            yield mount
        finally:
            with undisturbed():
                images.unmount(mount)


def image_bytes(content_bytes: int, names: int, age: Age | None = None) -> int:
    """Return an image size that leaves every candidate well below full."""
    needed = (content_bytes + 8192 * names) * (1 if age is None else GROWTH)
    return max(SMALLEST_BYTES, -(-(2 * needed + 512 * MIB) // (64 * MIB)) * 64 * MIB)


def grows_to(candidate: Candidate, size_bytes: int, age: Age | None) -> int:
    """Return how many bytes of its sparse images a replay may come to use.

    The files of ageing take room without being written, except on ext2 and ext3. md writes each
    byte twice, or parity beside it.
    """
    written = age is not None and candidate.fstype in ("ext2", "ext3")
    of_filesystem = size_bytes if written else size_bytes // 2
    return int(of_filesystem * written_share(candidate.layers))


def check_space(work: Path, needed_bytes: int) -> None:
    """Fail early if the (sparse) image would not fit where it is made."""
    free = shutil.disk_usage(work).free
    if free < needed_bytes:
        raise SpoolscopeError(
            f"{work} has {free // MIB} MiB free, the image may grow to {needed_bytes // MIB} MiB",
            remedy="give another --work DIR",
        )


def _mounted_options(mount: Path) -> str:
    found = subprocess.run(
        ["findmnt", "--json", "--output", "OPTIONS", "--target", str(mount)],
        capture_output=True,
        text=True,
        check=False,
    )
    try:
        return str(json.loads(found.stdout)["filesystems"][-1]["options"])
    except (ValueError, KeyError, IndexError):
        return ""
