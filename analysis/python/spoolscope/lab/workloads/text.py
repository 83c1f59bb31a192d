"""A workload's results for a terminal."""

import math
from collections.abc import Iterator, Sequence
from textwrap import wrap

from spoolscope.analysis.stats import MINIMUM_ROUNDS, Estimate
from spoolscope.analysis.wording import counted, fitting, interval
from spoolscope.lab.workloads.judging import Figure, Judged, Results, judged
from spoolscope.lab.workloads.published import Comparison, Table
from spoolscope.lab.workloads.running import Asked
from spoolscope.replay.presets import presets

NAME, WIDTH = 26, 80


def lines(asked: Asked, results: Results, kernel: str) -> Iterator[str]:
    """Yield the tables, each figure beside the published one, and the verdicts on claims."""
    comparison = results.comparison
    rounds = f"{counted(asked.rounds, 'round')}"
    kept = f", {asked.mailboxes}" if asked.workload.formats else ""
    yield f"{asked.workload.name} at scale {asked.scale:g}{kept}, {rounds}, Linux {kernel}"
    if comparison:
        yield from wrapped(f"beside {comparison.name} ({comparison.year}): {comparison.machine}")
    for table in _worth_showing(asked.workload.tables, results):
        if shown := list(_table(table, results)):
            yield ""
            yield from shown
    if results.throughput:
        yield ""
        yield from _throughput(results)
    if comparison and comparison.claims:
        yield ""
        yield from _claims(comparison, judged(results), asked.rounds)


def _throughput(results: Results) -> Iterator[str]:
    yield "MB/s read and written, in tenths of each step's time"
    for step, of_step in results.throughput.items():
        yield step
        for candidate in results.candidates:
            parts = "".join(f"{_short(value):>5}" for value in of_step.get(candidate, ()))
            yield f"  {fitting(candidate, NAME - 3, 4):<{NAME - 2}}{parts}"


def _short(value: float) -> str:
    return f"{value:.1f}" if value < 9.95 else f"{value:.0f}"


def _worth_showing(tables: Sequence[Table], results: Results) -> Sequence[Table]:
    """Return the tables with a row for some candidate; all tables if there is none."""
    comparison = results.comparison
    rows = {comparison and comparison.row_of(candidate) for candidate in results.candidates}
    return [table for table in tables if rows & set(table.rows)] or tables


def _claims(comparison: Comparison, claims: Sequence[Judged], rounds: int) -> Iterator[str]:
    known = [one for one in claims if one.n or not one.missing]
    if known:
        yield f"Claims of {comparison.year}, at this scale and on this machine:"
    for one in known:
        yield from wrapped(f"{one.verdict:<14}{one.claim.text}", 2, 16)
        ratios = ", ".join(_said(ratio) for ratio in one.ratios if ratio is not None)
        today = one.today and f"of {', '.join(one.today)} with today's options"
        parts = (ratios, f"n = {one.n}", one.why, today)
        if one.n:
            yield from wrapped(f"({'; '.join(part for part in parts if part)})", 16, 17)
    if missing := list(dict.fromkeys(name for one in claims for name in one.missing)):
        others = sum(bool(one.missing) for one in claims)
        needs = f"To decide {others} of the {len(claims)} claims of {comparison.year}, add "
        yield from wrapped(needs + words_to_add(missing, rounds))


def words_to_add(missing: Sequence[str], rounds: int) -> str:
    """Return the options that decide claims: candidates, a kernel that has them, rounds."""
    words = [f"--on {name}" for name in missing]
    kernels = [set(presets()[name].kernels) for name in missing if presets()[name].kernels]
    if kernels and (shared := set.intersection(*kernels)):
        words.append(f"--vm {min(shared, key=_as_numbers)}")
    if rounds < MINIMUM_ROUNDS:
        words.append(f"--rounds {MINIMUM_ROUNDS}")
    return " ".join(words)


def _as_numbers(series: str) -> list[int]:
    return [int(part) for part in series.split(".")]


def wrapped(text: str, first: int = 0, later: int = 2) -> list[str]:
    """Return the lines of a text no wider than a terminal."""
    return wrap(
        text,
        WIDTH,
        initial_indent=" " * first,
        subsequent_indent=" " * later,
        break_on_hyphens=False,
    )


def _table(table: Table, results: Results) -> Iterator[str]:
    parts = [
        (column, figures)
        for column, figures in zip(table.columns, results.figures(table), strict=True)
        if any(figure.now is not None for figure in figures)
    ]
    if not parts:
        return
    yield from wrapped(f"{table.title}; ratios are to {results.reference}")
    year = results.comparison.year if results.comparison else None
    then = f"{year:>9}{'ratio':>7}" if year else ""
    yield f"{'':<{NAME}}{then}{'now':>10}{'ratio':>8}  95 %"
    for column, figures in parts:
        yield column.heading
        for figure in figures:
            yield _line(figure, results.reference, published=year is not None)


def _line(figure: Figure, reference: str, *, published: bool) -> str:
    name = fitting(figure.candidate, NAME - 3, 4)
    is_reference = figure.candidate == reference
    ratio = "1" if is_reference else "-" if figure.ratio is None else number(figure.ratio.ratio)
    sure = "" if figure.ratio is None else interval(figure.ratio.low, figure.ratio.high)
    as_published = "-" if figure.then is None else f"{figure.then:,g}"
    then = f"{as_published:>9}{number(figure.then_ratio):>7}" if published else ""
    return f"  {name:<{NAME - 2}}{then}{number(figure.now):>10}{ratio:>8}  {sure}".rstrip()


def _said(ratio: Estimate) -> str:
    sure = "" if ratio.low is None else f" ({number(ratio.low)} to {number(ratio.high)})"
    return f"{number(ratio.ratio)} times{sure}"


def number(value: float | None) -> str:
    """Return a figure with three significant digits; "-" for None."""
    if value is None or math.isnan(value):
        return "-"
    if value == 0 or abs(value) >= 99.95:
        return f"{value:,.0f}"
    digits = max(0, 2 - math.floor(math.log10(abs(value) * 1.0005)))
    return f"{value:.{min(digits, 6)}f}"
