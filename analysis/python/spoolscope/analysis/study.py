"""Everything a report shows about one trace, computed in one pass over it."""

from dataclasses import dataclass
from pathlib import Path

from spoolscope.analysis.causes import CAUSES
from spoolscope.analysis.explain import Explanation, explain_with
from spoolscope.analysis.hotspots import (
    Directory,
    PathClassTime,
    SlowCall,
    hot_directories,
    path_classes,
    prepare,
    slowest_calls,
)
from spoolscope.analysis.latency import Curve, curves
from spoolscope.analysis.timeline import Timeline, timeline
from spoolscope.analysis.why import by_family, family_label
from spoolscope.analysis.wording import count, duration, percent
from spoolscope.traces.trace import Trace


@dataclass(frozen=True)
class Study:
    """One trace, explained and looked at from all sides; see the modules of the fields."""

    name: str
    explanation: Explanation
    timeline: Timeline
    curves: list[Curve]
    path_classes: list[PathClassTime]
    directories: list[Directory]
    slowest: list[SlowCall]

    @property
    def headline(self) -> str:
        """The largest part of the time, in one sentence."""
        found = self.explanation
        if not found.latency_ns:
            return "No time was spent in calls."
        (family, cause), ns = self.largest[0]
        said = f"{percent(ns / found.latency_ns, 0)} of the time in calls is {family_label(family)}"
        return f"{said}: {CAUSES[cause].label}."

    @property
    def largest(self) -> list[tuple[tuple[str, str], float]]:
        """The largest parts by (family of calls, cause)."""
        table = by_family({n: c.causes for n, c in self.explanation.by_syscall.items()})
        return sorted(table.items(), key=lambda item: -item[1])

    @property
    def findings(self) -> list[str]:
        """The next largest parts and who caused the commits, one sentence each."""
        total = self.explanation.latency_ns or 1
        said = [
            f"{duration(ns)} ({percent(ns / total)}) in {family_label(family)}: "
            f"{CAUSES[cause].meaning}"
            for (family, cause), ns in self.largest[:3]
        ]
        blame = self.explanation.commits.blame
        if blame and blame[0].others_ns:
            top = blame[0]
            said.append(
                f"{top.comm} ({top.syscall} on {top.path_class}) triggered {count(top.n)} commits; "
                f"others waited {duration(top.others_ns)} for them."
            )
        return said


def study(path: Path, name: str | None = None) -> Study:
    """Study a trace.

    Raises:
        SpoolscopeError: it is not a trace, or is damaged.
    """
    trace = Trace.open(path)
    with trace.connect() as con:
        explanation = explain_with(con, trace)
        prepare(con)
        return Study(
            name=name or path.name,
            explanation=explanation,
            timeline=timeline(con),
            curves=curves(con),
            path_classes=path_classes(con),
            directories=hot_directories(con),
            slowest=slowest_calls(con),
        )
