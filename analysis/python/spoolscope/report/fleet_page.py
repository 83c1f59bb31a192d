"""The page of a fleet."""

from collections.abc import Mapping
from datetime import UTC, datetime
from pathlib import Path

from spoolscope.analysis.causes import charged
from spoolscope.analysis.fleet.drill import Suspect
from spoolscope.analysis.fleet.fleet_answer import Answer, Host, Quantile, total
from spoolscope.analysis.fleet.fleet_words import (
    badge,
    change_method,
    first_of_hosts,
    headline,
    label,
    method,
    quality,
    ratio_words,
    suspect_sentence,
)
from spoolscope.analysis.fleet.measures import MEASURES
from spoolscope.analysis.fleet.outliers import TREND
from spoolscope.analysis.wording import count, counted, duration, interval, percent
from spoolscope.report.figures import peers as figures
from spoolscope.report.figures.base import Exact, count_cell, time_cell
from spoolscope.report.figures.causes import cause_table, stacked
from spoolscope.report.page import Fact, Figure, Page, Section, Split, Table, TableBlock
from spoolscope.report.render import render
from spoolscope.traces.files import write_file
from spoolscope.traces.output import place_of
from spoolscope.traces.version import version

DRAWN_SUSPECTS = 3
LISTED_HOSTS = 500
REASONS = 5


def write_fleet_page(answer: Answer, output: Path) -> None:
    """Write the report of a fleet; only its owner can read it, as it may have names."""
    write_file(place_of(output), render(fleet_page(answer)), private=True)


def fleet_page(answer: Answer) -> Page:
    """Lay out the report of a fleet."""
    dates = answer.fleet.dates
    span = f"{dates[0]} to {dates[-1]}" if dates else "no days"
    sentences = [suspect_sentence(answer, one) for one in first_of_hosts(answer)[:REASONS]]
    sure = method()
    if answer.split is not None and answer.effects:
        sure = change_method(answer.split, answer.effects[0])
    first = answer.suspects[0] if answer.suspects else None
    host = answer.fleet.spools[first.test.row].host if first else None
    return Page(
        title=f"spoolscope: fleet {answer.shown}",
        eyebrow=f"{answer.shown} · {counted(len(answer.hosts), 'host')} · {span}",
        badge=badge(answer),
        headline=headline(answer),
        sure=sure,
        reasons=[one for one in sentences if one != headline(answer)],
        problems=list(quality(answer))[1:],
        next_command=f"spoolscope fleet report {answer.shown} --host {host}" if host else None,
        facts_title="Coverage",
        facts=_facts(answer),
        hero=_changed(answer) or _peers(answer),
        sections=[
            section
            for section in (
                _differ(answer),
                _causes(answer),
                _programs(answer),
                _latencies(answer),
                _directories(answer),
                _hosts(answer),
            )
            if section.blocks
        ],
        footer=f"Made by spoolscope {version()}, {_now()}.",
    )


def _now() -> str:
    return datetime.now(UTC).strftime("%Y-%m-%d %H:%M UTC")


def _facts(answer: Answer) -> list[Fact]:
    expected, seen, counted = answer.spool_days
    lost = answer.lost / max(answer.lost + answer.calls, 1)
    return [
        Fact("hosts", count(len(answer.hosts))),
        Fact("days of spools", f"{count(seen)} of {count(expected)}", seen == expected),
        Fact("days that count", count(counted), counted == seen),
        Fact("calls", count(answer.calls)),
        Fact("calls lost", f"{count(answer.lost)} ({percent(lost)})", not answer.lost),
        Fact("computed by", answer.engine),
    ]


def _changed(answer: Answer) -> Figure | None:
    if answer.split is None or all(one.estimate.low is None for one in answer.effects):
        return None
    rows: list[list[str | Exact]] = []
    for one in answer.effects:
        estimate = one.estimate
        rows.append(
            [
                MEASURES[one.measure].label,
                count_cell(estimate.n),
                ratio_words(estimate.ratio),
                interval(estimate.low, estimate.high),
                percent(one.confidence, 2),
                count_cell(one.n_control),
                ratio_words(one.control),
                one.word,
            ]
        )
    heads = ["measure", ">hosts", ">ratio", ">interval", ">level", ">control hosts",
             ">control moved", "word"]  # fmt: skip
    said = headline(answer)
    return Figure(
        key="fleet-change",
        title="Before and after",
        finding=said,
        caption=f"{change_method(answer.split, answer.effects[0])} The first row decides, at "
        "95 %; the intervals of the others hold together at 95 %.",
        table=Table(heads, rows),
        plot=figures.changes(answer.effects),
    )


def _peers(answer: Answer) -> Figure | None:
    if not answer.tested.tests:
        return None
    n = len(answer.tested.tests)
    named = len(answer.suspects)
    finding = f"{count(named)} of {count(n)} comparisons with peers are named."
    return Figure(
        key="fleet-peers",
        title="Hosts beside their peers",
        finding=finding,
        caption=f"{finding} Each point is a spool; a value is the median of its days. {method()}",
        table=Table(_SUSPECT_HEADS, [_suspect_row(answer, one) for one in answer.suspects]),
        plot=figures.beside_peers(answer),
    )


_SUSPECT_HEADS = ["host", "measure", ">value", ">peers", ">ratio", ">deviations", ">q", "day",
                  "most of it", "frozen traces"]  # fmt: skip


def _suspect_row(answer: Answer, one: Suspect) -> list[str | Exact]:
    test = one.test
    trend = test.measure == TREND
    values = [f"{v:.2f} times" if trend else duration(v) for v in (test.value, test.peers)]
    return [
        answer.fleet.spools[test.row].host,
        figures.LABELS[test.measure],
        *values,
        ratio_words(test.ratio),
        f"{test.deviations:+.1f}",
        f"{test.q:.1g}",
        one.day,
        label(one.cause) if one.cause else "-",
        ", ".join(one.traces[:3]) or "-",
    ]


def _differ(answer: Answer) -> Section:
    blocks: list[Figure | TableBlock] = []
    if answer.suspects and answer.split is not None and (peers := _peers(answer)):
        blocks.append(peers)
    for number, one in enumerate(first_of_hosts(answer)[:DRAWN_SUSPECTS]):
        host = answer.fleet.spools[one.test.row].host
        finding = suspect_sentence(answer, one)
        look = f"spoolscope fleet report {answer.shown} --host {host} --date {one.day}"
        measure = "disk" if one.test.measure == TREND else one.test.measure
        values = answer.fleet.values[measure][one.test.row]
        rows = [
            [day, time_cell(float(ns)) if ns == ns else "-"]
            for day, ns in zip(answer.fleet.dates, values, strict=True)
        ]
        blocks.append(
            Figure(
                key=f"fleet-days-{number}",
                title=f"{host}: {figures.LABELS[measure]} by day",
                finding=finding,
                caption=f"{finding} The band holds the middle half of the spools on the same type "
                f"of filesystem. Further: {look}",
                table=Table(["day", f">{figures.LABELS[measure]}"], rows),
                plot=figures.by_day(answer, one),
            )
        )
    if answer.suspects:
        rows_of_all = [[_plain(c) for c in _suspect_row(answer, one)] for one in answer.suspects]
        blocks.append(TableBlock("All that differ", _SUSPECT_HEADS, rows_of_all, method()))
    return Section("fleet-differ", "Differ", "Hosts that differ from their peers", "", blocks)


def _plain(cell: str | Exact) -> str:
    return cell.text if isinstance(cell, Exact) else cell


def _causes(answer: Answer) -> Section:
    rows = [
        (f"{one.fs} ({counted(one.hosts, 'host')})", {c: float(ns) for c, ns in one.causes.items()})
        for one in answer.filesystems
        if total(one.causes)
    ]
    if not rows:
        return Section("fleet-causes", "Causes", "", "", [])
    first = answer.filesystems[0]
    own = charged(first.causes)
    most = max(own, key=lambda cause: own[cause])
    share = percent(own[most] / max(sum(own.values()), 1), 0)
    finding = f"On {first.fs} calls spend {share} of their time {label(most)}."
    figure = Figure(
        key="fleet-time",
        title="Time in calls by cause",
        finding=finding,
        caption=f"{finding} Sums over all hosts and days, without waits of programs for programs.",
        table=cause_table(rows, "filesystem"),
        plot=stacked(rows),
    )
    return Section("fleet-causes", "Time", "Where time goes", "", [figure])


def _programs(answer: Answer) -> Section:
    rows: list[list[str | Exact | Split]] = [
        [one.comm or "(unknown)", count_cell(one.hosts), count_cell(one.calls),
         time_cell(total(one.causes)), Split.of(charged(one.causes)), count_cell(one.commits),
         time_cell(one.commits_ns)]
        for one in answer.programs
    ]  # fmt: skip
    heads = ["program", ">hosts", ">calls", ">time", "causes", ">commits asked for", ">their time"]
    caption = "The twenty programs with the most time in calls, of all hosts."
    block = TableBlock("Programs", heads, rows, caption)
    return Section("fleet-programs", "Programs", "Which programs", "", [block] if rows else [])


def _latencies(answer: Answer) -> Section:
    rows: list[list[str | Exact]] = [
        [one.fs, one.syscall, count_cell(one.n), *(_between(q) for q in one.quantiles.values())]
        for one in answer.latencies
    ]
    caption = (
        "A quantile of all calls of the fleet lies between the two ends that are shown: those of "
        "its bucket, at most 3.2 % wide. The counts of buckets add up without a loss."
    )
    heads = ["filesystem", "call", ">n", ">median", ">p99"]
    block = TableBlock("How long calls take", heads, rows, caption)
    return Section("fleet-latency", "Latency", "How long calls take", "", [block] if rows else [])


def _between(quantile: Quantile | None) -> str:
    if quantile is None:
        return "too few calls"
    return f"{duration(quantile.lower_ns)} to {duration(quantile.upper_ns)}"


def _directories(answer: Answer) -> Section:
    rows: list[list[str | Exact]] = [
        [one["host"], one["directory"], count_cell(one["n"]), time_cell(one["sum_ns"])]
        for one in answer.directories
    ]
    heads = ["host", "~directory", ">calls that waited", ">time"]
    caption = "Waits for the blocks or the lock of a directory; each recorder keeps the costliest."
    block = TableBlock("Costliest directories", heads, rows, caption)
    return Section("fleet-directories", "Directories", "Directories", "", [block] if rows else [])


def _hosts(answer: Answer) -> Section:
    differ: Mapping[str, str] = {
        answer.fleet.spools[one.test.row].host: "differs" for one in reversed(answer.suspects)
    }
    ordered = sorted(
        answer.hosts, key=lambda h: (h.host not in differ, -h.slow / max(h.sync_n, 1), h.host)
    )
    rows = [_host_row(host, differ.get(host.host, "")) for host in ordered[:LISTED_HOSTS]]
    left = len(ordered) - len(rows)
    caption = (
        f"Slow: {duration(answer.slow_ns)} or longer. Covered: part of all days for which a "
        "recorder was on. Missing: minutes that were recorded and are not there."
        + (f" {count(left)} more hosts are in --json." if left else "")
    )
    heads = ["host", "peers", ">days", ">covered", ">missing", ">calls", ">lost", ">clock set",
             ">recorder", ">syncs", ">slow", ">median sync", ">p99 sync"]  # fmt: skip
    block = TableBlock("All hosts", heads, rows, caption)
    return Section("fleet-hosts", "Hosts", "Hosts, and what each gave", "", [block] if rows else [])


def _host_row(host: Host, word: str) -> list[str | Exact]:
    return [
        host.host, word, count_cell(host.days), percent(host.covered), count_cell(host.holes),
        count_cell(host.calls), count_cell(host.lost), count_cell(host.steps),
        percent(host.recorder_share, 2), count_cell(host.sync_n),
        percent(host.slow / max(host.sync_n, 1), 2), _between(host.median), _between(host.p99),
    ]  # fmt: skip
