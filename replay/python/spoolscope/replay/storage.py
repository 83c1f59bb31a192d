"""Storage of a filesystem: an image or a device, perhaps with another one for its journal."""

import shutil
import tempfile
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, nullcontext
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from spoolscope.replay import images
from spoolscope.replay.candidates import Candidate
from spoolscope.replay.commands import carried_out, checking, formatted, formatting, mounting
from spoolscope.replay.interrupts import undisturbed
from spoolscope.replay.layers import NFS, device_layers
from spoolscope.replay.modelled import ModelledDisk, Player
from spoolscope.replay.nfs import serving, withdraw
from spoolscope.replay.pools import has_pool, release
from spoolscope.replay.stack import disks_of, share_of, stacked
from spoolscope.traces.errors import SpoolscopeError


@dataclass(frozen=True)
class Storage:
    """Storage of one filesystem.

    Attributes:
        candidate: The candidate that is made on it.
        main: An image, or a block device.
        journal: Block device of its separate journal or log; None: it has none.
        images: Files that hold all of it; empty on devices.
        copied: The images are copies of those of a filesystem that holds the fixture already.
        label: Label of the filesystem; empty for none.
        disk: The modelled disk whose file ``main`` is.
        devices: Entries of run.json for the block devices that were given.
        exported: Mount point that a server exports; None without a server.
        set_up: Commands that made the layers below it, with their output.
    """

    candidate: Candidate
    main: Path
    journal: Path | None = None
    images: tuple[Path, ...] = ()
    copied: bool = False
    label: str = ""
    disk: ModelledDisk | None = None
    devices: tuple[dict[str, Any], ...] = ()
    set_up: tuple[dict[str, Any], ...] = ()
    exported: Path | None = None

    def played(self, player: Player, until: ExitStack) -> "Storage":
        """Return it on a disk that plays the candidate's device model, if the candidate has one.

        Args:
            player: Makes the disk over the image.
            until: The disk ends with this stack: the filesystem must be unmounted before.

        Raises:
            SpoolscopeError: the disk cannot be made.
        """
        if not self.candidate.model:
            return self
        if has_pool(self.candidate):
            raise SpoolscopeError(
                f"{self.candidate.name} plays no device model: its pool has a loop device",
                remedy="leave out the device model for it",
            )
        made = player(self.main, self.main.parent, self.candidate.model)
        disk = until.enter_context(made)
        return replace(self, main=disk.path, disk=disk)

    def format(self) -> list[dict[str, Any]]:
        """Make a fresh filesystem; return the commands and their output.

        Raises:
            SpoolscopeError: mkfs is missing or failed.
        """
        label = [*formatted(self.candidate).label, self.label] if self.label else []
        commands = formatting(self.candidate, str(self.main), self._journal(), label)
        return [*self.set_up, *carried_out(commands)]

    def mount(self, place: Path) -> list[dict[str, Any]]:
        """Mount it, and return as ``format`` does; an image's loop device goes with the mount.

        Raises:
            SpoolscopeError: mount failed.
        """
        loop = not self.main.is_block_device()
        asked = (self.candidate, str(self.main), place, self._journal())
        done = carried_out(mounting(*asked, loop=loop, exported=self.exported))
        if self.disk is not None:
            images.serve_at_once(self.below(place))
            self.disk.play(images.loop_device(self.below(place)))
        return done

    def unmount(self, place: Path) -> None:
        """Unmount it, and the filesystem below that a server exports."""
        images.unmount(place)
        if self.exported is not None:
            withdraw(self.exported)
        release(self.candidate)

    def below(self, place: Path) -> Path:
        """Return the mount point of the filesystem on the devices, if the whole is at ``place``."""
        return self.exported or place

    def fsck_words(self) -> list[str]:
        """Return the program that checks it read-only, with its words; empty if there is none."""
        return checking(self.candidate, str(self.main), self._journal())

    def forget(self) -> None:
        """Write it back, after its unmount, and let the kernel forget its pages."""
        for part in (self.journal, self.main, *self.images):
            if part is not None:
                images.drop_cached(part)

    def keep(self, to: Path) -> None:
        """Copy its images, after its unmount.

        Raises:
            SpoolscopeError: no space left.
        """
        if self.set_up:
            return  # layers are made anew for each round
        for image, copy in zip(self.images, _copies(to), strict=False):
            images.copy(image, copy)
            images.drop_cached(copy)

    def _journal(self) -> str:
        return str(self.journal or "")


@contextmanager
def on_images(
    candidate: Candidate, work: Path, size_bytes: int, kept: Path | None = None
) -> Iterator[Storage]:
    """Make images for a candidate, removed afterwards; nothing is formatted yet.

    Args:
        candidate: The candidate to make on them.
        work: Directory for the images.
        size_bytes: Size of the main image.
        kept: Images to copy instead, if they exist.

    Raises:
        SpoolscopeError: no space left, or no loop device for the journal.
    """
    if device_layers(candidate.layers):
        with _on_layers(candidate, work, size_bytes) as storage:
            yield storage
        return
    place = Path(tempfile.mkdtemp(prefix="spoolscope-", dir=work)).absolute()
    copied = kept is not None and kept.exists()
    sizes = [size_bytes, candidate.journal] if candidate.journal else [size_bytes]
    made = [place / f"{candidate.label}{end}" for end in (".img", ".journal.img")[: len(sizes)]]
    try:
        if kept is not None and copied:
            for copy, image in zip(_copies(kept), made, strict=False):
                images.copy(copy, image)
        else:
            for image, size in zip(made, sizes, strict=True):
                images.create(image, size)
        pooled = _pooled(candidate, made[0]) if has_pool(candidate) else nullcontext(made[0])
        served = serving() if candidate.fstype in NFS else nullcontext()
        attached = _attached(made[1]) if made[1:] else nullcontext()
        with pooled as main, served as exported, attached as journal:
            yield Storage(candidate, main, journal, tuple(made), copied, exported=exported)
    finally:
        with undisturbed():
            shutil.rmtree(place, ignore_errors=True)


@contextmanager
def _on_layers(candidate: Candidate, work: Path, size_bytes: int) -> Iterator[Storage]:
    """Make images, and the layers over them; each round makes them anew."""
    place = Path(tempfile.mkdtemp(prefix="spoolscope-", dir=work)).absolute()
    made = [place / f"{candidate.label}.{i}.img" for i in range(disks_of(candidate.layers))]
    said: list[dict[str, Any]] = []
    try:
        with ExitStack() as until:
            loops = []
            for image in made:
                images.create(image, share_of(candidate.layers, size_bytes))
                loops.append(until.enter_context(_attached(image)))
            top = until.enter_context(stacked(candidate.layers, loops, place, said))
            yield Storage(candidate, top, images=tuple(made), set_up=tuple(said))
    finally:
        with undisturbed():
            shutil.rmtree(place, ignore_errors=True)


@contextmanager
def _pooled(candidate: Candidate, image: Path) -> Iterator[Path]:
    """Yield a loop device of an image for a pool, which lets it go in every way out."""
    with _attached(image) as device:
        try:
            yield device
        finally:
            with undisturbed():
                release(candidate)


def _copies(kept: Path) -> tuple[Path, Path]:
    return kept, kept.with_name(f"{kept.name}.journal")


@contextmanager
def _attached(image: Path) -> Iterator[Path]:
    """Yield a loop device of an image; it goes with its last user."""
    device = Path(images.run("losetup", "--find", "--show", image).strip())
    with device.open("rb"):
        # The device is in use, so it is freed with its last user: also if we are killed.
        images.run("losetup", "--detach", device)
        yield device
