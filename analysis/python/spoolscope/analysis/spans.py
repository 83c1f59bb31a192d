"""Intervals of a drawing: functions that put them into lanes, cut overlaps and merge them."""

from collections import defaultdict
from collections.abc import Iterable
from dataclasses import dataclass


@dataclass(frozen=True)
class Span:
    """One interval of a lane, ns since its call began.

    Attributes:
        from_ns: Its begin; ``to_ns`` its end.
        causes: {cause or part of a commit: ns} for its drawing, the largest first.
        words: Description; n is the number of merged spans.
    """

    from_ns: int
    to_ns: int
    causes: dict[str, int]
    words: str
    n: int = 1

    @property
    def ns(self) -> int:
        """Its length."""
        return self.to_ns - self.from_ns


def packed(spans: Iterable[Span], most: int) -> list[list[Span]]:
    """Put spans into lanes without overlaps; spans that fit into no lane are left out."""
    lanes: list[list[Span]] = []
    for span in sorted(spans, key=lambda span: (span.from_ns, -span.to_ns)):
        for lane in lanes:
            if lane[-1].to_ns <= span.from_ns:
                lane.append(span)
                break
        else:
            if len(lanes) < most:
                lanes.append([span])
    return lanes


def apart(spans: Iterable[Span]) -> list[Span]:
    """Cut off the part of each span that overlaps the span before."""
    found: list[Span] = []
    now = 0
    for span in sorted(spans, key=lambda span: (span.from_ns, span.to_ns)):
        begin = max(span.from_ns, now)
        if begin < span.to_ns:
            causes = dict.fromkeys(span.causes, span.to_ns - begin)
            found.append(Span(begin, span.to_ns, causes, span.words))
            now = span.to_ns
    return found


def fewer(spans: list[Span], most: int) -> list[Span]:
    """Keep the longest spans; merge those between two of them, with their causes in sum.

    Args:
        spans: In order of time.
        most: Most spans to keep, an odd number.
    """
    if len(spans) <= most:
        return spans
    kept = set(sorted(range(len(spans)), key=lambda n: -spans[n].ns)[: most // 2])
    found: list[Span] = []
    short: list[Span] = []
    for number, span in enumerate(spans):
        if number in kept:
            found += _together(short)
            found.append(span)
            short = []
        else:
            short.append(span)
    return found + _together(short)


def _together(spans: list[Span]) -> list[Span]:
    if len(spans) < 2:
        return spans
    sums: dict[str, int] = defaultdict(int)
    for span in spans:
        for cause, ns in span.causes.items():
            sums[cause] += ns
    largest = dict(sorted(sums.items(), key=lambda item: -item[1]))
    words = f"{len(spans)} short spans"
    return [Span(spans[0].from_ns, spans[-1].to_ns, largest, words, len(spans))]
