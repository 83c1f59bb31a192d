"""A machine that runs: one command in it, what that prints, its results, its end."""

import json
import os
import shutil
import socket
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import IO

from spoolscope.lab.vm.machine import Machine
from spoolscope.lab.vm.results import Ended, job
from spoolscope.lab.vm.watch import GRACE_S, SilentError, Watch
from spoolscope.replay import images
from spoolscope.traces.errors import SpoolscopeError

SCRATCH = Path("/run/spoolscope-vm/scratch")
"""Inside: a directory for images, on a disk."""
SILENCE_S = 120.0
"""A machine says every two seconds that it lives: of its own seconds, on a busy host much more."""
MOST_BYTES = 64 << 30
CONSOLE_LINES = 20
MIB = 1 << 20


@dataclass(frozen=True)
class Log:
    """What QEMU and the kernel in it print."""

    file: IO[bytes]

    def lines(self) -> list[str]:
        """Return it, QEMU's own words first."""
        self.file.seek(0)
        return self.file.read().decode(errors="replace").replace("\r", "").splitlines()

    def death(self) -> str:
        """Say how the machine went off."""
        panics = (line.partition("Kernel panic - ")[2] for line in self.lines())
        why = next(filter(None, panics), "")
        return f"panicked ({why})" if why else "went off"


class MachineError(SpoolscopeError):
    """A machine did not come to the end of its command.

    Attributes:
        console: The end of what its kernel, or QEMU, printed.
    """

    def __init__(self, machine: Machine, told: str, log: Log) -> None:
        super().__init__(
            f"the machine with kernel {machine.kernel.release} {told}",
            remedy="see the end of its console; --memory gives it more",
        )
        self.console = log.lines()[-CONSOLE_LINES:]


@contextmanager
def run(
    machine: Machine,
    command: Sequence[str | Path],
    *,
    back: Sequence[Path] = (),
    disks: Sequence[Path] = (),
    work: Path | None = None,
    directory: Path | None = None,
    environment: Mapping[str, str] | None = None,
    out: IO[bytes] | None = None,
    err: IO[bytes] | None = None,
    terminal: bool = False,
    scratch: bool = True,
    silence_s: float = SILENCE_S,
) -> Iterator[Ended]:
    """Boot a machine, run one command in it as root, and wait until it is off.

    It sees the files of this machine, and keeps what it writes for itself; but for ``back``
    all of that is gone with it, as it is with this process, whatever happens. The block that
    follows is for ``Ended.bring``.

    Args:
        machine: What to boot.
        command: Program and arguments, found and begun as here.
        back: Absolute paths that ``Ended.bring`` is to be asked for.
        disks: Images that appear as /dev/vda and so on.
        work: Directory for what it writes, /var/tmp if none; nothing is seen there.
        directory: Where the command begins.
        environment: Of the command; this process's own by default.
        out: Where its output goes, as it is printed; this process's own by default.
        err: Where its errors go, the same.
        terminal: The command gets this process's terminal instead.
        scratch: What it writes goes to a disk (with ext4), not to its memory.
        silence_s: How long a machine may say nothing before it is given up.

    Raises:
        MachineError: it crashed, or hung.
        SpoolscopeError: a program is missing.
    """
    place = work or Path(os.environ.get("TMPDIR", "/var/tmp"))
    inside = os.environ if environment is None else environment
    sent = job(command, back, directory or Path.cwd(), inside, json.dumps(machine.facts()))
    streams: dict[str, IO[bytes]] = {}
    if not terminal:
        streams = {"stdout": out or sys.stdout.buffer, "stderr": err or sys.stderr.buffer}
    with _disk(place, sent) as results, ExitStack() as stack:
        given = {disk.resolve(): "" for disk in disks}
        if scratch:
            room = stack.enter_context(_disk(place))
            images.run("mkfs.ext4", "-q", "-F", "-O", "^has_journal", _path(room))
            given[_path(room)] = "scratch"
        log = Log(stack.enter_context(tempfile.TemporaryFile(dir=place)))
        ends = {name: socket.socketpair() for name in ("control", *streams)}
        for pair in ends.values():
            for end in pair:
                stack.enter_context(end)
        words = machine.command(
            {**given, _path(results): "job"},
            {name: theirs.fileno() for name, (_, theirs) in ends.items()},
            _path(log.file),
        )
        qemu = _begin(words, [theirs for _, theirs in ends.values()], log, terminal=terminal)
        stack.callback(_kill, qemu)
        listened = {ends[name][0]: to for name, to in streams.items()}
        watch = Watch(ends["control"][0], listened, silence_s)
        try:
            watch.until_the_end()
        except SilentError:
            told = f"said nothing for {silence_s:.0f} s and was ended"
            raise MachineError(machine, told, log) from None
        with suppress(subprocess.TimeoutExpired):
            qemu.wait(GRACE_S)
        if watch.status is None:
            when = "before its command ended" if watch.began else "before it was up"
            raise MachineError(machine, f"{log.death()} {when}", log)
        if watch.carried:
            raise MachineError(machine, "could not write its results", log)
        stack.close()
        yield Ended(watch.status, watch.interrupted, results)


def _begin(
    words: list[str], ports: list[socket.socket], log: Log, *, terminal: bool
) -> subprocess.Popen[bytes]:
    """Start QEMU, which ends with this process, even if that is killed."""
    begun = subprocess.Popen(
        ["setpriv", "--pdeathsig", "KILL", *words],
        stdin=None if terminal else subprocess.DEVNULL,
        stdout=None if terminal else log.file,
        stderr=log.file,
        pass_fds=[port.fileno() for port in ports],
        start_new_session=not terminal,
        env=os.environ | {"PATH": images.program_path()},
    )
    for port in ports:
        port.close()
    return begun


def _disk(place: Path, begins_with: bytes = b"") -> IO[bytes]:
    """Make a sparse disk as large as there is room; it has no name, so nothing of it stays."""
    file = tempfile.TemporaryFile(dir=place)  # noqa: SIM115 - closed by the caller
    file.write(begins_with)
    file.flush()
    file.truncate(min(MOST_BYTES, shutil.disk_usage(place).free // MIB * MIB))
    return file


def _path(file: IO[bytes]) -> Path:
    """Return a path that the programs this process starts can open."""
    return Path(f"/proc/{os.getpid()}/fd/{file.fileno()}")


def _kill(qemu: subprocess.Popen[bytes]) -> None:
    qemu.kill()
    qemu.wait()
