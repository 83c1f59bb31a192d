"""Every candidate against the reference, with intervals."""

from collections.abc import Mapping

from spoolscope.analysis.causes import CAUSES
from spoolscope.analysis.compare import Comparison
from spoolscope.analysis.metrics import METRICS, PRIMARY
from spoolscope.analysis.wording import duration, interval, percent
from spoolscope.report.figures import compare as compare_figures
from spoolscope.report.inputs import Inputs
from spoolscope.report.kernels import kernels_table
from spoolscope.report.page import Figure, Section, Table, TableBlock

anchor = "compare"
MANY = 3
"""Number of candidates beside the reference above which figures show only the primary metric."""
METHODS = {
    "paired-t": "95 % t-interval over paired rounds",
    "within-run": "within-run bootstrap over time blocks of at least 1 s",
    "none": "no interval",
}


def applies(page: Inputs) -> bool:
    """Return True if there is a candidate beside the reference."""
    return page.found is not None and bool(page.found.pairs)


def make(page: Inputs) -> Section:
    """Every candidate against the reference, with intervals."""
    found = page.comparison
    rows = []
    for pair in found.pairs:
        estimates = {PRIMARY: pair.primary, **pair.secondary}
        for key, metric in METRICS.items():
            e = estimates[key]
            values = [found.candidates[n].metrics[key] for n in (pair.candidate, pair.reference)]
            show = duration if metric.unit == "ns" else lambda value: percent(value, 2)
            rows.append(
                [pair.candidate, metric.label, *map(show, values),
                 f"{e.ratio:.2f} x" if e.n else "-", interval(e.low, e.high),
                 f"{e.n_lower}/{e.n}", METHODS[e.method], pair.word if key == PRIMARY else ""]
            )  # fmt: skip
    table = Table(
        ["candidate", "metric", ">candidate's", f">{found.reference}'s", ">ratio", ">interval",
         ">lower", "interval from", "verdict"],
        rows,
    )  # fmt: skip
    caption = (
        "The primary metric (bold) was fixed beforehand and alone carries a verdict; the others "
        "are for reading. The unit is the run: rounds are paired, the interval is Student's t on "
        "the log ratio, and a difference under 5 % is called equivalent. With one round the "
        "interval of the primary metric is from within the run and says nothing of other runs."
    )
    other = found.other_durability
    if len(found.pairs) > MANY:
        caption = (
            "Time in calls: fixed beforehand as what candidates are judged by; the other metrics "
            "are in the table. The unit is the run: rounds are paired, the interval is Student's t "
            "on the log ratio, each by itself: of 20 such, one misses. Grey band: a difference "
            "under 5 % is called equivalent."
        )
    if other:
        caption += " ! does not keep after a crash what the reference keeps."
    figure = Figure(
        key="forest",
        title=f"Against {found.reference}: {_counted_words(found)}",
        finding="; ".join(
            f"{p.candidate} {p.primary.ratio:.2f} times {p.reference}" for p in found.pairs
        ),
        caption=caption,
        table=table,
        plot=compare_figures.forest_of_many(found.pairs, found.reference, other)
        if len(found.pairs) > MANY
        else compare_figures.forest(found.pairs, found.reference, list(found.candidates)),
    )
    blocks: list[Figure | TableBlock] = [figure]
    blocks += [_durability(other, found.reference)] if other else []
    blocks += [kernels_table(found)] if found.kernels else []
    blocks += [_deltas(found)] if any(pair.cause_deltas for pair in found.pairs) else []
    return Section(
        anchor,
        "How sure",
        "How much, and how sure",
        f"Ratios to {found.reference}; left of 1 is better.",
        blocks,
    )


def _counted_words(found: Comparison) -> str:
    words = [pair.word for pair in found.pairs]
    return ", ".join(f"{words.count(word)} {word}" for word in dict.fromkeys(words))


def _durability(other: Mapping[str, str], reference: str) -> TableBlock:
    return TableBlock(
        f"What other candidates keep after a crash, beside {reference}",
        ["candidate", "~durability"],
        [list(item) for item in other.items()],
        "Part of the speed of a less durable one is what it does not do.",
    )


def _deltas(found: Comparison) -> TableBlock:
    pairs = [pair for pair in found.pairs if pair.cause_deltas]
    causes = [c for c in CAUSES if any(abs(p.cause_deltas.get(c, 0)) >= 1e6 for p in pairs)]
    rows = [
        [CAUSES[cause].label, *(_signed(p.cause_deltas.get(cause, 0.0)) for p in pairs),
         CAUSES[cause].meaning]
        for cause in causes
    ]  # fmt: skip
    return TableBlock(
        f"What moved against {found.reference}",
        ["cause", *(f">{pair.candidate}" for pair in pairs), "~meaning"],
        rows,
        "Difference in recorded time by cause, mean over rounds; plus is more time than the "
        "reference. Causes that moved by less than 1 ms are left out.",
    )


def _signed(ns: float) -> str:
    return f"+{duration(ns)}" if ns > 0 else duration(ns)
