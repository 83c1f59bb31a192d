"""The text of spoolscope compare for two recordings."""

from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING

from spoolscope.cli.output import wrapped

if TYPE_CHECKING:
    from spoolscope.analysis.recordings.moved import Between, Part
    from spoolscope.analysis.recordings.resampling import Moved

ROWS = 8


def text(between: "Between") -> Iterable[str]:
    """Yield the lines of the answer, at most 80 columns."""
    from spoolscope.analysis.recordings.sentences import headline, limits, load_sentences, reasons

    yield from wrapped(headline(between))
    for sentence in load_sentences(between):
        yield from wrapped(sentence)
    for reason in reasons(between):
        yield from wrapped(f"- {reason}")
    for difference in between.differences:
        line = f"{difference.what}: {difference.reference} -> {difference.candidate}"
        yield from wrapped(f"Differs: {line}")
    yield ""
    yield "What moved in the time of a call, for the first recording's mix of calls"
    yield f"{'':<20}{'before':>9}{'after':>9}{'moved':>10}{'ratio':>8}  95 %"
    yield _row("all calls", between.cost)
    for kind, parts in between.parts.items():
        yield ""
        yield f"by {'class of file' if kind == 'class' else kind}"
        yield from (_row(_label(kind, part), part.moved) for part in _shown(parts))
    yield from _boxes(between)
    yield from _beside(between)
    yield ""
    for limit in limits(between):
        yield from wrapped(f"Note: {limit}")


def _shown(parts: "Sequence[Part]") -> "Sequence[Part]":
    return parts[:ROWS]


def _label(kind: str, part: "Part") -> str:
    from spoolscope.analysis.causes import CAUSES

    return CAUSES[part.name].label if kind == "cause" else part.name


def _row(label: str, moved: "Moved") -> str:
    from spoolscope.analysis.recordings.beside import times_as_many
    from spoolscope.analysis.wording import duration, fitting, interval

    difference = moved.difference
    sign = "+" if difference > 0 else "-" if difference < 0 else ""
    times = f"{duration(moved.reference):>9}{duration(moved.candidate):>9}"
    return (
        f"{fitting(label, 19, 6):<20}{times}{sign + duration(abs(difference)):>10}"
        f"{times_as_many(moved.ratio):>8}  "
        f"{interval(moved.low, moved.high)}"
    )


def _boxes(between: "Between") -> Iterable[str]:
    if between.boxes:
        yield ""
        yield "by mailbox, a call in it (whatever its mix)"
        yield from (_row(part.name, part.moved) for part in between.boxes[:ROWS])


def _beside(between: "Between") -> Iterable[str]:
    """Yield the other metrics: rates, tails, and amounts per delivery."""
    from spoolscope.analysis.demands.language import parse_metric
    from spoolscope.analysis.demands.of_recordings import measure
    from spoolscope.analysis.recordings.beside import BESIDE, shown, times_as_many
    from spoolscope.analysis.wording import interval

    yield ""
    yield f"{'Beside':<26}{'before':>12}{'after':>12}{'ratio':>8}  95 %"
    for words in BESIDE:
        metric = parse_metric(words)
        moved, _ = measure(between, metric)
        if moved is None:
            if "deliver" not in words:
                yield (f"{words:<26}{'-':>12}{'-':>12}{'-':>8}  too few calls")
            continue
        before, after = shown(metric, moved.reference), shown(metric, moved.candidate)
        ratio = times_as_many(moved.ratio)
        yield f"{words:<26}{before:>12}{after:>12}{ratio:>8}  {interval(moved.low, moved.high)}"
