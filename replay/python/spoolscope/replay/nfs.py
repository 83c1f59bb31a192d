"""An NFS server of this machine, for as long as a filesystem is exported; taken down again."""

import shutil
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from spoolscope.replay import images
from spoolscope.replay.interrupts import undisturbed
from spoolscope.replay.layers import NFS
from spoolscope.replay.mount_points import RUN, mount_point, taken, vacated
from spoolscope.traces.errors import SpoolscopeError
from spoolscope.traces.mounts import mounts

PACKAGES = "nfs-kernel-server rpcbind"
PROGRAMS = ("rpcbind", "rpc.statd", "exportfs", "rpc.mountd", "rpc.nfsd", "mount.nfs")
SERVER = RUN / "nfs"
"""A directory of this name says that the server is ours; its command has it locked."""
THREADS = 8
"""Of the server, as Debian's has them."""

_NFSD = Path("/proc/fs/nfsd")
# A server that was just booted waits for locks that clients had before.
_NO_GRACE = (_NFSD / "v4_end_grace", Path("/proc/fs/lockd/nlm_end_grace"))
# They go into the background by themselves, and are gone with the first process of their namespace.
_DAEMONS = "rpcbind && rpc.statd && rpc.mountd && echo up && exec sleep infinity"
_TOGETHER = ("setpriv", "--pdeathsig", "KILL", "unshare", "--pid", "--fork", "--kill-child")


@contextmanager
def serving() -> Iterator[Path]:
    """Lend a directory that the server can export, and have the server run meanwhile.

    What is mounted there has to be withdrawn before the end.

    Raises:
        SpoolscopeError: another server runs, or a program is missing or refuses.
    """
    images.run("modprobe", "nfsd")
    ours = SERVER.exists()
    if (held := taken(SERVER)) is None or (_threads() and not ours):
        if held is not None:
            vacated(*held)
        raise SpoolscopeError(
            "another NFS server runs in this machine",
            remedy="end it, or leave out what NFS serves",
        )
    try:
        _stop()
        with _daemons(), mount_point() as place:
            try:
                images.run("rpc.nfsd", str(THREADS))
                for file in _NO_GRACE:
                    file.write_text("Y\n")
                yield place
            finally:
                with undisturbed():
                    withdraw(place)
                    _stop()
    finally:
        vacated(*held)


def withdraw(place: Path) -> None:
    """Export a directory no more, and unmount what is mounted there."""
    words = ["exportfs", "-u", f"127.0.0.1:{place}"]
    env = {"PATH": images.program_path()}
    subprocess.run(words, capture_output=True, check=False, env=env)
    images.unmount(place)


def stop_left() -> None:
    """Stop the server of a killed command, which would keep its filesystem and loop device.

    Raises:
        SpoolscopeError: it cannot be stopped.
    """
    if not SERVER.exists() or (held := taken(SERVER)) is None:
        return
    try:
        # Those that a program made, which has no mounts of its own.
        for mount in reversed(mounts()):
            if mount.fstype in NFS and mount.place.parent == RUN:
                images.unmount(mount.place)
        _stop()
    finally:
        vacated(*held)


def missing_program() -> str:
    """Return a program that is needed and not here; empty if all are."""
    path = images.program_path()
    return next((name for name in PROGRAMS if not shutil.which(name, path=path)), "")


def _threads() -> int:
    if not any(mount.place == _NFSD for mount in mounts()):
        images.mount(Path("nfsd"), _NFSD, "nfsd", "nosuid,nodev,noexec")
    return int((_NFSD / "threads").read_text())


def _stop() -> None:
    """Stop the kernel's threads, which then hold nothing that is exported any more."""
    if _threads():
        images.run("rpc.nfsd", "0")


@contextmanager
def _daemons() -> Iterator[None]:
    """Have the programs run that a server needs; they end with this process, however it ends."""
    with subprocess.Popen(
        [*_TOGETHER, "sh", "-c", _DAEMONS],
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        env={"PATH": images.program_path()},
    ) as begun:
        try:
            assert begun.stdout is not None
            if begun.stdout.readline() != b"up\n":
                raise SpoolscopeError(
                    "the programs of an NFS server do not run",
                    remedy="see what 'rpcbind -f -d' and 'rpc.mountd -F -d all' say",
                )
            yield
        finally:
            with undisturbed():
                begun.kill()
