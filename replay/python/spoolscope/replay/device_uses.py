"""Uses of a block device: data that a replay would destroy, and programs that would disturb it."""

import errno
import fcntl
import os
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path

from spoolscope.replay.devices import Device
from spoolscope.replay.patience import Patience
from spoolscope.traces.errors import usage_error
from spoolscope.traces.mounts import Mount, mounts

PATIENCE_S = 1.0
"""Seconds that a program such as udev may take to look at a new device."""

UNMOUNTED_S = 10.0
"""Seconds that a device may stay in use after it is unmounted.

A process that made a mount namespace meanwhile has a copy of the mount until it drops it.
"""


def check_unused(device: Device) -> None:
    """Make sure that nothing uses a device, a partition of it, or the disk that it is a part of.

    Raises:
        SpoolscopeError: it is in use; the message states by what.
    """
    if (device.place / "ro").read_text().strip() == "1":
        raise usage_error(f"device {device.path} is read-only", "give one that can be written to")
    patience = Patience(PATIENCE_S)
    while not (use := _lasting_use(device)) and (use := _passing_use(device)):
        if not patience.lasts():
            break
    if use:
        raise usage_error(f"device {device.path} is in use: {use}", "give one that nothing uses")


@contextmanager
def claimed(device: Device) -> Iterator[int]:
    """Hold a device exclusively, so that nothing else can mount or use it meanwhile.

    Yields:
        A descriptor to write to it.

    Raises:
        SpoolscopeError: it is in use, or another disk has its name and number by now.
    """
    descriptor = _opened_alone(device)
    try:
        if Device.at(device.node).sequence != device.sequence:
            raise usage_error(
                f"{device.node} has become another disk", "look at lsblk and name it again"
            )
        yield descriptor
    finally:
        os.close(descriptor)


def _opened_alone(device: Device) -> int:
    patience = Patience(UNMOUNTED_S)
    while True:
        try:
            return os.open(device.node, os.O_RDWR | os.O_EXCL | os.O_CLOEXEC)
        except OSError as error:
            if error.errno == errno.EBUSY and patience.lasts():
                continue
            use = _lasting_use(device) or error.strerror
            raise usage_error(
                f"device {device.path} cannot be opened exclusively: {use}",
                "find its user with lsblk or fuser -v",
            ) from error


@contextmanager
def locked(devices: Sequence[Device]) -> Iterator[None]:
    """Lock devices, mounted or not, against other replays, ``clean`` and udev.

    Raises:
        SpoolscopeError: another command has locked one.
    """
    with ExitStack() as held:
        for device in devices:
            descriptor = os.open(device.node, os.O_RDONLY | os.O_CLOEXEC)
            held.callback(os.close, descriptor)
            try:
                fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                raise usage_error(
                    f"another command has locked device {device.path}", "find it with fuser -v"
                ) from None
        yield


def _lasting_use(device: Device) -> str | None:
    for words, one in device.relatives():
        if found := _mounted(one) or _swap(one) or _held(one) or _looped(one):
            return f"{words}{one.node} is {found}"
    return None


def _passing_use(device: Device) -> str | None:
    """Return a use that may end soon; not of the disk of a partition, which monitors open."""
    for words, one in device.relatives():
        if not words.startswith("the disk") and (found := _opened(one)):
            return f"{words}{one.node} is {found}"
    # The kernel also knows uses that this process cannot see.
    try:
        os.close(os.open(device.node, os.O_RDONLY | os.O_EXCL | os.O_CLOEXEC))
    except OSError as error:
        return "the kernel has given it to somebody" if error.errno == errno.EBUSY else str(error)
    return None


def _mounted(device: Device) -> str | None:
    """Return where it is mounted, in the namespace of any visible process."""
    seen = set()
    for process in sorted(Path("/proc").glob("[0-9]*"), key=lambda place: int(place.name)):
        with suppress(OSError):  # it has ended
            namespace = (process / "ns/mnt").stat().st_ino
            if namespace in seen:
                continue
            seen.add(namespace)
            for mount in mounts(process.name):
                if mount.device == device.number or _names(mount, device):
                    ours = namespace == Path("/proc/thread-self/ns/mnt").stat().st_ino
                    return f"mounted at {mount.place}" + (
                        "" if ours else f", as process {process.name} sees it"
                    )
    return None


def _names(mount: Mount, device: Device) -> bool:
    """Return whether a filesystem with its own device number, such as btrfs, lies on it."""
    return mount.source.startswith("/dev/") and _is(Path(mount.source), device)


def _is(path: Path, device: Device) -> bool:
    with suppress(OSError):
        number = path.stat().st_rdev
        return f"{os.major(number)}:{os.minor(number)}" == device.number
    return False


def _swap(device: Device) -> str | None:
    lines: list[str] = []
    with suppress(FileNotFoundError):  # a kernel without swap space
        lines = Path("/proc/swaps").read_text(errors="surrogateescape").splitlines()[1:]
    return "swap space" if any(_is(Path(line.split()[0]), device) for line in lines) else None


def _held(device: Device) -> str | None:
    """Return the device-mapper, LVM, md or bcache device that it is a part of."""
    for holder in sorted((device.place / "holders").glob("*")):
        with suppress(FileNotFoundError):  # it is taken apart meanwhile
            made = holder.resolve()
            if (name := made / "dm/name").exists():
                lvm = (made / "dm/uuid").read_text().startswith("LVM-")
                kind = "LVM" if lvm else "device-mapper"
                return f"a part of {name.read_text().strip()} ({kind}, {made.name})"
            kind = "md RAID" if (made / "md").is_dir() else "another device"
            return f"a part of {made.name} ({kind})"
    return None


def _looped(device: Device) -> str | None:
    for file in Path("/sys/block").glob("loop*/loop/backing_file"):
        with suppress(OSError):
            if _is(Path(file.read_text(errors="surrogateescape").rstrip("\n")), device):
                return f"below the loop device {file.parts[3]}"
    return None


def _opened(device: Device) -> str | None:
    """Return the process that has it open: the kernel lets programs share a device."""
    for link in _descriptors():
        with suppress(OSError):
            # The name is checked first: stat of a file on a network may take long.
            process = link.parts[2]
            if os.fspath(link.readlink()).startswith("/dev/") and _is(link, device):
                if int(process) == os.getpid():
                    continue
                comm = Path("/proc", process, "comm").read_text(errors="replace").strip()
                return f"open in process {process} ({comm})"
    return None


def _descriptors() -> Iterator[Path]:
    for process in Path("/proc").glob("[0-9]*"):
        # Path.glob of Python 3.11 would fail for a process that ends meanwhile.
        with suppress(OSError):
            yield from (process / "fd").iterdir()
