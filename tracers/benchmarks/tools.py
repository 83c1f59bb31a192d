"""The tools compared, each attached without knowledge of the processes that use the spool.

So all tools but strace, which can only follow a command, watch the whole machine.
"""

import re
import shutil
import signal
import subprocess
import time
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import IO

from recorder import Recorder, idle_target
from workloads import HERE, Wrap

READY_S = 20.0
SETTLE_S = 0.3
UNTRACED, FILTERED, SPOOLSCOPE, STRACE = "untraced", "filtered out", "spoolscope", "strace -f"


LOST = r"(?i)lost (\d+) events|LOST(?:_SAMPLES)? events:\s+(\d+)"


class UnusableError(Exception):
    """The tool does not run here; the message says why."""


@dataclass(frozen=True)
class Tool:
    """A tool and how to attach it.

    Attributes:
        name: Name in the tables.
        title: The command, as a reader would type it.
        attached: ``attached(work, spool)``: context in which the tool is attached; it yields the
            function that puts the tool before a command, if it must be its parent.
    """

    name: str
    title: str
    attached: Callable[[Path, Path], AbstractContextManager[Wrap]]


def unchanged(command: list[str]) -> list[str]:
    return command


@contextmanager
def untraced(_work: Path, _spool: Path) -> Iterator[Wrap]:
    yield unchanged


@contextmanager
def filtered_out(work: Path, spool: Path) -> Iterator[Wrap]:
    """Attach to everything, recording a process that does nothing."""
    with idle_target() as pid, Recorder(spool, work / "filtered.seg", "--pid", pid):
        yield unchanged


@contextmanager
def spoolscope(work: Path, spool: Path) -> Iterator[Wrap]:
    with Recorder(spool, work / "capture.seg") as recorder:
        yield unchanged
        recorder.stop()
    if recorder.lost:
        raise SystemExit(f"spoolscope lost {recorder.lost} records: {recorder.done}")


def strace(*words: str) -> Callable[[Path, Path], AbstractContextManager[Wrap]]:
    """Follow a command with strace; the log goes to a file."""

    @contextmanager
    def attached(work: Path, _spool: Path) -> Iterator[Wrap]:
        require("strace")
        log = work / "strace.txt"
        prefix = ["strace", "-f", *words, "-o", str(log)]
        done = subprocess.run([*prefix, "true"], capture_output=True, text=True, check=False)
        if done.returncode:
            raise UnusableError(complaint(done.stderr))
        try:
            yield lambda command: [*prefix, *command]
        finally:
            log.unlink(missing_ok=True)

    return attached


class Watcher:
    """A tool that watches the machine; OUTPUT in its words stands for its output file.

    Attributes:
        lost: Lost events that the tool reported, over all its runs.
    """

    def __init__(
        self, words: list[str], is_ready: Callable[[int, Path], bool], tell: Callable[[Path], str]
    ) -> None:
        self.words, self.is_ready, self.tell = words, is_ready, tell
        self.lost = 0

    @contextmanager
    def attached(self, work: Path, _spool: Path) -> Iterator[Wrap]:
        require(self.words[0])
        output, errors = work / f"{self.words[0]}.out", work / f"{self.words[0]}.err"
        command = [str(output) if word == "OUTPUT" else word for word in self.words]
        try:
            with errors.open("w") as stderr:
                process = start(command, stderr)
            try:
                wait_until_ready(process, output, self.is_ready, errors)
                yield unchanged
            finally:
                process.send_signal(signal.SIGINT)
                process.wait()
            said = self.tell(output) + errors.read_text()
            self.lost += sum(int(a or b) for a, b in re.findall(LOST, said))
        finally:
            output.unlink(missing_ok=True)
            errors.unlink(missing_ok=True)


def text(output: Path) -> str:
    return output.read_text(errors="replace")


def perf_statistics(output: Path) -> str:
    command = ["perf", "report", "-i", str(output), "--stats"]
    return subprocess.run(command, capture_output=True, text=True, check=False).stdout


def start(command: list[str], stderr: IO[str]) -> "subprocess.Popen[bytes]":
    return subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=stderr, stderr=stderr)


def wait_until_ready(
    process: "subprocess.Popen[bytes]",
    output: Path,
    is_ready: Callable[[int, Path], bool],
    errors: Path,
) -> None:
    deadline = time.monotonic() + READY_S
    while not is_ready(process.pid, output):
        if process.poll() is not None or time.monotonic() > deadline:
            raise UnusableError(complaint(errors.read_text()) or f"silent for {READY_S:.0f} s")
        time.sleep(0.05)
    time.sleep(SETTLE_S)


def has_printed(_pid: int, output: Path) -> bool:
    """Return whether calls arrive in the file; before that bpftrace writes 'Attaching' to it."""
    return output.exists() and output.stat().st_size > 4000


def has_events(pid: int, _output: Path) -> bool:
    """Return whether perf has opened its events: it prints nothing when it is ready."""
    links = Path(f"/proc/{pid}/fd").iterdir()
    return any("perf_event" in str(link.readlink()) for link in links if link.is_symlink())


def require(program: str) -> None:
    if not shutil.which(program):
        raise UnusableError(f"no program {program}; .ci/packages, group bench, has it")


def complaint(text: str) -> str:
    """Return the first line of a program's errors, without bpftrace's RLIMIT_MEMLOCK warning."""
    lines = (line.strip() for line in text.splitlines() if "RLIMIT_MEMLOCK" not in line)
    return next(filter(None, lines), "")


OURS = (
    Tool(UNTRACED, "untraced", untraced),
    Tool("untraced again", "untraced once more: the noise", untraced),
    Tool(FILTERED, "spoolscope attached, all filtered out", filtered_out),
    Tool(SPOOLSCOPE, "spoolscope", spoolscope),
)
PERF_TRACE = Watcher(["perf", "trace", "-a", "-o", "OUTPUT"], has_printed, text)
PERF_RECORD = Watcher(
    ["perf", "record", "-a", "-e", "raw_syscalls:*", "--exclude-perf", "-o", "OUTPUT"],
    has_events,
    perf_statistics,
)
BPFTRACE = Watcher(["bpftrace", "-o", "OUTPUT", str(HERE / "usual.bt")], has_printed, text)
OTHERS = (
    Tool(STRACE, "strace -f", strace()),
    Tool(
        "strace %file",
        "strace -f --seccomp-bpf -e trace=%file",
        strace("--seccomp-bpf", "-e", "trace=%file"),
    ),
    Tool("perf trace", "perf trace -a", PERF_TRACE.attached),
    Tool("perf record", "perf record -a -e raw_syscalls:*", PERF_RECORD.attached),
    Tool("bpftrace", "bpftrace, the usual script (usual.bt)", BPFTRACE.attached),
)


def lost_events() -> dict[str, int]:
    """Return, by tool, the number of lost events that it reported."""
    watchers = {"perf trace": PERF_TRACE, "perf record": PERF_RECORD, "bpftrace": BPFTRACE}
    return {name: watcher.lost for name, watcher in watchers.items()}
