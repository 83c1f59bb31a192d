"""One run of a workload: its steps on one fresh filesystem, each timed, perhaps recorded."""

import json
import resource
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from spoolscope.lab.workloads.native import PROGRAM, call, command
from spoolscope.lab.workloads.sampling import Sample, sampled
from spoolscope.replay import images
from spoolscope.replay.aftermath import check
from spoolscope.replay.job import Recorder
from spoolscope.replay.lifetime import Lifetime
from spoolscope.replay.targets import Target
from spoolscope.traces.errors import SpoolscopeError
from spoolscope.traces.phases import Progress

NS = 1e9
_FAULTS = ("major_faults", "minor_faults")


class Life(Lifetime):
    """Steps made by programs of the system, with their page faults counted, too."""

    @contextmanager
    def step(self, name: str) -> Iterator[None]:
        """Measure a step like ``Lifetime``, with page faults."""
        before = resource.getrusage(resource.RUSAGE_CHILDREN)
        with super().step(name):
            yield
        after = resource.getrusage(resource.RUSAGE_CHILDREN)
        self.steps[name] |= {
            "user_ns": round((after.ru_utime - before.ru_utime) * NS),
            "system_ns": round((after.ru_stime - before.ru_stime) * NS),
            "major_faults": after.ru_majflt - before.ru_majflt,
            "minor_faults": after.ru_minflt - before.ru_minflt,
        }


@dataclass
class Bench:
    """A target, with parameters and results of the steps of a workload on it.

    Attributes:
        workload: Name of the workload.
        target: A mounted target.
        life: Measurements of programs of the system.
        scale: Factor to the original size.
        seed: Seed of all random numbers.
        format: Mailbox format; empty if there are no mailboxes.
        work: Directory for reports and sources.
        kept: Directory of the run, for recordings.
        recorder: Function that records a step; None records nothing.
        show: Called with the step.
        steps: {step: report of the program}.
        figures: {metric: value}.
        series: {step: throughput of its devices over time}.
    """

    workload: str
    target: Target
    life: Life
    scale: float
    seed: int
    format: str
    work: Path
    kept: Path
    recorder: Recorder | None
    show: Progress
    steps: dict[str, dict[str, Any]] = field(default_factory=dict)
    figures: dict[str, float] = field(default_factory=dict)
    series: dict[str, list[Sample]] = field(default_factory=dict)

    @property
    def place(self) -> Path:
        """The load's own directory."""
        return self.target.mount

    def prepare(self, name: str, *words: str) -> None:
        """Let the native program do a preparing step, which is not recorded."""
        self._step(name, words, name, recorded=False)

    def step(self, name: str, *words: str, called: str = "") -> None:
        """Let the native program do a step.

        Args:
            name: Name of the step in the program.
            words: Further arguments for the program.
            called: Name of the step in the results, if different.

        Raises:
            SpoolscopeError: the program failed.
        """
        self._step(name, words, called or name, recorded=True)

    def _step(self, name: str, words: Sequence[str], called: str, *, recorded: bool) -> None:
        report = self.work / f"{called}.json"
        program = command(
            *(self.workload, name, *words),
            *("--root", str(self.place), "--report", str(report)),
            *self.size_words(),
            *(("--format", self.format) if self.format else ()),
        )
        self.make(called, program, report, recorded=recorded)

    def make(self, step: str, program: list[str], report: Path, *, recorded: bool) -> None:
        """Run a program, perhaps recorded, and keep its report of a step.

        Raises:
            SpoolscopeError: the program failed.
        """
        self.show(step, None)
        if self.recorder is None or not recorded:
            call(program)
        elif self.recorder(self.place, program, self.kept / f"{step}.trace", self._unseen):
            raise SpoolscopeError(
                f"step {step} of {self.workload} failed",
                remedy="see above, or leave out --record",
            )
        self.keep(step, json.loads(report.read_text()))

    def size_words(self) -> tuple[str, ...]:
        """Return the arguments for the native program's amount of work."""
        return "--scale", f"{self.scale:.9f}", "--seed", str(self.seed)

    def keep(self, step: str, report: dict[str, Any]) -> None:
        """Keep the report of a step, and the figures that follow from it."""
        self.steps[step] = report
        name = step.replace("-", "_")
        self.figures |= figures_of(name, report)

    def keep_program(self, step: str) -> None:
        """Keep the figures of a step made by programs of the system."""
        measured = self.life.steps.get(step)
        if measured is not None:
            self.figures |= _figures_of_program(step, measured)

    def add_up(self, metric: str, *parts: str) -> None:
        """Store a figure that is the sum of others."""
        self.figures[metric] = sum(self.figures[part] for part in parts)

    @contextmanager
    def throughput(self, step: str) -> Iterator[None]:
        """Keep the throughput of the target's devices over time during a step."""
        with sampled(self.target.devices()) as samples:
            yield
        self.series[step] = samples

    def check(self) -> None:
        """Check the unmounted filesystem with its own program, without changes."""
        if self.target.storage is None:
            self.life.left_out("check", "a directory is not unmounted")
            return
        self.show("check", None)
        self.target.storage.unmount(self.target.mount)
        check(self.target.storage, self.life)
        self.target.storage.forget()
        self.target.storage.mount(self.target.mount)
        self.keep_program("check")

    def umount(self) -> None:
        """Unmount the filesystem, after measuring what it holds when all is removed."""
        self.life.capacity("after_removal", self.target.mount)
        if self.target.storage is None:
            self.life.left_out("umount", "a directory is not unmounted")
            return
        self.show("umount", None)
        with self.life.step("umount"):
            images.run("umount", self.target.mount)
        self.keep_program("umount")

    def empty_caches(self) -> None:
        """Write everything back, and forget it: an image is unmounted and mounted again."""
        self.show("emptying caches", None)
        self.target.cool()

    def _unseen(self, _what: str, _done: float | None) -> None:
        """Show nothing of a recording's conversion."""


def figures_of(step: str, report: Mapping[str, Any]) -> dict[str, float]:
    """Return the figures of a step by metric.

    Programs that only feed others, such as the source of a tar, are left out of sums.
    """
    used = [one for name, one in report["processes"].items() if name != PROGRAM]
    total = {key: sum(one[key] for one in used) for key in ("user_ns", "system_ns", *_FAULTS)}
    wall = report["wall_ns"]
    found = {
        f"{step}_s": (wall + report["sync_ns"]) / NS,
        f"{step}_elapsed_s": wall / NS,
        f"{step}_user_s": total["user_ns"] / NS,
        f"{step}_system_s": total["system_ns"] / NS,
        f"{step}_cpu_pct": 100 * (total["user_ns"] + total["system_ns"]) / max(wall, 1),
        **{f"{step}_{key}": float(total[key]) for key in _FAULTS},
    }
    for deed, laps in report["laps"].items():
        if laps["n"]:
            found[f"{step}_{deed}_ms"] = laps["sum_ns"] / laps["n"] / 1e6
            found[f"{step}_{deed}_p99_ms"] = laps["p99_ns"] / 1e6
            found[f"{step}_{deed}_per_s"] = laps["n"] / (wall / NS) if wall else 0.0
    return found


def _figures_of_program(step: str, measured: Mapping[str, int | None]) -> dict[str, float]:
    wall, cpu = measured["ns"] or 0, measured["cpu_ns"] or 0
    return {
        f"{step}_s": wall / NS,
        f"{step}_cpu_pct": 100 * cpu / max(wall, 1),
        **{f"{step}_{key}": float(measured[key] or 0) for key in _FAULTS},
    }
