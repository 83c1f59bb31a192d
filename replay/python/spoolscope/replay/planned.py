"""The plan of a replay: of a whole trace, or a part, for as many users as asked for."""

import platform
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from spoolscope.replay.engine import Engine
from spoolscope.replay.outcomes import read_plan
from spoolscope.replay.plan import PlanSummary, Show, build
from spoolscope.replay.scaled import users
from spoolscope.replay.threads import late_ns
from spoolscope.replay.whatif import WhatIf
from spoolscope.traces.errors import SpoolscopeError
from spoolscope.traces.files import write_file
from spoolscope.traces.trace import Trace


def plan(
    trace: Trace, out: Path, what_if: WhatIf, show: Show = lambda _share: None
) -> tuple[PlanSummary, dict[str, Any] | None]:
    """Write the plan that is asked for; return its summary, and the entry of run.json for it.

    Args:
        trace: An opened trace.
        out: The plan file to write.
        what_if: Deliberate changes of the recording.
        show: Called with the share that is done.

    Raises:
        SpoolscopeError: the trace is of another architecture, holds no call, or cannot be planned.
    """
    _check_architecture(trace)
    if what_if.part is not None:
        what_if.part.check_within(int(trace.meta["duration_ns"]))
    built = build(trace, out, what_if, show)
    engine = Engine(out)
    made = engine.derive(*what_if.words(late_ns(trace)))
    cut, only, scaled = made.get("cut"), made.get("only"), None
    if cut is not None:
        built = replace(
            built,
            held_skipped=cut["skipped"],
            duration_ns=cut["duration_ns"],
            tree_bytes=cut["bytes"],
        )
    if cut or only:
        built = replace(built, before_start=0)
    if what_if.scale.users > 1:
        made = _with_copies(out, engine, what_if.scale.words(built.duration_ns))
        scaled, n = made["scale"], what_if.scale.users
        built = replace(
            built,
            in_flight=built.in_flight * n,
            strangers=built.strangers * n,
            elsewhere=built.elsewhere * n,
            held_skipped=built.held_skipped * n,
            duration_ns=scaled["duration_ns"],
            tree_bytes=scaled["bytes"],
        )
    counts = made["counts"]
    calls = counts.pop("calls") + built.in_flight + built.strangers + built.elsewhere
    if cut or only or scaled:
        built = replace(built, syscalls=calls)
    left_out = dict(counts.pop("left_out"))
    summary = PlanSummary(**vars(built) | counts, left_out=left_out)
    return summary, what_if.entry(left_out, cut, only, scaled)


def _with_copies(out: Path, engine: Engine, words: Sequence[str]) -> dict[str, Any]:
    """Add copies of its users to a plan; they are those whose names it still has."""
    listed = out.with_suffix(".users")
    try:
        write_file(listed, b"\0".join(users(read_plan(out))))
        return engine.derive(*words, f"--users={listed}")
    finally:
        listed.unlink(missing_ok=True)


def _check_architecture(trace: Trace) -> None:
    """Refuse a trace whose calls and flags of open are not those of this machine."""
    here, there = platform.machine(), trace.meta.get("arch", "unknown")
    if there not in (here, "unknown"):
        raise SpoolscopeError(
            f"trace {trace.path} is of {there}, whose calls and flags are not those of {here}",
            remedy=f"replay it on a machine with {there}",
        )
