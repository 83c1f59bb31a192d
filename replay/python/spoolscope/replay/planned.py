"""The plan of a replay: of a whole trace, or a part, for as many users as asked for."""

from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

from spoolscope.replay.chosen import chosen
from spoolscope.replay.engine import Engine
from spoolscope.replay.ops import FAULT, LEFT_OUT
from spoolscope.replay.outcomes import read_plan
from spoolscope.replay.plan import PlanSummary, Show, build, written_bytes
from spoolscope.replay.scaled import Scale, told, users
from spoolscope.replay.threads import late_ns
from spoolscope.replay.whatif import WhatIf, by_name
from spoolscope.traces.files import write_file
from spoolscope.traces.flat import NO_CALL_ROW
from spoolscope.traces.slices import Slice
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
        SpoolscopeError: the trace holds no call, or cannot be planned.
    """
    if what_if.part is not None:
        what_if.part.check_within(int(trace.meta["duration_ns"]))
    summary = build(trace, out, what_if, show)
    part = what_if.since(late_ns(trace))
    cut = None if part is None else _cut(out, part)
    only = _only(out, what_if.only) if what_if.only else None
    if cut is not None:
        summary = replace(
            summary,
            held_skipped=cut["skipped"],
            duration_ns=cut["duration_ns"],
            tree_bytes=cut["bytes"],
        )
    if cut or only:
        summary = _counted(replace(summary, before_start=0), out)
    scaled = None
    if what_if.scale.users > 1:
        summary, scaled = _scaled(summary, out, what_if.scale)
    return summary, what_if.told(summary.left_out, cut, only, scaled)


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


def _cut(plan_file: Path, part: Slice) -> dict[str, Any]:
    """Replace a plan by a part of it."""
    with _replaced(plan_file) as whole:
        return Engine(whole).cut(plan_file, part.from_ns, part.to_ns)


def _only(plan_file: Path, only: Sequence[str]) -> dict[str, Any]:
    """Replace a plan by the chosen calls and those that they depend on."""
    with _replaced(plan_file) as whole:
        mask = plan_file.with_suffix(".chosen")
        try:
            write_file(mask, chosen(read_plan(whole), only).astype(np.uint8).tobytes())
            return Engine(whole).only(plan_file, mask)
        finally:
            mask.unlink(missing_ok=True)


def _scaled(
    summary: PlanSummary, plan_file: Path, scale: Scale
) -> tuple[PlanSummary, dict[str, Any]]:
    """Replace a plan by one with copies of its users; return its summary, and facts of these."""
    with _replaced(plan_file) as whole:
        listed, mailboxes = plan_file.with_suffix(".users"), users(read_plan(whole))
        try:
            write_file(listed, b"\0".join(mailboxes))
            phases = scale.phases_ns(summary.duration_ns)
            found = Engine(whole).scale(plan_file, listed, phases)
        finally:
            listed.unlink(missing_ok=True)
    found = told({**found, "mailboxes": len(mailboxes)}, summary.duration_ns)
    counted = _counted(
        replace(
            summary,
            in_flight=summary.in_flight * scale.users,
            strangers=summary.strangers * scale.users,
            elsewhere=summary.elsewhere * scale.users,
            held_skipped=summary.held_skipped * scale.users,
            duration_ns=summary.duration_ns + max(phases),
            tree_bytes=found["bytes"],
        ),
        plan_file,
    )
    return counted, found


@contextmanager
def _replaced(plan_file: Path) -> Iterator[Path]:
    """Rename the plan while the block makes a new one from it; the old one is then removed."""
    whole = plan_file.rename(plan_file.with_suffix(".whole"))
    try:
        yield whole
    finally:
        whole.unlink()
