"""Test of the ranking: a real Postfix and Dovecot on several filesystems, and replays of one.

Writes analysis/RANKING.md. Each round loads the server on every candidate, in random order and with
the same arrivals, and records it; then the first recording on the first candidate is replayed on
all of them, likewise. Rounds are added until every interval of the time of a call is narrow
(``--narrow``: its upper end by its lower one), at most ``--rounds``. Needs root.
"""

import argparse
import math
import os
import platform
import random
import shlex
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from pathlib import Path

from spoolscope.analysis.causes import CAUSES
from spoolscope.analysis.compare import Comparison, compare
from spoolscope.analysis.own_filesystem import own_sentence
from spoolscope.analysis.stats import MINIMUM_ROUNDS, Estimate
from spoolscope.analysis.validation import Validated, Validation, validate
from spoolscope.analysis.wording import duration
from spoolscope.traces.trace import Trace

PAGE = Path(__file__).parents[2] / "RANKING.md"
CANDIDATES = (
    "ext4", "ext4-journal", "ext4-writeback", "ext3", "ext2", "xfs", "btrfs", "btrfs-zstd",
)  # fmt: skip
TOOL = [sys.executable, "-m", "spoolscope.cli.main"]
FAR = 100
"""Width from which an interval shows only that nothing is known."""
FINISHED = (0, 3)  # 3: some message failed, or some call diverged; the page states it


def main() -> None:
    """Make rounds until intervals are narrow, and write the page."""
    asked = _asked()
    with tempfile.TemporaryDirectory(prefix="ranking-", dir=asked.work) as work:
        rounds = Rounds(asked, Path(work))
        found = rounds.until_narrow()
        asked.page.write_text("\n".join(_page(asked, rounds, *found)) + "\n")
    print(f"Wrote {asked.page}")


def _asked() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--on", action="append", help="a candidate; the first is replayed")
    parser.add_argument("--rate", type=float, default=10.0, help="arrivals a second")
    parser.add_argument("--seconds", type=float, default=60.0, help="of each load")
    parser.add_argument("--users", type=int, default=60)
    parser.add_argument("--rounds", type=int, default=12, help="at the most")
    parser.add_argument("--narrow", type=float, default=1.2, help="upper end by lower end")
    parser.add_argument("--minutes", type=float, help="begin no round after so long")
    parser.add_argument("--work", default="/var/tmp", help="directory for images and traces")
    parser.add_argument("--page", type=Path, default=PAGE)
    asked = parser.parse_args()
    asked.on = asked.on or list(CANDIDATES)
    if os.geteuid():
        parser.error("it mounts filesystems and records: run it with sudo")
    return asked


class Rounds:
    """Recordings and replays so far.

    Attributes:
        recordings: By candidate, one for each round.
        replays: Outputs, one for each round.
        failed: Loads in which a message or session failed, or calls were lost.
    """

    def __init__(self, asked: argparse.Namespace, work: Path) -> None:
        self._asked, self._work = asked, work
        self.recordings: dict[str, list[Path]] = {name: [] for name in asked.on}
        self.replays: list[Path] = []
        self.failed = 0
        self.began = time.monotonic()

    def until_narrow(self) -> tuple[Validation, Comparison]:
        """Make rounds and return their results; after a signal those of complete rounds."""
        signal.signal(signal.SIGTERM, signal.default_int_handler)
        found: tuple[Validation, Comparison] | None = None
        try:
            while found is None or not self._is_enough(found[0]):
                self._one()
                found = self._judged()
        except KeyboardInterrupt:
            if found is None:
                raise
        return found

    def _judged(self) -> tuple[Validation, Comparison]:
        traces = {
            name: [Trace.open(path) for path in some[: len(self.replays)]]
            for name, some in self.recordings.items()
        }
        found = compare(self.replays, self._asked.on[0], trace=self._first())
        return validate(traces, found), found

    def _is_enough(self, validation: Validation) -> bool:
        n, minutes = len(self.replays), (time.monotonic() - self.began) / 60
        late = self._asked.minutes is not None and minutes >= self._asked.minutes
        narrow = n >= MINIMUM_ROUNDS and self._is_narrow(validation)
        return n >= self._asked.rounds or late or narrow

    def _first(self) -> Path:
        return self.recordings[self._asked.on[0]][0]

    def _one(self) -> None:
        seed = len(self.replays) + 1
        order = list(self._asked.on)
        random.Random(seed).shuffle(order)
        for name in order:
            trace = self._work / f"{name}-{seed}.trace"
            load = ["--rate", f"{self._asked.rate:g}", "--seconds", f"{self._asked.seconds:g}"]
            load += ["--users", str(self._asked.users), "--seed", str(seed)]
            words = ["lab", "mailserver", "--server", "dovecot", "--on", name, *load]
            self.failed += _run([*words, "--work", str(self._work), "-o", str(trace)]) != 0
            self.recordings[name].append(trace)
        out = self._work / f"replay-{seed}"
        on = [word for name in self._asked.on for word in ("--on", name)]
        words = ["replay", str(self._first()), *on, "--seed", str(seed), "--no-life"]
        words += ["--repeats", "0"]  # as loads are not repeated, either
        _run([*words, "-o", str(out)])
        self.replays.append(out)

    def _is_narrow(self, validation: Validation) -> bool:
        sides = [one for r in validation.metrics[0].ratios for one in (r.recorded, r.replayed)]
        return all(e.low and e.high and e.high / e.low <= self._asked.narrow for e in sides)


def _run(words: Sequence[str]) -> int:
    print(shlex.join(["spoolscope", *words]), file=sys.stderr, flush=True)
    pipes = {"stdout": subprocess.DEVNULL, "stderr": subprocess.PIPE}
    with subprocess.Popen([*TOOL, *words, "-q"], text=True, **pipes) as process:
        try:
            _, complaint = process.communicate()
        except KeyboardInterrupt:
            process.terminate()  # it removes what it has set up
            raise
    if process.returncode not in FINISHED:
        sys.exit(f"{shlex.join(words)}: {complaint.strip()}")
    return process.returncode


def _page(
    asked: argparse.Namespace, rounds: Rounds, validation: Validation, found: Comparison
) -> Iterator[str]:
    n, minutes = len(rounds.replays), (time.monotonic() - rounds.began) / 60
    words = [f"--on {name}" for name in asked.on]
    words += [f"--rate {asked.rate:g} --seconds {asked.seconds:g} --users {asked.users}"]
    words += [f"--rounds {asked.rounds} --narrow {asked.narrow:g}"]
    words += [f"--minutes {asked.minutes:g}"] if asked.minutes is not None else []
    yield "# Does the ranking hold?"
    yield ""
    date, load = time.strftime("%Y-%m-%d"), os.getloadavg()[2]
    yield f"A real Postfix and Dovecot on {len(asked.on)} filesystems, {n} interleaved rounds, and"
    yield f"as many replays of one recording on {asked.on[0]}. Each load: {asked.rate:g} messages"
    yield f"and sessions a second for {asked.seconds:g} s, {asked.users} mailboxes."
    yield f"Linux {platform.release()}, {os.cpu_count()} CPUs at a load of {load:.1f}, {date},"
    yield f"{minutes:.0f} minutes; written by"
    yield f"`sudo .venv/bin/python analysis/benchmarks/ranking {' '.join(words)}`."
    yield ""
    loads = f"{rounds.failed} of {n * len(asked.on)} loads"
    yield f"* **{validation.verdict}** By the time of a call."
    yield f"* {own_sentence(found.replay, found.own)}"
    yield f"* A message or session failed, or calls were lost, in {loads}."
    yield from (f"* {warning}" for warning in validation.warnings)
    yield from _ratios(validation)
    yield from _causes(validation)


def _ratios(validation: Validation) -> Iterator[str]:
    yield ""
    yield f"Ratios to {validation.reference}, with 95 % intervals over the rounds. One that holds 1"
    yield "orders nothing; tau counts every pair, also those that chance orders."
    for metric in validation.metrics:
        if any(ratio.apart == ratio.apart for ratio in metric.ratios):
            yield from _ratios_of(metric)


def _ratios_of(metric: Validated) -> Iterator[str]:
    yield ""
    yield f"**{metric.label}**, tau {metric.tau:.2f}"
    yield ""
    yield "| filesystem | recorded | replayed | replay by recording |"
    yield "|---|---|---|---|"
    for ratio in metric.ratios:
        shown = f"{_shown(ratio.recorded)} | {_shown(ratio.replayed)}"
        apart = "-" if math.isnan(ratio.apart) else f"{100 * ratio.apart:+.0f} %"
        yield f"| {ratio.filesystem} | {shown} | {apart} |"


def _causes(validation: Validation) -> Iterator[str]:
    yield ""
    if not validation.causes:
        yield "No cause differs by 5 % or more of the time of a call."
        return
    yield "Causes whose time a call differs by 5 % or more of it:"
    yield ""
    yield "| filesystem | cause | recorded | replayed |"
    yield "|---|---|---|---|"
    for one in validation.causes:
        times = f"{duration(one.recorded_ns)} | {duration(one.replayed_ns)}"
        yield f"| {one.filesystem} | {CAUSES[one.cause].label} | {times} |"


def _shown(e: Estimate) -> str:
    if math.isnan(e.ratio):
        return "-"
    if e.low is None or e.high is None:
        return f"{e.ratio:.2f}"
    if e.high / e.low > FAR:
        return f"{e.ratio:.2f} (not known within {FAR} times)"
    return f"{e.ratio:.2f} ({e.low:.2f} to {e.high:.2f})"


if __name__ == "__main__":
    main()
