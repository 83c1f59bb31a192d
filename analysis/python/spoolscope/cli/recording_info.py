"""The output of info for a directory of several traces."""

import contextlib
from datetime import UTC, datetime
from pathlib import Path
from shlex import quote
from typing import Any

from spoolscope.analysis.frozen import frozen_words
from spoolscope.analysis.wording import counted
from spoolscope.cli.names import marked, named, names_lines
from spoolscope.cli.output import emit_json, next_line, wrapped
from spoolscope.cli.printing import say
from spoolscope.tracers.hook import Ran
from spoolscope.traces.errors import INCOMPLETE, SpoolscopeError
from spoolscope.traces.recording import Recording
from spoolscope.traces.trace import Trace

_SHOWN = ("start_ns", "duration_ns", "lost", "complete", "segment", "frozen", "ended")


def show_recording(
    recording: Recording, key_file: Path | None, *, names: bool, as_json: bool
) -> int:
    """List the traces of a recording and their sums; return the exit code."""
    described = recording.described()
    opened = {path: _opened(path) for path, _ in described}
    shown = {
        path: named(trace, key_file, wanted=names)
        for path, trace in opened.items()
        if trace is not None
    }
    traces = [
        {"name": path.name, "syscalls": meta["counts"]["syscalls"]}
        | {key: meta.get(key) for key in _SHOWN}
        | {"frozen_words": _frozen(shown.get(path))}
        for path, meta in described
    ]
    totals = recording.totals([meta for _, meta in described])
    facts: dict[str, Any] = {
        "kind": recording.control["kind"],
        "recorder_pid": recording.recorder(),
        "syscalls": totals["counts"]["syscalls"],
        "duration_ns": totals["duration_ns"],
        "lost": totals["lost"],
        "complete": totals["complete"],
        "ended_early": recording.control.get("early"),
        "hooks": recording.control.get("hooks", []),
        "segments_pending": len(recording.pending()),
        "failures": recording.failures,
        "segments_skipped": recording.control["skipped"],
        "traces": traces,
    }
    if as_json:
        emit_json(marked(facts, list(shown.values())[-1]) if shown else facts)
    else:
        last = list(shown.values())[-1:]
        _print(facts, recording, [line for trace in last for line in names_lines(trace, key_file)])
    return 0 if facts["complete"] else INCOMPLETE


def _opened(trace: Path) -> Trace | None:
    """Open a trace of a recording; return None if --keep has removed it meanwhile."""
    with contextlib.suppress(SpoolscopeError, OSError):
        return Trace.open(trace)
    return None


def _frozen(trace: Trace | None) -> str | None:
    """Return why a flight recorder was frozen; its trace may be removed meanwhile, too."""
    with contextlib.suppress(SpoolscopeError, OSError):
        return None if trace is None else frozen_words(trace)
    return None


def _print(facts: dict[str, Any], recording: Recording, of_names: list[str]) -> None:
    for trace in facts["traces"]:
        began = datetime.fromtimestamp(trace["start_ns"] / 1e9, UTC)
        state = "complete" if trace["complete"] else f"NOT complete, lost {trace['lost']:,}"
        why = f", {trace['frozen_words']}" if trace["frozen_words"] else ""
        line = (
            f"{trace['name']}  {began:%Y-%m-%d %H:%M:%S} UTC  {trace['duration_ns'] / 1e9:8.1f} s"
            f"  {trace['syscalls']:>11,} calls  {state}{why}"
        )
        say(*wrapped(line, then=" " * 14))
    say(
        f"{counted(len(facts['traces']), 'trace')}, {facts['syscalls']:,} calls in"
        f" {facts['duration_ns'] / 1e9:.1f} s, lost {facts['lost']:,}"
    )
    if facts["ended_early"]:
        say(f"The recording {facts['ended_early']}.")
    for ran in facts["hooks"]:
        say(f"--on-freeze {Ran(**ran).words}")
    for failed in facts["failures"]:
        say(*wrapped(f"The recording {failed['failure']}; its segments are kept."))
    if pid := facts["recorder_pid"]:
        say(f"Process {pid} records; {facts['segments_pending']} segments are open.")
    elif facts["segments_pending"]:
        say(
            f"{facts['segments_pending']} segments are in no trace:"
            f" spoolscope record --recover {recording.path} -o NEW"
        )
    if facts["segments_skipped"]:
        say(f"{facts['segments_skipped']} segments were dropped unread: --keep allows it.")
    for line in of_names:
        say(line)
    if facts["traces"]:
        newest = recording.path / facts["traces"][-1]["name"]
        say(next_line(f"spoolscope explain {quote(str(newest))}"))
