"""The answer about a fleet as lines of text."""

from collections.abc import Iterable, Iterator, Mapping

from spoolscope.analysis.causes import CAUSES, charged
from spoolscope.analysis.fleet.change import Effect
from spoolscope.analysis.fleet.drill import Drilled
from spoolscope.analysis.fleet.fleet_answer import Answer, Quantile, in_order, total
from spoolscope.analysis.fleet.fleet_words import (
    change_method,
    first_of_hosts,
    headline,
    method,
    quality,
    ratio_words,
    suspect_sentence,
)
from spoolscope.analysis.fleet.measures import MEASURES
from spoolscope.analysis.fleet.outliers import TREND
from spoolscope.analysis.wording import count, counted, duration, fitting, interval, percent
from spoolscope.cli.output import wrapped

ROWS = 10
CAUSES_SHOWN = 6


def answer_lines(answer: Answer) -> Iterator[str]:
    """Yield the whole answer."""
    yield from wrapped(headline(answer))
    dates = answer.fleet.dates
    if dates:
        yield f"{dates[0]} to {dates[-1]}, {count(answer.calls)} calls, by {answer.engine}"
    for sentence in quality(answer):
        yield from wrapped(f"Note: {sentence}")
    yield from _change(answer)
    yield from _suspects(answer)
    yield from _filesystems(answer)
    yield from _programs(answer)
    yield from _latencies(answer)
    yield from _slow_hosts(answer)


def _change(answer: Answer) -> Iterator[str]:
    if answer.split is None:
        return
    yield ""
    yield f"{'Before and after':<22}{'hosts':>6}{'ratio':>9}  {'interval':<22}word"
    for one in answer.effects:
        yield _effect(one)
    if answer.effects:
        yield from wrapped(change_method(answer.split, answer.effects[0]))


def _effect(one: Effect) -> str:
    estimate = one.estimate
    ends = interval(estimate.low, estimate.high)
    label = MEASURES[one.measure].label
    return f"{label:<22}{estimate.n:>6}{ratio_words(estimate.ratio):>9}  {ends:<22}{one.word}"


def _suspects(answer: Answer) -> Iterator[str]:
    if not answer.tested.tests:
        return
    yield ""
    if not answer.suspects:
        yield from wrapped(f"No host differs from its peers. {method()}")
        return
    yield "Hosts that differ from their peers"
    hosts = [answer.fleet.spools[one.test.row].host for one in first_of_hosts(answer)]
    for host in hosts[:ROWS]:
        own = [one for one in answer.suspects if answer.fleet.spools[one.test.row].host == host]
        yield from wrapped(f"* {suspect_sentence(answer, own[0])}")
        others = [_in_short(one.test.measure, one.test.ratio) for one in own[1:]]
        if others:
            yield from wrapped(f"  Also: {', '.join(others)}.")
        look = f"--host {host}{f' --date {own[0].day}' if own[0].day else ''}"
        yield f"  Next: spoolscope fleet report {answer.shown} {look}"
        for trace in own[0].traces[:3]:
            yield f"  Frozen: {trace}"
    if len(hosts) > ROWS:
        yield f"  and {count(len(hosts) - ROWS)} more (--json has all)"
    yield from wrapped(method())


def _in_short(measure: str, ratio: float) -> str:
    label = "growth of the wait for the disk" if measure == TREND else MEASURES[measure].label
    return f"{label} {ratio:.1f} x"


def _filesystems(answer: Answer) -> Iterator[str]:
    for one in answer.filesystems:
        whole = total(one.causes)
        yield ""
        yield f"{one.fs}: {counted(one.hosts, 'host')}, {duration(whole)} in calls"
        yield from _causes(one.causes)


def _causes(causes: Mapping[str, int]) -> Iterator[str]:
    own = charged(causes)
    whole = max(sum(own.values()), 1)
    largest = sorted(own, key=lambda cause: -own[cause])[:CAUSES_SHOWN]
    for cause in largest:
        share = own[cause] / whole
        bar = "#" * round(20 * share)
        line = f"  {CAUSES[cause].label:<18}{duration(own[cause]):>10}{percent(share):>9}  {bar}"
        yield line.rstrip()


def _programs(answer: Answer) -> Iterator[str]:
    yield ""
    yield f"{'Programs':<18}{'hosts':>7}{'calls':>16}{'time':>10}{'commits':>12}  most of it"
    for one in answer.programs[:ROWS]:
        most = max(one.causes, key=lambda cause: one.causes[cause], default="")
        label = CAUSES[most].label if most in CAUSES else "-"
        yield (
            f"{fitting(one.comm or '(unknown)', 17):<18}{count(one.hosts):>7}"
            f"{count(one.calls):>16}{duration(total(one.causes)):>10}{count(one.commits):>12}"
            f"  {label}"
        )


def _latencies(answer: Answer) -> Iterator[str]:
    yield ""
    yield f"{'Calls':<22}{'n':>14}  {'median':<21}p99"
    for one in answer.latencies[:ROWS]:
        ends = "".join(f"{between(quantile):<21}" for quantile in one.quantiles.values())
        yield f"{fitting(f'{one.syscall} ({one.fs})', 21):<22}{count(one.n):>14}  {ends}".rstrip()
    yield "Quantiles lie between these two ends: those of a bucket, at most 3.2 % wide."


def between(quantile: Quantile | None) -> str:
    """Return the two ends of a quantile."""
    if quantile is None:
        return "too few calls"
    return f"{duration(quantile.lower_ns)} to {duration(quantile.upper_ns)}"


def _slow_hosts(answer: Answer) -> Iterator[str]:
    slow = sorted(
        (host for host in answer.hosts if host.slow),
        key=lambda host: -host.slow / max(host.sync_n, 1),
    )
    if not slow:
        return
    yield ""
    yield f"{'Most slow syncs':<22}{'syncs':>14}{f'over {duration(answer.slow_ns)}':>16}  p99"
    for host in slow[:ROWS]:
        share = percent(host.slow / max(host.sync_n, 1), 2)
        yield (
            f"{fitting(host.host, 21):<22}{count(host.sync_n):>14}{share:>16}  {between(host.p99)}"
        )


def host_lines(drilled: Drilled) -> Iterator[str]:
    """Yield what was found of one host."""
    yield f"{drilled.host}: {counted(len(drilled.dates), 'day')}"
    whole = {date: total(in_order(causes)) for date, causes in drilled.by_day.items()}
    most = max(whole.values(), default=1) or 1
    yield f"{'day':<12}{'in calls':>10}  most of it"
    for date in drilled.dates:
        own = charged(in_order(drilled.by_day[date]))
        largest = max(own, key=lambda cause: own[cause], default="")
        label = CAUSES[largest].label if largest in CAUSES else "-"
        bar = "#" * round(20 * whole[date] / most)
        yield f"{date:<12}{duration(whole[date]):>10}  {label:<18}{bar}".rstrip()
    yield ""
    when = f"on {drilled.date}" if drilled.date else "on all days"
    yield f"{f'Costliest calls {when}':<32}{'n':>12}{'mean':>10}{'time':>10}  most of it"
    yield from _calls(drilled.calls)
    yield ""
    if drilled.traces:
        yield "Frozen traces"
        yield from (f"  spoolscope explain {trace}" for trace in drilled.traces)
    else:
        yield "No frozen trace of this host is here."


def _calls(calls: Iterable[Mapping[str, object]]) -> Iterator[str]:
    for one in calls:
        n, ns, causes = int(str(one["n"])), int(str(one["sum_ns"])), one["causes"]
        own = in_order(causes) if isinstance(causes, dict) else {}
        most = max(own, key=lambda cause: own[cause], default="")
        label = CAUSES[most].label if most else "-"
        name = fitting(f"{one['comm']} {one['syscall']}", 31)
        yield f"{name:<32}{count(n):>12}{duration(ns / max(n, 1)):>10}{duration(ns):>10}  {label}"
