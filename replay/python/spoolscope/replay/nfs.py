"""An NFS server on this machine that runs only as long as a filesystem is exported."""

import os
import shutil
import signal
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager, suppress
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
"""This directory exists while the server is ours; the command that runs it holds its lock."""
THREADS = 8
"""Threads of the server, as many as in Debian."""

_NFSD = Path("/proc/fs/nfsd")
# These end the grace period, in which a new server waits for locks that clients had before.
_NO_GRACE = (_NFSD / "v4_end_grace", Path("/proc/fs/lockd/nlm_end_grace"))
# The daemons go into the background, and end with the first process of their namespace.
_DAEMONS = "rpcbind && rpc.statd && rpc.mountd && echo up && exec sleep infinity"
_TOGETHER = ("setpriv", "--pdeathsig", "KILL", "unshare", "--pid", "--fork", "--kill-child")


@contextmanager
def serving() -> Iterator[Path]:
    """Yield a directory that the server can export, and run the server meanwhile.

    A filesystem mounted there has to be withdrawn before the end.

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
    """Stop exporting a directory, and unmount what is mounted there."""
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
        # Mounts of a program that used this package, which has no mount namespace of its own.
        for mount in reversed(mounts()):
            if mount.fstype in NFS and mount.place.parent == RUN:
                images.unmount(mount.place)
        _stop()
    finally:
        vacated(*held)


def missing_program() -> str:
    """Return a program that is needed and missing; empty if all are there."""
    path = images.program_path()
    return next((name for name in PROGRAMS if not shutil.which(name, path=path)), "")


def _threads() -> int:
    if not any(mount.place == _NFSD for mount in mounts()):
        images.mount(Path("nfsd"), _NFSD, "nfsd", "nosuid,nodev,noexec")
    return int((_NFSD / "threads").read_text())


def _stop() -> None:
    """Stop the kernel's threads, so that they hold no exported filesystem any more."""
    if _threads():
        images.run("rpc.nfsd", "0")


@contextmanager
def _daemons() -> Iterator[None]:
    """Run the programs that a server needs; they end with this process, however it ends."""
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
                _end(begun)


def _end(begun: subprocess.Popen[bytes]) -> None:
    """Kill the programs, and wait until they are gone: the next server needs their ports."""
    # The first process of the namespace is gone only after all others, and unshare waits for it.
    place = Path(f"/proc/{begun.pid}/task/{begun.pid}/children")
    first = place.read_text().split() if place.exists() else []
    for pid in first:
        with suppress(ProcessLookupError):
            os.kill(int(pid), signal.SIGKILL)
    if not first:
        begun.kill()
