"""The loads, whose calls are known, and the filesystems they run on."""

import json
import os
import shutil
import subprocess
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

HERE = Path(__file__).parent
SPOOL, TMPFS = "spool", "/dev/shm"
Wrap = Callable[[list[str]], list[str]]


@dataclass(frozen=True)
class Workload:
    """One way to run mailload.

    Attributes:
        name: Key in the results.
        title: Description for readers.
        operation: The operation that mailload repeats.
        processes: Number of processes.
        seconds: Duration at full length.
        place: SPOOL, the recorded filesystem, or TMPFS.
    """

    name: str
    title: str
    operation: str
    processes: int
    seconds: float
    place: str


WORKLOADS = (
    Workload("delivery", "Maildir delivery with fsync, 4 processes", "delivery", 4, 1.5, SPOOL),
    Workload("metadata", "metadata loop in the page cache, 1 process", "metadata", 1, 0.7, SPOOL),
    Workload("metadata_all", "the same on every CPU", "metadata", os.cpu_count() or 1, 0.7, SPOOL),
    Workload("elsewhere", "a process that does nothing on the spool", "elsewhere", 1, 0.5, TMPFS),
)


@dataclass(frozen=True)
class Run:
    """Figures that a load measured itself; 0 if not measured.

    Attributes:
        ops: Operations.
        ns: Time from the first to the last.
        calls: Calls on files, of all processes.
        cpu_ns: CPU time of all processes of the load.
        p50_ns: Median time of one operation.
        p99_ns: 99th percentile of it.
    """

    ops: int
    ns: int
    calls: int = 0
    cpu_ns: int = 0
    p50_ns: int = 0
    p99_ns: int = 0

    @property
    def ns_per_op(self) -> float:
        return self.ns / self.ops

    @property
    def cpu_ns_per_op(self) -> float:
        return self.cpu_ns / self.ops


@dataclass(frozen=True)
class Ground:
    """The directories in which the loads run.

    Attributes:
        work: Files of the benchmark: programs, captures, outputs of the other tools.
        spool: Mount point of a fresh ext4.
    """

    work: Path
    spool: Path

    def run(
        self, workload: Workload, wrap: Wrap = lambda command: command, scale: float = 1.0
    ) -> Run:
        """Run a load in a directory of its own, which is removed afterwards."""
        parent = self.spool if workload.place == SPOOL else Path(TMPFS)
        directory = Path(tempfile.mkdtemp(prefix="bench-", dir=parent))
        command = [str(self.work / "mailload"), workload.operation, str(directory)]
        command += [str(workload.processes), str(workload.seconds * scale)]
        try:
            done = subprocess.run(wrap(command), capture_output=True, text=True, check=False)
        finally:
            shutil.rmtree(directory)
            if workload.place == SPOOL:
                subprocess.run(["sync", "-f", parent], check=True)  # no run writes another's pages
        for line in done.stdout.splitlines():
            if line.startswith('{"ops"'):
                return Run(**json.loads(line))
        raise SystemExit(f"no answer from {command}: {done.stdout}{done.stderr}")


@contextmanager
def ground() -> Iterator[Ground]:
    """Compile the loads and mount a fresh ext4 image; both are removed afterwards."""
    work = Path(tempfile.mkdtemp(prefix="spoolscope-bench-", dir="/var/tmp"))
    spool = work / "spool"
    try:
        work.chmod(0o755)  # the rig's servers run as other users
        compile_loads(work)
        spool.mkdir()
        image = work / "ext4.img"
        with image.open("wb") as file:
            file.truncate(1 << 30)
        subprocess.run(["mkfs.ext4", "-q", "-F", image], check=True)
        subprocess.run(["mount", "-o", "loop,noatime", image, spool], check=True)
        try:
            yield Ground(work, spool)
        finally:
            subprocess.run(["umount", spool], check=True)
    finally:
        shutil.rmtree(work)


def compile_loads(work: Path) -> None:
    """Build the C programs of this directory."""
    for name in ("mailload", "firehose"):
        source = HERE / f"{name}.c"
        subprocess.run(["cc", "-O2", "-pthread", "-o", work / name, source], check=True)
