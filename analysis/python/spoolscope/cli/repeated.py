"""A published comparison run again from a notebook: old and new figures, claims, causes."""

import os
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import plotly.graph_objects as go

from spoolscope.cli.called import call
from spoolscope.cli.printing import say
from spoolscope.cli.vm import EMULATED
from spoolscope.lab.workloads.causes import causes_of_steps
from spoolscope.report.figures.causes import stacked
from spoolscope.report.figures.then_now import then_and_now


@dataclass(frozen=True)
class Repeated:
    """The results of ``lab workload``.

    Attributes:
        asked: The words of its command up to the scale, for running it again.
        ends: Options that name the first and the last candidate.
        place: Directory of its results.
        found: The object that it prints with ``--json``.
    """

    asked: list[str]
    ends: list[str]
    place: Path
    found: dict[str, Any]

    def say_how_it_differs(self) -> None:
        """Print the differences between the load and the published one."""
        say(*(f"- {sentence}" for sentence in self.found["differs"]))

    @property
    def table(self) -> dict[str, Any]:
        """The first table with published figures, else the first."""
        tables: list[dict[str, Any]] = self.found["tables"]
        published = (t for t in tables if any(figure["then"] for figure in t["figures"]))
        return next(published, tables[0])

    def say_figures(self) -> None:
        """Print the published figures beside today's."""
        say(f"{'':54}{self.found['year']:>9}{'now':>12}")
        for figure in self.table["figures"]:
            if figure["now"] is not None:
                then = "-" if figure["then"] is None else f"{figure['then']:g}"
                name = f"{figure['metric']:28}{figure['candidate']:26}"
                say(f"{name}{then:>9}{figure['now']:>12.4g}")

    def ratios(self) -> go.Figure:
        """Return the published ratios and today's."""
        return then_and_now(self.table, self.found["year"], self.found["reference"])

    def say_claims(self) -> None:
        """Print the verdict on each claim."""
        for claim in self.found["claims"]:
            why = f" ({claim['why']})" if claim["why"] else ""
            say(f"{claim['verdict']:14} {claim['text']}{why}")

    def causes(self) -> go.Figure:
        """Run the first and the last candidate once more, recorded; return the causes by step."""
        name, scale = self.asked[0], self.asked[1:]
        recorded = self.place / "recorded"
        call("lab", "workload", name, *self.ends, *scale, "--record", "-o", recorded)
        rows = []
        for step, by_candidate in causes_of_steps(recorded).items():
            for candidate, spent in by_candidate.items():
                most = sorted(spent.items(), key=lambda item: -item[1])[:3]
                words = ", ".join(f"{cause} {ns / 1e6:.0f} ms" for cause, ns in most)
                say(f"{step:16}{candidate:26}{words}")
                rows.append((f"{step}: {candidate}", spent))
        return stacked(rows)


def repeat(name: str, candidates: Sequence[str], older: Sequence[str], scale: str) -> Repeated:
    """Run a workload as set in the environment, and print its scale and kernel.

    ``SPOOLSCOPE_SCALE`` (1 is the published size), ``SPOOLSCOPE_ROUNDS``, ``SPOOLSCOPE_VM`` (a
    kernel to boot) and ``SPOOLSCOPE_WORK`` (a directory for all files) are read.

    Args:
        name: The workload.
        candidates: Candidates that it runs on.
        older: Further candidates, if the booted kernel has them.
        scale: The scale if none is set.

    Raises:
        subprocess.CalledProcessError: it failed; its error is on stderr.
    """
    asks = os.environ.get
    kernel = asks("SPOOLSCOPE_VM", "")
    chosen = [*candidates, *(older if kernel else [])]
    on = [word for candidate in chosen for word in ("--on", candidate)]
    rest = ["--scale", asks("SPOOLSCOPE_SCALE", scale), *(["--vm", kernel] if kernel else [])]
    place = Path(tempfile.mkdtemp(prefix="notebook-", dir=asks("SPOOLSCOPE_WORK")))
    rounds = asks("SPOOLSCOPE_ROUNDS", "1")
    found = call("lab", "workload", name, *on, *rest, "--rounds", rounds, "-o", place / "timed")
    machine = found["machine"]["accelerator"] if found["machine"] else "no machine of its own"
    say(f"{name} at scale {found['scale']:g}, {found['rounds']} rounds")
    say(f"Linux {found['kernel']}, {machine}")
    if machine == "tcg":
        say(EMULATED)
    ends = [word for candidate in (chosen[0], chosen[-1]) for word in ("--on", candidate)]
    return Repeated([name, *rest], ends, place, found)
