"""Commits: activities, triggers, and waits for them."""

from collections.abc import Sequence

from spoolscope.analysis.blame import Charge
from spoolscope.analysis.commit_parts import part_label
from spoolscope.analysis.commits import Commit, CommitKind
from spoolscope.analysis.study import Study
from spoolscope.analysis.wording import count, duration, percent
from spoolscope.report.figures import commits as commit_figures
from spoolscope.report.figures.base import bytes_cell, count_cell, time_cell
from spoolscope.report.inputs import Inputs, Studies
from spoolscope.report.page import Exact, Figure, Section, Table, TableBlock

anchor = "commits"
SHOWN = 15
_COST = [">commits", ">commit time", ">own wait", ">others' wait", ">others' waits"]


def applies(page: Inputs) -> bool:
    """Return True if a trace was studied whose commits were recorded."""
    return any(study.explanation.commits_recorded for study in page.studies.values())


def make(page: Inputs) -> Section:
    """Lay out commits and their triggers."""
    studies = page.studies
    blocks: list[Figure | TableBlock] = [_kinds(studies)]
    if parts := [row for name, study in studies.items() for row in _part_rows(name, study)]:
        blocks.append(_parts(parts))
    for number, (name, study) in enumerate(studies.items()):
        if study.explanation.commits.n:
            blocks += [
                _longest(f"commits-{number}", name, study, folded=number > 0),
                *_blame(name, study),
            ]
    intro = "Which processes made the journal work, and what that cost all others."
    return Section(anchor, "Commits", "Commits and blame", intro, blocks)


def _kinds(studies: Studies) -> TableBlock:
    rows = [
        [name, *_kind_row(kind)]
        for name, study in studies.items()
        for kind in study.explanation.commits.kinds
    ]
    return TableBlock(
        "Commits",
        ["trace", "kind", ">n", ">trigger named", ">median", ">longest", ">locking",
         ">flushing", ">logging", ">mean size"],
        rows,
        "Locking, flushing and logging are sums of the phases of jbd2 commits (waiting for "
        "running handles, writing ordered data, writing the log); of btrfs, flushing is the time "
        "until its tree blocks were written, logging the rest. Size: blocks for jbd2, bytes for "
        "xfs.",
    )  # fmt: skip


def _kind_row(kind: CommitKind) -> list[str | Exact]:
    return [
        kind.kind,
        count_cell(kind.n),
        percent(kind.trigger_named / kind.n),
        time_cell(kind.p50_ns or None),
        time_cell(kind.max_ns or None),
        time_cell(kind.locking_ns),
        time_cell(kind.flushing_ns),
        time_cell(kind.logging_ns),
        "-" if kind.blocks_mean is None else f"{kind.blocks_mean:,.0f}",
    ]


def _parts(rows: list[list[str | Exact]]) -> TableBlock:
    return TableBlock(
        "What commits were doing",
        ["trace", "of", "doing", ">time", ">share"],
        rows,
        "Once over the length of all commits, once over the time that calls waited for them; "
        "each adds up to the whole. Previous commit: an older one had to end first. Handles: "
        "calls that were changing metadata had to end. Batching: the commit slept to let others "
        "join. Queue, log write, cache flush: its requests at the disk. No CPU: its thread was "
        "ready to run. No commit: its thread had not been woken, or was done.",
    )


def _part_rows(name: str, study: Study) -> list[list[str | Exact]]:
    commits = study.explanation.commits
    tables = [(kind.kind, kind.parts) for kind in commits.kinds]
    tables += [(f"waits, {fstype}", parts) for fstype, parts in commits.waits.items()]
    return [
        [name, of, part_label(part), time_cell(ns), percent(ns / sum(parts.values()))]
        for of, parts in tables
        for part, ns in parts.items()
        if ns
    ]


def _longest(key: str, name: str, study: Study, *, folded: bool) -> Figure:
    longest, n = study.explanation.commits.longest, study.explanation.commits.n
    return Figure(
        key=key,
        title=f"Longest commits, taken apart: {name}",
        finding=_finding(longest),
        caption=f"The {len(longest)} longest of {count(n)} commits, by what "
        "each was doing; its parts add up to its length. Beside each: the program that asked for "
        "it. Data and metadata, in the table: what its thread wrote meanwhile. Waited: the sum "
        "over all threads that waited for it.",
        table=Table(
            [">at", "kind", ">took", "triggered by", "~on", "mostly", ">data", ">metadata",
             ">waiters", ">waited"],
            [_commit_row(commit) for commit in longest],
        ),
        plot=commit_figures.taken_apart(longest),
        folded=folded,
    )  # fmt: skip


def _finding(longest: Sequence[Commit]) -> str:
    first = longest[0]
    part = max(first.parts, key=lambda key: first.parts[key], default="other")
    share = percent(first.parts.get(part, 0) / max(first.dur_ns, 1), 0)
    waiting = f"{count(first.waiters)} thread{'' if first.waiters == 1 else 's'} waited for it"
    return (
        f"The longest commit took {duration(first.dur_ns)}, {share} of it "
        f"{part_label(part)}; {first.comm} asked for it, {waiting}."
    )


def _commit_row(commit: Commit) -> list[str | Exact]:
    who = commit.comm if commit.pid is None else f"{commit.comm} {commit.pid} ({commit.syscall})"
    part, ns = max(commit.parts.items(), key=lambda item: item[1], default=("", 0))
    share = percent(ns / commit.dur_ns, 0) if commit.dur_ns else "-"
    return [
        time_cell(commit.at_ns),
        commit.kind,
        time_cell(commit.dur_ns),
        who,
        commit.path or "-",
        f"{part_label(part)} {share}",
        bytes_cell(commit.data_bytes),
        bytes_cell(commit.meta_bytes),
        count_cell(commit.waiters),
        time_cell(commit.waited_ns),
    ]


def _blame(name: str, study: Study) -> list[TableBlock]:
    charges = study.explanation.commits.charges
    charged = f"{duration(charges.charged_ns)} of {duration(charges.commit_ns)} are charged"
    return [
        TableBlock(
            f"Blame by call: {name}",
            ["process", "call", "kind of file", *_COST],
            [[b.comm, b.syscall, b.path_class, *_cost(b)] for b in charges.by_call[:SHOWN]],
            f"A commit is charged to the call that started it; {charged}, the rest has no "
            "recorded call (in brackets). Others' wait is the time all other threads spent "
            "waiting for those commits, for the running transaction, or for blocks held by the "
            "commit; each instant of a wait is charged once.",
        ),
        *_askers(name, study),
        TableBlock(
            f"Blame by process: {name}",
            ["process", ">pid", *_COST],
            [[b.comm, str(b.pid or "-"), *_cost(b)] for b in charges.by_process[:SHOWN]],
            "The same time, by process.",
            folded=True,
        ),
        TableBlock(
            f"Blame by mailbox: {name}",
            ["~mailbox or queue", *_COST],
            [[b.mailbox or "(top of the spool)", *_cost(b)] for b in charges.by_mailbox[:SHOWN]],
            "The same time, by the mailbox or mail queue of the file.",
            folded=True,
        ),
    ]


def _askers(name: str, study: Study) -> list[TableBlock]:
    programs = study.explanation.askers.programs
    if not programs:
        return []
    return [
        TableBlock(
            f"Asked for by: {name}",
            ["~processes", ">commits", ">of all", ">commit time", ">others' wait"],
            [
                [
                    a.who,
                    count_cell(a.n),
                    percent(a.n / a.n_commits),
                    time_cell(a.commit_ns),
                    time_cell(a.others_ns),
                ]
                for a in programs
            ],
            "The commits by the program that asked for them; others' wait is that of processes of "
            "other programs.",
        )
    ]


def _cost(row: Charge) -> list[str | Exact]:
    times = (time_cell(ns) for ns in (row.commit_ns, row.own_ns, row.others_ns))
    return [count_cell(row.n), *times, count_cell(row.n_others)]
