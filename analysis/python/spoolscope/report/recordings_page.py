"""The page of two recordings and their differences."""

from collections.abc import Sequence

from spoolscope.analysis.causes import CAUSES
from spoolscope.analysis.demands.language import parse_metric
from spoolscope.analysis.demands.of_recordings import measure
from spoolscope.analysis.recordings.beside import BESIDE, shown, times_as_many
from spoolscope.analysis.recordings.moved import Between, Part
from spoolscope.analysis.recordings.resampling import Moved
from spoolscope.analysis.recordings.sentences import (
    headline,
    limits,
    load_sentences,
    names,
    reasons,
    word,
)
from spoolscope.analysis.wording import count, duration, interval, percent
from spoolscope.report.figures import moved as figures
from spoolscope.report.figures.base import Exact, count_cell, time_cell
from spoolscope.report.page import Fact, Figure, Page, Section, Table, TableBlock

DRAWN = 16
KINDS = {
    "call": ("Calls", "By call"),
    "program": ("Programs", "By program"),
    "class": ("Files", "By class of file"),
}


def recordings_page(between: Between, footer: str) -> Page:
    """Lay out the report of two recordings."""
    ours, theirs = names(between)
    load = between.load
    said = load_sentences(between)
    return Page(
        title=f"spoolscope: {ours} and {theirs}",
        eyebrow=f"{ours} against {theirs}",
        badge=word(between),
        headline=headline(between),
        sure=said[0],
        reasons=[*said[1:], *(f"{reason}." for reason in reasons(between))],
        problems=limits(between),
        next_command=None,
        facts_title="Load",
        facts=[
            Fact("calls", f"{count(load.calls[0])}, then {count(load.calls[1])}"),
            Fact("calls a second", times_as_many(load.rate.ratio)),
            Fact("other kinds of calls", percent(load.mix), load.mix <= 0.1),
            Fact("time compared", percent(min(load.covered_time)), min(load.covered_time) >= 0.9),
            Fact("windows", f"{between.reference.n}, then {between.candidate.n}"),
        ],
        hero=_figure(
            "moved-cause",
            "What moved in the time of a call, by cause",
            [(CAUSES[part.name].label, part) for part in between.parts["cause"]],
            between,
        ),
        sections=[*_parts(between), _beside(between), _differences(between)],
        footer=footer,
    )


def _figure(
    key: str, title: str, parts: Sequence[tuple[str, Part]], between: Between
) -> Figure | None:
    drawn = parts[:DRAWN]
    if not drawn:
        return None
    ours, theirs = names(between)
    most = drawn[0]
    finding = (
        f"Most moved {most[0]}: {duration(most[1].moved.reference)} of each call in {ours}, "
        f"{duration(most[1].moved.candidate)} in {theirs}."
    )
    return Figure(
        key=key,
        title=title,
        finding=finding,
        caption=f"{finding} Time of a mean call of the mix of {ours}, in calls of "
        f"{count(len(between.strata))} kinds that both have; parts add up to the whole. Lines are "
        "95 % intervals of the difference, each by itself."
        + (f" {len(parts) - DRAWN} more are in the table." if len(parts) > DRAWN else ""),
        table=Table(HEADS, [_row(label, part.calls, part.moved) for label, part in parts]),
        plot=figures.differences(drawn),
    )


HEADS = ["part", ">calls before", ">after", ">time before", ">time after", ">ratio", ">95 %"]


def _row(label: str, calls: tuple[int, int], moved: Moved) -> list[str | Exact]:
    counts = [count_cell(n) if any(calls) else "-" for n in calls]
    times = [time_cell(ns) for ns in (moved.reference, moved.candidate)]
    ends = interval(moved.low, moved.high)
    return [label, *counts, *times, times_as_many(moved.ratio), ends]


def _parts(between: Between) -> list[Section]:
    sections = []
    for kind, (name, title) in KINDS.items():
        parts = [(part.name, part) for part in between.parts[kind]]
        figure = _figure(f"moved-{kind}", f"What moved, {title.lower()}", parts, between)
        if figure:
            sections.append(Section(kind, name, title, "", [figure]))
    if between.boxes:
        rows = [_plain(_row(box.name, box.calls, box.moved)) for box in between.boxes]
        table = TableBlock(
            "Mailboxes", HEADS, rows, "Time of a call in each, whatever its mix; the largest first."
        )
        sections.append(Section("mailboxes", "Mailboxes", "By mailbox", "", [table]))
    return sections


def _plain(row: Sequence[str | Exact]) -> list[str]:
    return [cell.text if isinstance(cell, Exact) else cell for cell in row]


def _beside(between: Between) -> Section:
    rows = []
    for words in BESIDE:
        metric = parse_metric(words)
        moved, why = measure(between, metric)
        if moved is None:
            rows.append([words, "-", "-", "-", why])
            continue
        values = [shown(metric, value) for value in (moved.reference, moved.candidate)]
        ends = interval(moved.low, moved.high)
        rows.append([words, *values, times_as_many(moved.ratio), ends])
    heads = ["metric", ">before", ">after", ">ratio", ">95 %"]
    caption = "Not standardised: a mean, percentile or share is of all calls of either recording."
    table = TableBlock("Rates, tails, and what a delivery takes", heads, rows, caption)
    return Section("beside", "Beside", "Rates, tails, deliveries", "", [table])


def _differences(between: Between) -> Section:
    ours, theirs = names(between)
    rows = [[one.what, one.reference, one.candidate] for one in between.differences]
    caption = "Facts of the recordings that differ." if rows else "No recorded fact differs."
    table = TableBlock("What else differs", ["what", f"~{ours}", f"~{theirs}"], rows, caption)
    return Section("differences", "Differences", "What else differs", "", [table])
