"""Replay a trace on candidates, in rounds of random order, each on a fresh filesystem."""

import shutil
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from spoolscope.replay.artifacts import finished_rows, write_header, write_plan
from spoolscope.replay.candidates import Candidate, check, parse
from spoolscope.replay.disks import Asked, given
from spoolscope.replay.engine import ORDERS, Engine
from spoolscope.replay.expected import Timing, check_room
from spoolscope.replay.interrupts import ending_on_signals
from spoolscope.replay.job import RECORDED, Begin, Job, Recorder, Slot, blocks, slots
from spoolscope.replay.modelled import Player, on_model
from spoolscope.replay.mount_points import enter_private_mounts
from spoolscope.replay.one_run import run_once, running_s
from spoolscope.replay.outcomes import read_plan
from spoolscope.replay.pace import Pace, parse_pace
from spoolscope.replay.places import check_places, results, scratch
from spoolscope.replay.planned import plan
from spoolscope.replay.recorded_cache import memory_of
from spoolscope.replay.whatif import WHOLE, WhatIf
from spoolscope.replay.workers import OWN, POOL, pool
from spoolscope.traces.errors import usage_error
from spoolscope.traces.phases import Phases, Progress, unseen
from spoolscope.traces.trace import Trace

PLAN, RUNS = "the plan", "the runs"
BUILDING, CHECKING = "building the plan", "checking the plan"
# Time that a run takes besides the replay itself, for the ETA only.
OVERHEAD_S = 4.0


def replay(
    trace: Path | str,
    candidates: Sequence[str | Candidate],
    out: Path,
    rounds: int = 1,
    pace: str = "original",
    seed: int = 0,
    recorder: Recorder | None = None,
    progress: Progress = unseen,
    work: Path | None = None,
    begin: Begin | None = None,
    what_if: WhatIf = WHOLE,
    order: str = ORDERS[0],
    *,
    realtime: bool = False,
    resume: bool = False,
    reference: str | None = None,
    whole_life: bool = True,
    timing: Timing | None = None,
    device_model: str = "",
    player: Player | None = None,
    devices: Asked | None = None,
    one_block: bool = False,
    repeats: int = 0,
    workers: str = OWN,
) -> list[dict[str, Any]]:
    """Replay a trace on every candidate and return one row per run.

    Args:
        trace: Trace directory.
        candidates: Candidates, or their names: see ``candidates.parse``.
        out: Directory for the results; must not exist or be empty, but for ``resume``.
        rounds: How often each candidate is replayed, each time on a fresh filesystem.
        pace: See ``pace.HELP``.
        seed: Seed of the random order of candidates within a round.
        recorder: Runs a command while recording a mount into a trace; None records nothing.
        progress: Called with a sentence and the fraction done.
        work: Directory for images; the output directory by default.
        begin: The state in which every replay begins; by default, with the memory of the recording.
        what_if: Deliberate changes of the recording.
        order: What a call waits for, one of ``engine.ORDERS``.
        realtime: Tasks have real-time priority while CPUs are to spare.
        resume: An interrupted replay in ``out`` goes on: its finished runs stay.
        reference: Candidate that the others are compared with.
        whole_life: Used filesystems are checked and emptied.
        timing: Receives the times of runs.
        device_model: Name of the device model of candidates that name none.
        player: Plays device models, from the end of the fixture's building on.
        devices: Block devices to make filesystems on, instead of images.
        repeats: How often a disturbed run is made again at most.
        workers: ``workers.OWN``: jobs stay with the recorded process; or ``POOL``.
        one_block: Only the next runs of one round on one kernel are made, as in a machine.

    Raises:
        SpoolscopeError: a candidate cannot be used, the plan or a run failed.
    """
    opened = Trace.open(trace)
    named = (parse(one) if isinstance(one, str) else one for one in candidates)
    chosen = [on_model(candidate, device_model) for candidate in named]
    kept = parse_pace(pace, realtime=realtime)
    begin = begin or Begin()
    check_asked(opened, chosen, reference, what_if, workers)
    for candidate in chosen:
        check(candidate, opened.meta, ages=begin.age is not None)
    check_places(chosen, out, work)
    if (real := given(devices or Asked())) is not None:
        real.check_candidates(chosen)
    directories = [candidate.directory for candidate in chosen if candidate.directory]
    if len(directories) < len(chosen):
        enter_private_mounts([opened.path, out, work or out, *directories])
    with (
        ending_on_signals(),
        results(out),
        scratch(work or out, out, real) as place,
    ):
        planning = _planning_s(opened)
        run_s = kept.estimate_s(int(opened.meta["duration_ns"])) or 1.0
        whole = {PLAN: sum(planning.values()), RUNS: len(chosen) * rounds * (run_s + OVERHEAD_S)}
        phases = Phases(progress, whole)
        show = phases.within(PLAN, planning)
        job, checked = _job(
            opened, place, out, kept, recorder, begin, rounds, what_if, order, show, workers
        )
        job = replace(
            job,
            whole_life=whole_life,
            reference=reference,
            player=player,
            devices=real,
            repeats=repeats,
        )
        order_of_runs = slots(chosen, rounds, seed)
        rows = finished_rows(job, order_of_runs, seed) if resume else []
        check_room(job, order_of_runs[len(rows) :])
        write_plan(job, checked)
        # Already now: the header marks the directory as that of an interrupted replay.
        write_header(job, order_of_runs, rows, seed)
        left = order_of_runs[len(rows) :]
        now = next(blocks(left), []) if one_block else left
        _make_runs(job, order_of_runs, now, rows, seed, phases, timing)
    return rows


def check_asked(
    trace: Trace, chosen: Sequence[Candidate], reference: str | None, what_if: WhatIf, workers: str
) -> None:
    """Refuse what cannot be done on any machine; ``replay`` calls this itself.

    Args:
        trace: The trace.
        chosen: All candidates.
        reference: Candidate that the others are compared with.
        what_if: Deliberate changes of the recording.
        workers: ``workers.OWN`` or ``POOL``.

    Raises:
        SpoolscopeError: the reference is none of them, the part of the trace is beyond its end, or
            two options do not go together.
    """
    names = [candidate.name for candidate in chosen]
    if reference is not None and reference not in names:
        raise usage_error(
            f"the reference {reference!r} is no candidate of this replay",
            remedy=f"use --reference with one of: {', '.join(names)}",
        )
    if what_if.part is not None:
        what_if.part.check_within(int(trace.meta["duration_ns"]))
    if workers == POOL and what_if.scale.users > 1:
        raise usage_error(
            "--workers pool does not go with --scale-users: a copy's processes are its own",
            remedy="give one of them",
        )


def _make_runs(
    job: Job,
    runs: Sequence[Slot],
    now: Sequence[Slot],
    rows: list[dict[str, Any]],
    seed: int,
    phases: Phases,
    timing: Timing | None,
) -> None:
    """Make the runs ``now`` out of all ``runs``, and add their rows."""
    # Progress does not include finished runs: no time went by for them.
    shown = phases.within(RUNS, {slot.name: 1.0 for slot in now})
    steps = running_s(job)
    if timing is not None:
        timing.begin(runs, rows, sum(steps.values()))
    for slot in now:
        of_run = shown.within(slot.name, steps, prefix=f"{slot.name}: ")
        rows.append(_undisturbed(job, slot, of_run))
        write_header(job, runs, rows, seed)
        if timing is not None:
            timing.after(rows[-1])


def _undisturbed(job: Job, slot: Slot, show: Phases) -> dict[str, Any]:
    """Make a run; repeat it, as often as is allowed, if it was disturbed. The last one stays."""
    tried: list[dict[str, Any]] = []
    while True:
        row = run_once(job, slot, show, tried)
        if not row["disturbance"]["why"] or len(tried) >= job.repeats:
            return row
        tried.append(row)
        shutil.rmtree(job.out / slot.name)


def _job(
    trace: Trace,
    scratch: Path,
    out: Path,
    pace: Pace,
    recorder: Recorder | None,
    begin: Begin,
    rounds: int,
    what_if: WhatIf,
    order: str,
    show: Phases,
    workers: str,
) -> tuple[Job, dict[str, Any]]:
    plan_file = scratch / "replay.plan"
    summary, entry = plan(trace, plan_file, what_if, lambda done: show(BUILDING, done))
    if not summary.syscalls:
        raise usage_error(
            "no recorded call is in the part that is asked for",
            remedy="give another part: a recording begins when its snapshot was taken",
        )
    pooled = pool(plan_file) if workers == POOL else None
    show(CHECKING)
    checked = Engine(plan_file).order()
    read = read_plan(plan_file)
    job = Job(
        trace=trace,
        plan_file=plan_file,
        summary=summary,
        plan=read,
        work=scratch,
        out=out,
        pace=pace,
        names=int(checked["fixture_names"]),
        fixture_bytes=int(checked["fixture_bytes"]),
        peak_bytes=int(checked["peak_bytes"]),
        recorder=recorder,
        begin=begin,
        rounds=rounds,
        what_if=entry,
        order=order,
        workers=pooled,
        memory=memory_of(trace, read) if begin.cache == RECORDED else None,
    )
    return job, checked


def _planning_s(trace: Trace) -> dict[str, float]:
    """Return about how long the plan of a trace takes."""
    calls = float(trace.meta["counts"]["syscalls"])
    return {BUILDING: calls / 500_000, CHECKING: calls / 1_000_000}
