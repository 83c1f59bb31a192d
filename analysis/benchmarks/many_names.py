"""The cost of a spool of many names: python analysis/benchmarks/many_names.py --scale 0.01.

At --scale 1 the spool has 1,000,000 Maildirs (each with cur, new and tmp) and one directory of
1,000,000 files. It is made on a fresh image, and a load is recorded there: deliveries and readings
in Maildirs chosen at random, and listings of the large directory. The recording is then explained,
planned, reported and replayed. Prints the wall time of each step and the peak memory of its largest
process: all resident memory, and the part without a file behind it. Needs root.
"""

import argparse
import multiprocessing
import os
import random
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from spoolscope.replay.candidates import parse
from spoolscope.replay.targets import image_bytes, prepared

BOXES, FILES = 1_000_000, 1_000_000
BOXES_TOGETHER = 1000
BIG = "archive"
DELIVERERS, DELIVERIES, READINGS, LISTINGS = 4, 100, 100, 2
MESSAGE = b"x" * 3000
POLL_S = 0.02
SPOOLSCOPE = [sys.executable, "-c", "from spoolscope.cli.main import main; main()"]


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--scale", type=float, default=0.01)
    parser.add_argument("--on", action="append", help="candidate (ext4, xfs and btrfs)")
    parser.add_argument("--work", type=Path, default=Path("/var/tmp"), help="for images and traces")
    parser.add_argument("--load", type=Path, help=argparse.SUPPRESS)  # the recorded program
    options = parser.parse_args()
    boxes, files = round(BOXES * options.scale), round(FILES * options.scale)
    if options.load:
        load(options.load, boxes)
        return 0
    print(f"{boxes:,} Maildirs, {files:,} files in one directory", flush=True)
    for candidate in options.on or ["ext4", "xfs", "btrfs"]:
        with tempfile.TemporaryDirectory(prefix="spoolscope-bench-", dir=options.work) as scratch:
            measure(candidate, options.scale, boxes, files, Path(scratch))
    return 0


def measure(candidate: str, scale: float, boxes: int, files: int, work: Path) -> None:
    """Print the cost of each step on a candidate."""
    print(f"\n{candidate:<34}{'seconds':>9}{'MiB':>8}{'anonymous':>11}")
    trace, replay = work / "trace", work / "replay"
    with prepared(parse(candidate), work, image_bytes(0, 4 * boxes + files)) as target:
        with timed("making the spool"):
            fill(target.mount, boxes, files)
        target.cool()
        words = [sys.executable, __file__, "--load", target.mount, "--scale", scale]
        step("record", "record", "--spool", target.mount, "-o", trace, "--", *words)
    for table in ("tree", "paths", "syscalls"):
        size = (trace / f"{table}.parquet").stat().st_size
        print(f"  {table + '.parquet':<32}{size / 1e6:>9.1f} MB")
    step("info", "info", trace)
    step("explain", "explain", trace, "--blame")
    step("plan", "plan", trace)
    step("report", "report", trace, "-o", work / "trace.html")
    print(f"  {'report':<32}{(work / 'trace.html').stat().st_size / 1e6:>9.1f} MB")
    step("replay", "replay", trace, "--on", candidate, "--pace", "afap", "-o", replay)
    step("compare", "compare", replay)
    step("report of it", "report", replay, "-o", work / "replay.html")


@dataclass
class Used:
    """Wall time of one program, seconds, and its peak memory, bytes."""

    began_s: float
    ended_s: float
    resident: int = 0
    anonymous: int = 0


@contextmanager
def timed(name: str) -> Iterator[None]:
    began = time.monotonic()
    yield
    print(f"  {name:<32}{time.monotonic() - began:>9.1f}", flush=True)


def step(name: str, *words: object) -> None:
    """Run a command of spoolscope; print its usage and that of each of its native programs."""
    used: dict[str, Used] = {}
    began = time.monotonic()
    with tempfile.TemporaryFile("w+") as said:
        command = [*SPOOLSCOPE, *map(str, words)]
        process = subprocess.Popen(command, stdout=said, stderr=said)
        stop = threading.Event()
        watcher = threading.Thread(target=_watch, args=(process.pid, used, stop))
        watcher.start()
        status = process.wait()
        stop.set()
        watcher.join()
        said.seek(0)
        if status not in (0, 3):
            sys.exit(f"{name} ended with {status}: {said.read()}")
    whole = used.pop("python", Used(0, 0))
    seconds = time.monotonic() - began
    told = "" if status == 0 else "  (incomplete or diverged)"
    print(_row(name, seconds, whole) + told, flush=True)
    for program, needed in used.items():
        print(_row(f"  {program}", needed.ended_s - needed.began_s, needed), flush=True)


def _row(name: str, seconds: float, used: Used) -> str:
    memory = f"{used.resident / 2**20:>8,.0f}{used.anonymous / 2**20:>11,.0f}"
    return f"  {name:<32}{seconds:>9.1f}{memory}"


def _watch(pid: int, used: dict[str, Used], stop: threading.Event) -> None:
    """Note the usage of a process and its children, by program, until it is over."""
    while not stop.wait(POLL_S):
        for child in _family(pid):
            try:
                words = Path(f"/proc/{child}/cmdline").read_bytes().split(b"\0")
                status = Path(f"/proc/{child}/status").read_text()
            except OSError:
                continue
            name = "python" if child == pid else _named(words)
            if name is None:
                continue
            now = time.monotonic()
            seen = used.setdefault(name, Used(now, now))
            seen.ended_s = now
            seen.resident = max(seen.resident, _kib(status, "VmHWM") << 10)
            kept = _kib(status, "RssAnon") + _kib(status, "RssShmem")
            seen.anonymous = max(seen.anonymous, kept << 10)


def _family(pid: int) -> list[int]:
    found, pending = [], [pid]
    while pending:
        at = pending.pop()
        found.append(at)
        for children in Path(f"/proc/{at}/task").glob("*/children"):
            try:
                pending += map(int, children.read_text().split())
            except OSError:
                continue
    return found


def _named(words: list[bytes]) -> str | None:
    """Return the name of a program in the table; None if it is not one of ours."""
    name = os.path.basename(words[0]).decode()  # noqa: PTH119 - bytes
    if name == "spoolscope-replay":
        verbs = (b"order", b"fixture", b"run", b"verify", b"explain")
        return name + " " + next((w.decode() for w in words if w in verbs), "")
    return name if name == "spoolscope-record" else None


def _kib(status: str, key: str) -> int:
    lines = (line.split() for line in status.splitlines() if line.startswith(key + ":"))
    return next((int(words[1]) for words in lines), 0)


def box(number: int) -> str:
    """Return the path of a Maildir; each directory has a thousand, as with a hashed layout."""
    return f"{number // BOXES_TOGETHER:03d}/user{number:07d}"


def fill(spool: Path, boxes: int, files: int) -> None:
    """Make the Maildirs and the large directory."""
    for group in range(-(-boxes // BOXES_TOGETHER)):
        (spool / f"{group:03d}").mkdir()
    for number in range(boxes):
        place = f"{spool}/{box(number)}"
        os.mkdir(place)  # noqa: PTH102 - a Path for each takes as long as the call
        for part in ("cur", "new", "tmp"):
            os.mkdir(f"{place}/{part}")  # noqa: PTH102
    big = spool / BIG
    big.mkdir()
    for number in range(files):
        name = f"{big}/{1_700_000_000 + number}.M{number % 1_000_003}P77.mail,S=0:2,S"
        os.close(os.open(name, os.O_CREAT | os.O_WRONLY, 0o600))
    os.sync()


def load(spool: Path, boxes: int) -> None:
    """Deliver and read in Maildirs chosen at random, and list the large directory."""
    os.chdir(spool)
    workers = [multiprocessing.Process(target=_mail, args=(boxes, n)) for n in range(DELIVERERS)]
    workers += [multiprocessing.Process(target=_list)]
    for worker in workers:
        worker.start()
    for worker in workers:
        worker.join()


def _mail(boxes: int, seed: int) -> None:
    generator = random.Random(seed)
    for number in range(max(DELIVERIES, READINGS)):
        place = box(generator.randrange(boxes))
        name = f"{1_800_000_000 + number}.P{seed}.mail"
        file = os.open(f"{place}/tmp/{name}", os.O_CREAT | os.O_EXCL | os.O_WRONLY, 0o600)
        os.write(file, MESSAGE)
        os.fsync(file)
        os.close(file)
        os.rename(f"{place}/tmp/{name}", f"{place}/new/{name}")  # noqa: PTH104
        _read(box(generator.randrange(boxes)))
        _read(place)


def _read(place: str) -> None:
    """Read new messages of a Maildir, as an IMAP server does."""
    for name in os.listdir(f"{place}/new"):  # noqa: PTH208
        os.rename(f"{place}/new/{name}", f"{place}/cur/{name}:2,S")  # noqa: PTH104
    for name in os.listdir(f"{place}/cur"):  # noqa: PTH208
        file = os.open(f"{place}/cur/{name}", os.O_RDONLY)
        os.read(file, 4096)
        os.close(file)


def _list() -> None:
    for _ in range(LISTINGS):
        os.listdir(BIG)  # noqa: PTH208


if __name__ == "__main__":
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(1))
    sys.exit(main())
