"""The cost of a spool of many names: python analysis/benchmarks/many_names.py --scale 0.01.

At --scale 1 the spool has 1,000,000 Maildirs (each with cur, new and tmp) and one directory of
1,000,000 files. It is made on a fresh image, and a load is recorded there: deliveries and readings
in Maildirs chosen at random, and listings of the large directory. The recording is then explained,
planned, reported and replayed. Prints the wall time of each step and the peak memory of its largest
process: all resident memory, and the part without a file behind it; -o writes them as a page. With
--until the later steps are left out, with --append the page gets further sections. Needs root.
"""

import argparse
import multiprocessing
import os
import platform
import random
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from spoolscope.replay.candidates import parse
from spoolscope.replay.targets import image_bytes, prepared

BOXES, FILES = 1_000_000, 1_000_000
BOXES_TOGETHER = 1000
BIG = "archive"
DELIVERERS, DELIVERIES, READINGS, LISTINGS = 4, 100, 100, 2
MESSAGE = b"x" * 3000
ONCE = "--no-life", "--repeats", "0"
STEPS = "explain", "report of it"
"""The steps that --until names."""
Row = tuple[str, str, str, str]
"""Step; seconds, or a size; MiB that are resident; those of them that no file is behind."""
POLL_S = 0.02
SPOOLSCOPE = [sys.executable, "-c", "from spoolscope.cli.main import main; main()"]


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--scale", type=float, default=0.01)
    parser.add_argument("--on", action="append", help="candidate (ext4, xfs and btrfs)")
    parser.add_argument("--work", type=Path, default=Path("/var/tmp"), help="for images and traces")
    parser.add_argument("-o", "--output", type=Path, help="page to write, in Markdown")
    parser.add_argument("--until", choices=STEPS, default=STEPS[-1], help="last step")
    parser.add_argument("--append", action="store_true", help="to the page, do not replace it")
    parser.add_argument("--load", type=Path, help=argparse.SUPPRESS)  # the recorded program
    options = parser.parse_args()
    boxes, files = round(BOXES * options.scale), round(FILES * options.scale)
    if options.load:
        load(options.load, boxes)
        return 0
    print(f"{boxes:,} Maildirs, {files:,} files in one directory", flush=True)
    page = options.output.read_text().splitlines() if options.append else [*_head()]
    page += ["", *_section(options, boxes, files)]
    for candidate in options.on or ["ext4", "xfs", "btrfs"]:
        with tempfile.TemporaryDirectory(prefix="spoolscope-bench-", dir=options.work) as scratch:
            rows = measure(candidate, options.scale, boxes, files, Path(scratch), options.until)
        page += ["", f"### {candidate}, at a load of {os.getloadavg()[2]:.1f}", "", *_table(rows)]
        if options.output:  # after each, as one takes minutes
            options.output.write_text("\n".join(page) + "\n")
    return 0


def _head() -> Iterator[str]:
    yield "# A spool of many names"
    yield ""
    yield f"The load of {DELIVERERS} deliverers and a lister is recorded, explained, planned,"
    yield "reported and replayed. Memory is that of the largest process of a step: all that is"
    yield "resident, and the part without a file behind it. Native programs are below their step."


def _section(options: argparse.Namespace, boxes: int, files: int) -> Iterator[str]:
    words = [f"--scale {options.scale:g}", *(f"--on {one}" for one in options.on or ())]
    words += [f"--until {options.until}"] if options.until != STEPS[-1] else []
    words += ["--append"] if options.append else []
    yield f"## {boxes:,} Maildirs"
    yield ""
    yield f"Each has cur, new and tmp; beside them is one directory of {files:,} files. Made by"
    yield f"`sudo .venv/bin/python analysis/benchmarks/many_names.py {' '.join(words)}"
    yield f"-o analysis/MANY-NAMES.md`, {time.strftime('%Y-%m-%d')}, Linux {platform.release()},"
    yield f"{os.cpu_count()} CPUs."


def _table(rows: Iterable[Row]) -> Iterator[str]:
    yield "| step | seconds, or size | resident, MiB | anonymous, MiB |"
    yield "|---|---|---|---|"
    yield from ("| " + " | ".join(row) + " |" for row in rows)


def measure(
    candidate: str, scale: float, boxes: int, files: int, work: Path, until: str
) -> list[Row]:
    """Print the cost of each step on a candidate, and return it."""
    rows: list[Row] = []

    def show(some: Iterable[Row]) -> None:
        for row in some:
            rows.append(row)
            print("  {:<32}{:>9}{:>8}{:>11}".format(*row), flush=True)

    def run(name: str, *words: object) -> None:
        show(step(name, *words))

    print(f"\n{candidate:<34}{'seconds':>9}{'MiB':>8}{'anonymous':>11}")
    trace, replay = work / "trace", work / "replay"
    with prepared(parse(candidate), work, image_bytes(0, 4 * boxes + files)) as target:
        show([timed("making the spool", lambda: fill(target.mount, boxes, files))])
        target.cool()
        words = [sys.executable, __file__, "--load", target.mount, "--scale", scale]
        run("record", "record", "--spool", target.mount, "-o", trace, "--", *words)
    show(sized(trace / f"{table}.parquet") for table in ("tree", "paths", "syscalls"))
    run("info", "info", trace)
    run("explain", "explain", trace, "--blame")
    if until == "explain":
        return rows
    run("plan", "plan", trace)
    run("report", "report", trace, "-o", work / "trace.html")
    show([sized(work / "trace.html")])
    run("replay", "replay", trace, "--on", candidate, "--pace", "afap", *ONCE, "-o", replay)
    run("compare", "compare", replay)
    run("report of it", "report", replay, "-o", work / "replay.html")
    return rows


@dataclass
class Used:
    """Wall time of one program, seconds, in which it may run often; its peak memory, bytes."""

    seconds: float = 0.0
    resident: int = 0
    anonymous: int = 0


def timed(name: str, work: Callable[[], None]) -> Row:
    """Return the wall time of a function."""
    began = time.monotonic()
    work()
    return name, f"{time.monotonic() - began:.1f}", "", ""


def sized(file: Path) -> Row:
    """Return the size of a file."""
    return f"`{file.name}`", f"{file.stat().st_size / 1e6:.1f} MB", "", ""


def step(name: str, *words: object) -> list[Row]:
    """Run a command of spoolscope; return its usage and that of each of its native programs."""
    used: dict[str, Used] = {}
    began = time.monotonic()
    with tempfile.TemporaryFile("w+") as said:
        command = [*SPOOLSCOPE, *map(str, words)]
        process = subprocess.Popen(command, stdout=said, stderr=said)
        stop = threading.Event()
        watcher = threading.Thread(target=_watch, args=(process.pid, used, stop))
        watcher.start()
        try:
            status = process.wait()
        finally:
            stop.set()
            watcher.join()
        said.seek(0)
        if status not in (0, 3):
            sys.exit(f"{name} ended with {status}: {said.read()}")
    whole = used.pop("python", Used())
    seconds = time.monotonic() - began
    ending = "" if status == 0 else " (incomplete or diverged)"
    own = [_row(f"\u2003{program}", needed.seconds, needed) for program, needed in used.items()]
    return [_row(name + ending, seconds, whole), *own]


def _row(name: str, seconds: float, used: Used) -> Row:
    memory = (f"{used.resident / 2**20:,.0f}", f"{used.anonymous / 2**20:,.0f}")
    return name, f"{seconds:.1f}", *memory


def _watch(pid: int, used: dict[str, Used], stop: threading.Event) -> None:
    """Note the usage of a process and its children, by program, until it is over."""
    last = time.monotonic()
    while not stop.wait(POLL_S):
        before, last = last, time.monotonic()
        running = set()
        for child in _family(pid):
            try:
                words = Path(f"/proc/{child}/cmdline").read_bytes().split(b"\0")
                status = Path(f"/proc/{child}/status").read_text()
            except OSError:
                continue
            name = "python" if child == pid else _named(words)
            if name is None:
                continue
            running.add(name)
            seen = used.setdefault(name, Used())
            seen.resident = max(seen.resident, _kib(status, "VmHWM") << 10)
            kept = _kib(status, "RssAnon") + _kib(status, "RssShmem")
            seen.anonymous = max(seen.anonymous, kept << 10)
        for name in running:
            used[name].seconds += last - before


def _family(pid: int) -> list[int]:
    found, pending = [], [pid]
    while pending:
        at = pending.pop()
        found.append(at)
        with suppress(OSError):  # it ends meanwhile
            for task in Path(f"/proc/{at}/task").iterdir():
                pending += map(int, (task / "children").read_text().split())
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
