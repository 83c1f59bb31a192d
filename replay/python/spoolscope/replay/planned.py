"""The plan of a replay: of a whole trace, or a part, for as many users as asked for."""

import platform
from collections import Counter
from dataclasses import replace
from pathlib import Path
from typing import Any

from spoolscope.replay.chosen import nothing_of
from spoolscope.replay.engine import Engine
from spoolscope.replay.ops import FAULT, LEFT_OUT
from spoolscope.replay.outcomes import read_plan
from spoolscope.replay.plan import PlanSummary, Show, build, written_bytes
from spoolscope.replay.scaled import Scale, facts_of, users
from spoolscope.replay.threads import late_ns
from spoolscope.replay.whatif import WhatIf, by_name
from spoolscope.traces.errors import SpoolscopeError
from spoolscope.traces.files import write_file
from spoolscope.traces.flat import NO_CALL_ROW
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
    summary = build(trace, out, what_if, show)
    engine, part = Engine(out), what_if.since(late_ns(trace))
    made = engine.derive(part, what_if.only) if part is not None or what_if.only else {}
    if "nothing_of" in made:
        raise nothing_of(made["nothing_of"], made["processes"])
    cut, only, scaled = made.get("cut"), made.get("only"), None
    if cut is not None:
        summary = replace(
            summary,
            held_skipped=cut["skipped"],
            duration_ns=cut["duration_ns"],
            tree_bytes=cut["bytes"],
        )
    if cut or only:
        summary = replace(summary, before_start=0)
    if what_if.scale.users > 1:
        summary, scaled = _scaled(summary, engine, what_if.scale)
    if cut or only or scaled:
        summary = _counted(summary, out)
    return summary, what_if.entry(summary.left_out, cut, only, scaled)


def _check_architecture(trace: Trace) -> None:
    """Refuse a trace whose calls and flags of open are not those of this machine."""
    here, there = platform.machine(), trace.meta.get("arch", "unknown")
    if there not in (here, "unknown"):
        raise SpoolscopeError(
            f"trace {trace.path} is of {there}, whose calls and flags are not those of {here}",
            remedy=f"replay it on a machine with {there}",
        )


def _scaled(
    summary: PlanSummary, engine: Engine, scale: Scale
) -> tuple[PlanSummary, dict[str, Any]]:
    """Add copies of its users to a plan; return its summary, and facts of these."""
    listed, mailboxes = summary.path.with_suffix(".users"), users(read_plan(summary.path))
    try:
        write_file(listed, b"\0".join(mailboxes))
        made = engine.derive(users=listed, phases_ns=scale.phases_ns(summary.duration_ns))
    finally:
        listed.unlink(missing_ok=True)
    facts = facts_of({**made["scale"], "mailboxes": len(mailboxes)}, summary.duration_ns)
    summary = replace(
        summary,
        in_flight=summary.in_flight * scale.users,
        strangers=summary.strangers * scale.users,
        elsewhere=summary.elsewhere * scale.users,
        held_skipped=summary.held_skipped * scale.users,
        duration_ns=facts["duration_ns"],
        tree_bytes=facts["bytes"],
    )
    return summary, facts


def _counted(summary: PlanSummary, plan_file: Path) -> PlanSummary:
    """Return the summary with the counts of a changed plan."""
    made = read_plan(plan_file)
    gone = made.ops["arg"][made.ops["op"] == LEFT_OUT]
    not_planned = summary.in_flight + summary.strangers + summary.elsewhere
    return replace(
        summary,
        syscalls=int((made.ops["call"] != NO_CALL_ROW).sum()) + not_planned,
        ops=len(made.ops),
        threads=len(made.threads),
        faults=int((made.ops["op"] == FAULT).sum()),
        left_out=by_name(Counter(gone.tolist())),
        written_bytes=written_bytes(made.ops),
    )
