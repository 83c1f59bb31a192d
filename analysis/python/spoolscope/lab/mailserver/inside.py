"""The first process of a server's namespaces: makes its root, starts it, ends at end of input.

Run as a program by path, by ``unshare``. The first line of its input is JSON: see
``running.plan_of``. Its output is a line of JSON: ``ready``, or ``failed`` and the end of the
server's logs. When its input ends, it exits, and as it is process 1, all in its namespaces goes
with it: processes, mounts and sockets. Standard library only, all loaded before the mounts change.
"""

import ctypes
import fcntl
import grp
import json
import os
import pwd
import select
import signal
import socket
import struct
import subprocess
import sys
import threading
import time
from pathlib import Path
from typing import Any

RUN = Path("/run")
LOGS = RUN / "log"
LOG_LINES = 12
POLL_S = 0.1
DEVICES = ("null", "zero", "full", "random", "urandom", "tty")

# Numbers of <sys/mount.h> and <net/if.h>.
_MS_RDONLY, _MS_BIND, _MS_MOVE = 1, 1 << 12, 1 << 13
_SIOCGIFFLAGS, _SIOCSIFFLAGS, _IFF_UP = 0x8913, 0x8914, 1

_libc = ctypes.CDLL(None, use_errno=True)


class StartError(Exception):
    """The server cannot be started; the message is a sentence."""


def mount(source: str, place: Path, fstype: str = "", flags: int = 0, options: str = "") -> None:
    """Make the system call mount."""
    words = [os.fsencode(word) for word in (source, place, fstype, options)]
    if _libc.mount(words[0], words[1], words[2], ctypes.c_ulong(flags), words[3]) != 0:
        error = os.strerror(ctypes.get_errno())
        raise StartError(f"cannot mount {fstype or source} at {place}: {error}")


def make_root(root: int, spool: int) -> None:
    """Overlay this system's directories with packages, mount the spool, keep all else in memory.

    Args:
        root: Descriptor of the unpacked packages: /run, where they may lie, is hidden.
        spool: Descriptor of the spool, which is mounted at /run/spool.
    """
    mount("tmpfs", RUN, "tmpfs", options="mode=755")
    for name, descriptor in (("spool", spool), ("root", root)):
        (RUN / name).mkdir()
        mount(f"/proc/self/fd/{descriptor}", RUN / name, flags=_MS_BIND)
    for name in ("usr", "etc", "var"):
        upper, work = RUN / "over" / name / "upper", RUN / "over" / name / "work"
        upper.mkdir(parents=True)
        work.mkdir()
        # Packages may be kept below /var, and a layer must not lie in another.
        layers = f"/{name}" if name == "var" else f"/run/root/{name}:/{name}"
        options = f"lowerdir={layers},upperdir={upper},workdir={work}"
        mount("overlay", Path("/", name), "overlay", options=options)
    mount("tmpfs", Path("/tmp"), "tmpfs", options="mode=1777")
    _make_devices()
    LOGS.mkdir(mode=0o777)
    LOGS.chmod(0o1777)


def _make_devices() -> None:
    """Make a /dev in memory, so that a socket for logs can be in it."""
    place = RUN / "dev"
    place.mkdir()
    mount("tmpfs", place, "tmpfs", options="mode=755")
    for name in DEVICES:
        (place / name).touch()
        mount(f"/dev/{name}", place / name, flags=_MS_BIND)
    (place / "shm").mkdir()
    (place / "shm").chmod(0o1777)
    (place / "fd").symlink_to("/proc/self/fd")
    mount(str(place), Path("/dev"), flags=_MS_MOVE)


def bring_up_loopback() -> None:
    """Bring up the loopback interface, which is down in a new network namespace."""
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as any_socket:
        asked = struct.pack("16sh22x", b"lo", 0)
        _, flags = struct.unpack("16sh22x", fcntl.ioctl(any_socket, _SIOCGIFFLAGS, asked))
        fcntl.ioctl(any_socket, _SIOCSIFFLAGS, struct.pack("16sh22x", b"lo", flags | _IFF_UP))


def keep_log() -> None:
    """Write the daemons' syslog messages into a file, from now on."""
    receiver = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
    receiver.bind("/dev/log")
    Path("/dev/log").chmod(0o666)

    def receive() -> None:
        with (LOGS / "syslog").open("ab", buffering=0) as file:
            while True:
                file.write(receiver.recv(1 << 16).rstrip(b"\n\0") + b"\n")

    threading.Thread(target=receive, daemon=True).start()


def make_accounts(accounts: list[dict[str, Any]]) -> None:
    """Add users, each with a group of its name, unless they exist."""
    for account in accounts:
        name, number = account["name"], account["id"]
        with Path("/etc/group").open("a") as file:
            if name not in {one.gr_name for one in grp.getgrall()}:
                file.write(f"{name}:x:{number}:\n")
        with Path("/etc/passwd").open("a") as file:
            if name not in {one.pw_name for one in pwd.getpwall()}:
                file.write(f"{name}:x:{number}:{number}::{account['home']}:/usr/sbin/nologin\n")


def make_files(plan: dict[str, Any]) -> None:
    """Make directories, and then files; both have mode and owner."""
    for one in plan["directories"]:
        Path(one["path"]).mkdir(parents=True, exist_ok=True)
        _own(one)
    for one in plan["files"]:
        Path(one["path"]).parent.mkdir(parents=True, exist_ok=True)
        Path(one["path"]).write_text(one["text"])
        _own(one)


def _own(one: dict[str, Any]) -> None:
    user = pwd.getpwnam(one["owner"])
    os.chown(one["path"], user.pw_uid, grp.getgrnam(one.get("group") or one["owner"]).gr_gid)
    Path(one["path"]).chmod(one["mode"])


def start(commands: list[list[str]], ports: list[int], limit_s: float) -> None:
    """Run commands that start daemons, and wait until all ports answer."""
    for words in commands:
        with (LOGS / "start").open("ab") as log:
            try:
                done = subprocess.run(
                    words,
                    stdin=subprocess.DEVNULL,
                    stdout=log,
                    stderr=log,
                    check=False,
                    timeout=limit_s,
                )
            except FileNotFoundError:
                raise StartError(f"there is no program {words[0]}") from None
            except subprocess.TimeoutExpired:
                raise StartError(f"{words[0]} did not come back in {limit_s:g} s") from None
        if done.returncode:
            raise StartError(f"{words[0]} ended with status {done.returncode}")
    until = time.monotonic() + limit_s
    for port in ports:
        while not _answers(port):
            if time.monotonic() > until:
                raise StartError(f"no daemon answers at port {port} after {limit_s:g} s")
            time.sleep(POLL_S)


def _answers(port: int) -> bool:
    """Return True if a daemon sends a greeting: one that only listens may still fail to start."""
    try:
        with socket.create_connection(("127.0.0.1", port), timeout=1) as connection:
            return bool(connection.recv(1))
    except OSError:
        return False


def last_lines() -> list[str]:
    """Return the ends of all logs."""
    found = []
    for log in sorted(LOGS.iterdir()):
        lines = log.read_text(errors="replace").splitlines()[-LOG_LINES:]
        found += [f"{log.name}: {line}" for line in lines]
    return found


def reap_until_input_ends() -> None:
    """Wait for the end of the input; reap children, also those of ended daemons."""
    while not select.select([sys.stdin], [], [], POLL_S)[0] or os.read(0, 1 << 10):
        try:
            while os.waitpid(-1, os.WNOHANG) != (0, 0):
                pass
        except ChildProcessError:
            pass


def say(**words: Any) -> None:
    """Send a message to the command that started this process."""
    sys.stdout.write(json.dumps(words) + "\n")
    sys.stdout.flush()


def main() -> int:
    """Make the root, start the server, stay until the input ends."""
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, signal.SIG_IGN)  # the parent ends this process in order
    os.umask(0o022)
    plan = json.loads(sys.stdin.readline())
    try:
        root, spool = (os.open(plan[name], os.O_PATH) for name in ("root", "spool"))
        socket.sethostname(plan["host"])
        make_root(root, spool)
        bring_up_loopback()
        keep_log()
        make_accounts(plan["accounts"])
        make_files(plan)
        os.chdir("/")
        # Daemons must not inherit that these signals are ignored.
        for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
            signal.signal(number, signal.SIG_DFL)
        start(plan["start"], plan["ports"], plan["limit_s"])
    except (StartError, OSError) as error:
        say(failed=str(error), log=last_lines() if LOGS.is_dir() else [])
        return 1
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, signal.SIG_IGN)
    say(ready=True)
    reap_until_input_ends()
    return 0


if __name__ == "__main__":
    sys.exit(main())
