"""Replay a trace on candidates, in rounds of random order, each on a fresh filesystem."""

import json
import shutil
import time
from dataclasses import asdict
from pathlib import Path
from typing import Any

from spoolscope.replay import images
from spoolscope.replay.artifacts import (
    digests_of,
    faults_of,
    finished_rows,
    row_of,
    write_header,
    write_json,
    write_plan,
    write_row,
)
from spoolscope.replay.candidates import check, parse
from spoolscope.replay.differences import Types
from spoolscope.replay.divergences import causes, judge, shown
from spoolscope.replay.engine import ORDERS, Engine, ended_early, to_its_end
from spoolscope.replay.fidelity import Conditions, fidelity, to_make
from spoolscope.replay.images import filesystem_type
from spoolscope.replay.interrupts import ending_on_signals
from spoolscope.replay.job import WARM, Begin, Job, Recorder, Slot, slots
from spoolscope.replay.outcomes import read_outcomes, read_plan, write_parquet
from spoolscope.replay.pace import Pace, parse_pace
from spoolscope.replay.places import check_places, results, scratch
from spoolscope.replay.planned import plan
from spoolscope.replay.targets import Target, check_space, grows_to, image_bytes, prepared
from spoolscope.replay.whatif import WHOLE, WhatIf
from spoolscope.traces.errors import USAGE, SpoolscopeError
from spoolscope.traces.phases import Phases, Progress, unseen
from spoolscope.traces.trace import Trace

PLAN, RUNS = "the plan", "the runs"
BUILDING, CHECKING = "building the plan", "checking the plan"
# Time a run takes besides the replay itself, for the ETA only.
OVERHEAD_S = 4.0


def replay(
    trace: Path | str,
    candidates: list[str],
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
) -> list[dict[str, Any]]:
    """Replay a trace on every candidate and return one row per run.

    Args:
        trace: Trace directory.
        candidates: Names of presets, or ``dir:PATH``.
        out: Directory for the results; must not exist or be empty, but for ``resume``.
        rounds: How often each candidate is replayed, each time on a fresh filesystem.
        pace: See ``pace.HELP``.
        seed: Of the random order of candidates within a round.
        recorder: Runs a command while recording a mount into a trace; None records nothing.
        progress: Called with a sentence and the fraction done.
        work: Directory for images; the output directory by default.
        begin: The state in which every replay begins; cold by default.
        what_if: Which calls are left out on purpose.
        order: What a call waits for, one of ``engine.ORDERS``.
        realtime: Tasks have real-time priority while CPUs are to spare.
        resume: An interrupted replay in ``out`` goes on: its finished runs stay.

    Raises:
        SpoolscopeError: a candidate cannot be used, the plan or a run failed.
    """
    opened = Trace.open(trace)
    chosen = [parse(name) for name in candidates]
    kept = parse_pace(pace, realtime=realtime)
    begin = begin or Begin()
    for candidate in chosen:
        check(candidate, opened.meta, ages=begin.age is not None)
    check_places(chosen, out, work)
    with ending_on_signals(), results(out), scratch(work or out, out) as place:
        planning = _planning_s(opened)
        run_s = kept.estimate_s(int(opened.meta["duration_ns"])) or 1.0
        whole = {PLAN: sum(planning.values()), RUNS: len(chosen) * rounds * (run_s + OVERHEAD_S)}
        phases = Phases(progress, whole)
        show = phases.within(PLAN, planning)
        job, checked = _job(opened, place, out, kept, recorder, begin, rounds, what_if, order, show)
        order_of_runs = slots(chosen, rounds, seed)
        runs = phases.within(RUNS, {slot.name: 1.0 for slot in order_of_runs})
        rows = finished_rows(job, order_of_runs, seed) if resume else []
        write_plan(job, checked)
        # Already now: what an interrupted replay leaves can be told from a stranger's directory.
        write_header(job, order_of_runs, rows, seed)
        for slot in order_of_runs[len(rows) :]:
            of_run = runs.within(slot.name, _running_s(job), prefix=f"{slot.name}: ")
            rows.append(run_once(job, slot, of_run))
            write_header(job, order_of_runs, rows, seed)
    return rows


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
) -> tuple[Job, dict[str, Any]]:
    plan_file = scratch / "replay.plan"
    summary, told = plan(trace, plan_file, what_if, lambda done: show(BUILDING, done))
    if not summary.syscalls:
        raise SpoolscopeError(
            "no recorded call is in the part that is asked for",
            remedy="give another part: a recording begins when its snapshot was taken",
            exit_code=USAGE,
        )
    show(CHECKING)
    checked = Engine(plan_file).check()
    job = Job(
        trace=trace,
        plan_file=plan_file,
        summary=summary,
        plan=read_plan(plan_file),
        work=scratch,
        out=out,
        pace=pace,
        names=int(checked["fixture_names"]),
        fixture_bytes=int(checked["fixture_bytes"]),
        peak_bytes=int(checked["peak_bytes"]),
        recorder=recorder,
        begin=begin,
        rounds=rounds,
        what_if=told,
        order=order,
    )
    return job, checked


def _planning_s(trace: Trace) -> dict[str, float]:
    """Return about how long the plan of a trace takes."""
    calls = float(trace.meta["counts"]["syscalls"])
    return {BUILDING: calls / 500_000, CHECKING: calls / 1_000_000}


def _running_s(job: Job) -> dict[str, float]:
    """Return about how long the phases of a run take."""
    calls, names = job.summary.syscalls, job.names
    run_s = job.pace.estimate_s(job.summary.duration_ns)
    return {
        "making the filesystem": 0.5,
        "building the fixture": 0.5 + names / 20_000,
        "making caches cold": 1.0,
        "replaying": calls / 50_000 if run_s is None else run_s,
        "converting its recording": 0.0 if job.recorder is None else 2 + calls / 20_000,
        "verifying": 0.5 + names / 50_000,
        "judging": 0.1 + calls / 200_000,
    }


def run_once(job: Job, slot: Slot, show: Phases) -> dict[str, Any]:
    """Make, fill, replay, verify and remove one candidate; return the row of the run."""
    directory = job.out / slot.name
    directory.mkdir(parents=True)
    engine = Engine(job.plan_file, job.begin.content)
    age = job.begin.age
    content = max(job.summary.tree_bytes, job.fixture_bytes, job.peak_bytes)
    size = image_bytes(content, job.names, age)
    if slot.candidate.directory is None:
        check_space(job.work.parent, grows_to(slot.candidate, size, age))
    began = time.monotonic()
    show("making the filesystem")
    roomy = shutil.disk_usage(job.work).free > size
    keep = job.work / f"{slot.candidate.name}.fixture" if job.rounds > 1 and roomy else None
    with prepared(slot.candidate, job.work, size, keep) as target:
        built = _fill(job, slot, engine, target, keep, show)
        summary = _execute(job, engine, target, directory, show)
        show("verifying")
        state = engine.verify(target.mount)
        options = target.options
        types = Types(_recorded_types(job.trace), filesystem_type(target.mount))
    show("judging")
    outcomes = read_outcomes(directory / "outcomes.bin")
    wrong = judge(job.plan, outcomes, types)
    caused = causes(job.plan, outcomes, wrong, types, job.trace)
    given = Conditions(job.pace, summary, int(state["mismatched"]), types.same, job.users)
    found = fidelity(job.plan, outcomes, job.summary, given)
    row = row_of(job, slot, summary, state, options) | asdict(found)
    row["wall_ns"] = int((time.monotonic() - began) * 1e9)
    row["run"] = str(directory)
    row["faults"] = faults_of(job, outcomes)
    row["divergences"] = shown(caused)
    row["fixture"] = "copied" if target.copied else "built"
    row["age"] = built.get("age")
    row["xattrs"] = {"set": built["xattrs"], "skipped": built["xattrs_skipped"]}
    write_parquet(job.plan, outcomes, directory / "outcomes.parquet", job.users)
    (directory / "outcomes.bin").unlink()
    write_json(directory / "divergences.json", caused)
    row["digests"] = digests_of(directory)
    write_row(directory, row)
    return row


def _fill(
    job: Job, slot: Slot, engine: Engine, target: Target, keep: Path | None, show: Phases
) -> dict[str, Any]:
    """Build the fixture, or know what a copied one holds; make caches cold or warm."""
    note = keep.with_suffix(".json") if keep else None
    if note is not None and target.copied:
        built: dict[str, Any] = json.loads(note.read_text())
    else:
        show("building the fixture")
        built = engine.fixture(target.mount, job.begin.age)
        if note is not None and target.image is not None:
            write_json(note, built)
    show("making caches cold")
    target.cool(slot.candidate, keep)
    if job.begin.cache == WARM:
        images.read_all(target.mount)
    return built


def _recorded_types(trace: Trace) -> frozenset[str]:
    return frozenset(str(spool.get("fstype")) for spool in trace.meta.get("spools", []))


def _execute(
    job: Job, engine: Engine, target: Target, directory: Path, show: Phases
) -> dict[str, Any]:
    files = engine.files(directory, job.work)
    command = engine.command(target.mount, job.pace, job.order, files)

    def recording(_what: str, converted: float | None) -> None:
        if converted is not None:
            show("converting its recording", converted)

    show("replaying")
    with engine.watching(files, lambda done: show("replaying", done)):
        if job.recorder is not None:
            status = job.recorder(target.mount, command, directory / "trace", recording)
        else:
            status = to_its_end(command)
    summary = engine.summary(files, status)
    if summary["failed"] or summary["interrupted"]:
        kept = directory / "outcomes.parquet"
        write_parquet(job.plan, read_outcomes(files.outcomes), kept, job.users)
        files.outcomes.unlink()
        raise ended_early(summary, kept)
    return summary


def is_true(row: dict[str, Any]) -> bool:
    """Tell whether a run reproduced everything: no divergence, nothing left out."""
    missing = to_make(row["certificate"]["calls"]) - row["executed"]
    return int(row["divergent"] + missing + row["final_state"]["mismatched"]) == 0
