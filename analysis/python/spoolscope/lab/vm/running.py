"""A running machine: one command in it, its output, its results, its end."""

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
"""Directory for images inside the machine, on a disk."""
SILENCE_S = 120.0
"""Seconds without a heartbeat before a machine is given up. The heartbeat comes every 2 s of the
machine's own time, which is much longer on a busy host."""
MOST_BYTES = 64 << 30
CONSOLE_LINES = 20
MIB = 1 << 20


@dataclass(frozen=True)
class Log:
    """Messages of QEMU and of the kernel in it."""

    file: IO[bytes]

    def lines(self) -> list[str]:
        """Return the messages, QEMU's own first."""
        self.file.seek(0)
        return self.file.read().decode(errors="replace").replace("\r", "").splitlines()

    def death(self) -> str:
        """Return how the machine ended."""
        panics = (line.partition("Kernel panic - ")[2] for line in self.lines())
        why = next(filter(None, panics), "")
        return f"panicked ({why})" if why else "went off"


class MachineError(SpoolscopeError):
    """A machine ended before its command did; it says the last messages of its kernel or QEMU."""

    def __init__(self, machine: Machine, what: str, log: Log) -> None:
        super().__init__(
            f"the machine with kernel {machine.kernel.release} {what}",
            remedy="see the end of its console; --memory gives it more",
            said=[f"console: {line}" for line in log.lines()[-CONSOLE_LINES:]],
        )


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

    It sees the files of this machine, and its writes stay inside; all except ``back`` vanish with
    it, and it always ends with this process. The block that follows is for ``Ended.bring``.

    Args:
        machine: Machine to boot.
        command: Program and arguments, looked up as in this process.
        back: Absolute paths for later calls of ``Ended.bring``.
        disks: Images that appear as /dev/vda and so on.
        work: Directory for its unnamed disk files, /var/tmp by default.
        directory: Working directory of the command.
        environment: Environment of the command; by default that of this process.
        out: Destination of its output, as it is printed; by default this process's output.
        err: Destination of its errors, the same.
        terminal: True if the command gets this process's terminal instead.
        scratch: True if its writes go to a disk (with ext4), not to its memory.
        silence_s: Longest silence of a machine before it is given up.

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
            what = f"said nothing for {silence_s:.0f} s and was ended"
            raise MachineError(machine, what, log) from None
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
    """Make a sparse disk as large as the free space; it has no name, so it leaves nothing."""
    file = tempfile.TemporaryFile(dir=place)  # noqa: SIM115 - closed by the caller
    file.write(begins_with)
    file.flush()
    file.truncate(min(MOST_BYTES, shutil.disk_usage(place).free // MIB * MIB))
    return file


def _path(file: IO[bytes]) -> Path:
    """Return a path with which child processes can open the file."""
    return Path(f"/proc/{os.getpid()}/fd/{file.fileno()}")


def _kill(qemu: subprocess.Popen[bytes]) -> None:
    qemu.kill()
    qemu.wait()
