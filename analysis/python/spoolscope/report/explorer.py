"""A selected window of a recording: its causes, processes and slowest calls, summed in the page.

The sums of each bin are made by the analysis; the page only adds them up.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from spoolscope.analysis.bins import MARKS, SLOWEST, Bins
from spoolscope.analysis.causes import BETWEEN_PROGRAMS, CAUSES, charged
from spoolscope.analysis.study import Study
from spoolscope.analysis.wording import count, duration, fitting, percent
from spoolscope.report.figures.base import Exact, Figure, Table, count_cell, time_cell
from spoolscope.report.figures.heat import heat_map

LONGEST = 120
"""Most characters of a path, so that the page of any trace stays small."""


@dataclass(frozen=True)
class Explorer(Figure):
    """A heat map with the data for sums over a window of it.

    Attributes:
        data: See ``_data``.
    """

    data: dict[str, Any] = field(default_factory=dict, repr=False)

    @property
    def seconds(self) -> tuple[float, float]:
        """Length of a bin and of all bins, s."""
        return self.data["bin_ns"] / 1e9, self.data["bin_ns"] * self.data["n"] / 1e9


def explorer(key: str, name: str, study: Study, *, folded: bool = False) -> Explorer:
    """Return the heat map of a study with its window."""
    bins, found = study.bins, study.explanation
    locks = "Calls for locks between programs are left out of the heat map and the slowest calls. "
    return Explorer(
        key=key,
        title=f"Latency over time: {name}",
        finding=_finding(bins),
        caption=f"{count(found.n_calls)} calls in {count(bins.n)} bins of "
        f"{duration(bins.bin_ns)}; each counts where it began, with all of its time. {locks}"
        "The strips show for how much of a bin a commit was under way, a disk emptied its cache, "
        "or calls waited for a frozen filesystem. Drag over the heat map, or give two times, to "
        "see a window; a double click shows all.",
        table=_table(bins),
        plot=heat_map(bins),
        data=_data(study),
        folded=folded,
    )


def _finding(bins: Bins) -> str:
    at = bins.worst
    causes = charged(bins.causes(at, at))
    if not causes:
        return "No time was spent in calls."
    cause = max(causes, key=lambda key: causes[key])
    total = sum(causes.values())
    return (
        f"Most time in calls falls into the {duration(bins.bin_ns)} from "
        f"{at * bins.bin_ns / 1e9:g} s on: {duration(total)}, "
        f"{percent(causes[cause] / total, 0)} of it {CAUSES[cause].label}."
    )


def _table(bins: Bins) -> Table:
    marks = [f">{MARKS[mark]}" for mark in bins.marks]
    heads = [">from", ">calls", ">time", "mostly", ">slowest call", *marks]
    rows: list[Sequence[str | Exact]] = []
    for at in range(bins.n):
        causes = bins.causes(at, at)
        largest = max(causes, key=lambda key: causes[key], default="")
        rows.append(
            [
                time_cell(at * bins.bin_ns),
                count_cell(sum(process.calls[at] for process in bins.processes.values())),
                time_cell(sum(causes.values())),
                CAUSES[largest].label if largest else "-",
                time_cell(max((call.dur_ns for call in bins.slowest[at]), default=None)),
                *(time_cell(mark.covered_ns[at]) for mark in bins.marks.values()),
            ]
        )
    return Table(heads, rows)


def _data(study: Study) -> dict[str, Any]:
    """Return the data that the page adds up.

    ``times`` has for each process, in their order, {cause: [ns by bin]}; a slow call is [bin,
    ns since the recording began, program, pid, call, path, ns, cause, ns of it], words by their
    place in ``words``.
    """
    bins = study.bins
    words: dict[str, int] = {}

    def place(word: str | None) -> int:
        if word is None:
            return -1
        return words.setdefault(fitting(word, LONGEST), len(words))

    slowest = [
        [at, call.at_ns, place(call.comm), call.pid, place(call.syscall), place(call.path),
         call.dur_ns, place(call.cause), call.cause_ns]
        for at, calls in enumerate(bins.slowest) for call in calls
    ]  # fmt: skip
    return {
        "trace": str(study.explanation.trace),
        "bin_ns": bins.bin_ns,
        "n": bins.n,
        "worst": bins.worst,
        "processes": list(bins.processes),
        "calls": [process.calls for process in bins.processes.values()],
        "times": [process.causes for process in bins.processes.values()],
        "slowest": slowest,
        "shown": SLOWEST,
        "words": list(words),
        "labels": {cause: CAUSES[cause].label for cause in CAUSES},
        "apart": list(BETWEEN_PROGRAMS),
        "marks": {MARKS[name]: [mark.begun, mark.covered_ns, mark.longest_ns]
                  for name, mark in bins.marks.items()},
    }  # fmt: skip
