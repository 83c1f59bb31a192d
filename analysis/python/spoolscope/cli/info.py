"""The verb info."""

from dataclasses import asdict
from pathlib import Path
from shlex import quote
from typing import Any

import click
import pyarrow.compute as pc

from spoolscope.analysis.asked import recorded
from spoolscope.analysis.beyond import beyond_calls, unjudged_calls
from spoolscope.analysis.disk_traces import is_disk_trace, study_disks
from spoolscope.analysis.wording import counted, once, size
from spoolscope.cli.columns import table_lines
from spoolscope.cli.disks import disk_lines, imported_disks
from spoolscope.cli.names import marked, named, names_lines, names_options
from spoolscope.cli.output import emit_json, field, json_option, next_line, wrapped
from spoolscope.cli.printing import say
from spoolscope.cli.recording_info import show_recording
from spoolscope.cli.verified import show_verified
from spoolscope.tracers.questions import NO, YES, answers
from spoolscope.traces.errors import INCOMPLETE
from spoolscope.traces.private import HIDDEN_ALL, HIDDEN_PRIVATE
from spoolscope.traces.recording import Recording
from spoolscope.traces.schema import TABLES
from spoolscope.traces.trace import Trace

SHOWN_LOSSES = 10
SAMPLES_OF_P95 = 20
"""Fewest samples that have a 95th percentile: of fewer it is the largest."""

EPILOG = """\b
Examples:
  spoolscope info monday.trace
  spoolscope info monday.trace --json
  spoolscope info monday.trace --columns
  spoolscope info monday.trace --verify
"""


@click.command(epilog=EPILOG)
@click.argument("trace", type=click.Path(path_type=Path))
@click.option("--columns", is_flag=True, help="Explain every table and column.")
@click.option("--verify", is_flag=True, help="Only check that nothing has changed since.")
@names_options
@json_option
def command(
    trace: Path, *, columns: bool, verify: bool, names: bool, key_file: Path | None, as_json: bool
) -> int:
    """Show what a trace holds: duration, counts, loss, tier, completeness.

    Given a directory of several traces ('record --rotate', '--last'), lists them
    and their sums.
    """
    if verify:
        return show_verified(trace, as_json=as_json)
    if Recording.is_one(trace):
        recording = Recording.open(trace)
        return show_recording(recording, key_file, names=names, as_json=as_json)
    opened = named(Trace.open(trace), key_file, wanted=names)
    facts = gather(opened)
    if as_json:
        emit_json(_columns() if columns else marked(facts, opened))
    elif is_disk_trace(opened) and not columns:
        _print_disks(facts, opened, names_lines(opened, key_file))
    elif columns:
        _print_columns(opened)
    else:
        _print(facts, opened, names_lines(opened, key_file))
    return 0 if facts["complete"] else INCOMPLETE


def gather(trace: Trace) -> dict[str, Any]:
    """Return the facts of a trace that ``info --json`` prints."""
    meta = trace.meta
    n = meta["counts"]["syscalls"]
    ids = trace.table("syscalls", ["pid", "tid"])
    size = sum(f.stat().st_size for f in trace.path.iterdir() if f.is_file())
    calls_size = sum(trace.file(t).stat().st_size for t in ("syscalls", "paths"))
    return {
        "syscalls": n,
        "duration_ns": meta["duration_ns"],
        "processes": pc.count_distinct(ids["pid"]).as_py(),
        "threads": pc.count_distinct(ids["tid"]).as_py(),
        "lost": meta["lost"],
        "shed": meta.get("shed", 0),
        "complete": meta["complete"],
        "paths_unresolved": meta["paths_unresolved"],
        "bytes_on_disk": size,
        "bytes_per_syscall": round(calls_size / n, 2) if n else None,
        "tier": meta["tier"],
        "schema": meta["schema"],
        "beyond_calls": [*beyond_calls(trace), *unjudged_calls(meta)],
        "cannot": _cannot(meta),
        **{key: meta.get(key) for key in _MORE},
    }


def _cannot(meta: dict[str, Any]) -> list[dict[str, Any]]:
    """Return the questions about these spools that the trace does not, or only partly, answer."""
    types = {spool["fstype"] for spool in meta["spools"]}
    entries = answers(meta["programs"]) if meta["programs"] else []
    return [
        vars(answer)
        for answer in entries
        if answer.answer != YES and (not answer.filesystems or types & set(answer.filesystems))
    ]


_MORE = (
    "version",
    "clock_drift_ns",
    "kernel",
    "arch",
    "spools",
    "pseudonymised",
    "key_id",
    "program_names",
    "unbooked",
    "filter",
    "calls_in_flight",
    "compat_calls",
    "calls_apart",
    "calls_through_descriptors",
    "aio_calls",
    "calls_unjudged",
    "unjudged",
    "edge",
    "requests_unfinished",
    "recorder_cpu_ns",
    "records_rescued",
    "requests_not_completed",
    "overhead_ppm",
    "max_overhead_ppm",
    "lost_records",
    "closed",
    "ended",
    "segment",
    "frozen",
    "bytes_unread",
    "tree",
    "snapshot",
    "programs",
    "block_trace",
    "imported",
    "counts",
)


def _on_disk(facts: dict[str, Any]) -> str:
    text = f"{facts['bytes_on_disk']:,} bytes"
    each = facts["bytes_per_syscall"]
    return text if each is None else f"{text}; of these {each} per call for calls and paths"


def _tree(facts: dict[str, Any]) -> str:
    """Describe the table tree."""
    said = facts["snapshot"] or {"kind": "full" if facts["tree"] else "none"}
    met, missed = (facts["counts"].get(name, 0) for name in ("tree", "missed_names"))
    if said["kind"] == "none":
        return "not recorded"
    if said["kind"] == "partial":
        return f"partial, {met:,} names: the recording ended before all were seen"
    text = f"{met:,} names" + (f", {missed:,} gone before they were seen" if missed else "")
    if said["kind"] == "full":
        text += _read(said.get("read_bytes"))
    if said["kind"] == "touched":
        text += f", of the directories that calls used: {said.get('directories', 0):,}"
        if said.get("directories_missed"):
            text += f" (not found: {said['directories_missed']:,})"
    return text


def _read(read_bytes: int | None) -> str:
    """Return the effect of the snapshot: what it read of the disk is in memory from then on."""
    if read_bytes is None:
        return ""
    if not read_bytes:
        return "; all were in memory already"
    return f"; {size(read_bytes)} of them were read from the disk, and are in memory since"


def _print(facts: dict[str, Any], trace: Trace, of_names: list[str]) -> None:
    seconds = facts["duration_ns"] / 1e9
    rate = facts["syscalls"] / seconds if seconds else 0
    lines = [
        ("calls", f"{facts['syscalls']:,} in {seconds:.1f} s ({rate:,.0f}/s)"),
        ("processes", f"{facts['processes']:,} with calls ({counted(facts['threads'], 'thread')})"),
        ("complete", "yes" if facts["complete"] else "NO"),
        ("lost", f"{facts['lost']:,}"),
        ("left out", f"{facts['shed']:,}"),
        ("cost", _cost(facts["overhead_ppm"])),
        ("in flight at end", f"{facts['calls_in_flight']:,}"),
        ("paths unresolved", f"{facts['paths_unresolved']:,}"),
        ("on disk", _on_disk(facts)),
        ("tier", facts["tier"]),
        *_imported(facts["imported"]),
        ("tree at start", _tree(facts)),
        ("names", _names(facts)),
        ("clock drift", _drift(facts["clock_drift_ns"])),
        ("kernel", facts["kernel"]),
        ("schema", facts["schema"]),
    ]
    for spool in facts["spools"]:
        gone = ", UNMOUNTED meanwhile" if spool.get("unmounted_ns") else ""
        lines += [("spool", f"{spool['mount']} {spool['fstype']} ({once(spool['options'])}){gone}")]
    for answer in facts["cannot"]:
        said = f"{answer['question']} ({answer['reason']})"
        lines += [("cannot tell" if answer["answer"] == NO else "tells in part", said)]
    for label, value in lines:
        say(*field(label, str(value), 17))
    for sentence in facts["beyond_calls"]:
        say(*wrapped(sentence))
    if not facts["closed"]:
        say("The recorder did not end in order; the last second may be missing.")
    if facts["bytes_unread"]:
        say(f"{facts['bytes_unread']:,} bytes of the capture were cut or damaged: not read.")
    if facts["ended"] == "disk full":
        say("The recording ended when the disk of its output was full.")
    _print_losses(trace)
    say(*of_names, next_line(f"spoolscope explain {quote(str(trace.path))}"))


def _print_disks(facts: dict[str, Any], trace: Trace, of_names: list[str]) -> None:
    """Print the facts of a trace of disks alone."""
    seconds = facts["duration_ns"] / 1e9
    lines = [
        ("requests", f"{facts['counts']['block_stages']:,} in {seconds:.1f} s; no calls"),
        ("complete", "yes" if facts["complete"] else "NO"),
        ("lost", f"{facts['lost']:,} events"),
        ("on disk", f"{facts['bytes_on_disk']:,} bytes"),
        *_imported(facts["imported"]),
        ("names", _names(facts)),
        ("schema", facts["schema"]),
    ]
    for label, value in lines:
        say(f"{label:>17}  {value}")
    then = next_line(f"spoolscope report {quote(str(trace.path))}")
    say("", *disk_lines(study_disks(trace)), *of_names, then)


def _names(facts: dict[str, Any]) -> str:
    if not facts["pseudonymised"]:
        return "as they are"
    hidden = {
        HIDDEN_PRIVATE: ", and of programs that are named like a mailbox, user or file",
        HIDDEN_ALL: ", and of all programs",
    }
    text = "pseudonyms of files" + hidden.get(str(facts["program_names"]), "")
    return text + (f" (not in the book of names: {facts['unbooked']})" if facts["unbooked"] else "")


_TIMES = {"day": "times of day", "relative": "relative times", "none": "no times"}


def _imported(facts: dict[str, Any] | None) -> list[tuple[str, str]]:
    """Return what an import could not find out."""
    if not facts:
        return []
    if "events" in facts:
        return [("imported", imported_disks(facts))]
    open_points = (
        "not_understood",
        "unfinished",
        "unplaced",
        "without_parent",
        "names_cut",
        "without_duration",
    )
    said = [f"{facts[name]:,} {name.replace('_', ' ')}" for name in open_points if facts.get(name)]
    lines = f"{facts['lines']:,} lines of {facts['from']}"
    if (times := facts.get("times")) in _TIMES:
        lines += f" with {_TIMES[times]}"
    if facts.get("in_order"):
        lines += ", in the order of lines"
    return [("imported", ", ".join([lines, *said]))]


def _cost(ppm: dict[str, int] | None) -> str:
    if not ppm or not ppm["n"]:
        return "not measured"
    median, p95 = (f"{ppm[key] / 10_000:.2f} %" for key in ("median", "p95"))
    tail = f"95th percentile {p95} of " if ppm["n"] >= SAMPLES_OF_P95 else ""
    return f"{median} of all CPUs ({tail}{counted(ppm['n'], 'sample')})"


def _drift(drift_ns: int | None) -> str:
    if drift_ns is None:
        return "not known"
    said = f"{drift_ns / 1e9:+,.6f} s" if abs(drift_ns) >= 500 else "0 s"
    return f"{said}: the wall clock against that of the trace, which never steps"


def _print_losses(trace: Trace) -> None:
    losses = trace.table("losses").to_pylist()
    for shed in trace.table("sheds").to_pylist():
        say(f"from ts_ns {shed['ts_ns']} on left out: {shed['level']}")
    for loss in losses[:SHOWN_LOSSES]:
        if loss["first_seq"] is None:
            say(f"lost {loss['n']:,} records of kind {loss['kind']}")
            continue
        where = f"thread {loss['tid']}, seq {loss['first_seq']} to {loss['last_seq']}"
        how = "left out" if loss["kind"] == "shed" else "lost"
        say(f"{how} {loss['n']:,} calls of {where}, before ts_ns {loss['before_ns']}")
    if len(losses) > SHOWN_LOSSES:
        say(f"... and {len(losses) - SHOWN_LOSSES} more, in losses.parquet")


def _columns() -> dict[str, Any]:
    entries = ((name, column) for name, t in TABLES.items() for column in recorded(t).columns)
    return {"columns": [{"of_table": name, **asdict(column)} for name, column in entries]}


def _print_columns(trace: Trace) -> None:
    for table in TABLES.values():
        say(*table_lines(recorded(table), trace.meta["counts"].get(table.name, 0)))
