"""Replay a trace on candidates, in rounds of random order, each on a fresh filesystem."""

import json
import shutil
import time
from collections.abc import Callable
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
from spoolscope.replay.candidates import (
    Target,
    check,
    check_space,
    filesystem_type,
    grows_to,
    image_bytes,
    parse,
    prepared,
)
from spoolscope.replay.differences import Types
from spoolscope.replay.divergences import causes, judge, shown
from spoolscope.replay.engine import ORDERS, Engine, ended_early, to_its_end
from spoolscope.replay.fidelity import Conditions, fidelity, to_make
from spoolscope.replay.interrupts import ending_on_signals
from spoolscope.replay.job import WARM, Begin, Job, Recorder, Slot, slots
from spoolscope.replay.outcomes import read_outcomes, read_plan, write_parquet
from spoolscope.replay.pace import Pace, parse_pace
from spoolscope.replay.places import check_places, results, scratch
from spoolscope.replay.planned import plan
from spoolscope.replay.whatif import WHOLE, WhatIf
from spoolscope.traces.errors import USAGE, SpoolscopeError
from spoolscope.traces.trace import Trace

Progress = Callable[[str, float | None], None]
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
    progress: Progress | None = None,
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
        report = progress or (lambda _what, _fraction: None)
        report("building the plan", 0.0)
        job = _job(opened, place, out, kept, recorder, begin, rounds, what_if, order)
        order_of_runs = slots(chosen, rounds, seed)
        rows = finished_rows(job, order_of_runs, seed) if resume else []
        # Already now: what an interrupted replay leaves can be told from a stranger's directory.
        write_header(job, order_of_runs, rows, seed)
        for number, slot in enumerate(order_of_runs[len(rows) :], len(rows)):
            share = _Share(report, slot.name, number, len(order_of_runs), job)
            rows.append(run_once(job, slot, share))
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
) -> Job:
    plan_file = scratch / "replay.plan"
    summary, told = plan(trace, plan_file, what_if)
    if not summary.syscalls:
        raise SpoolscopeError(
            "no recorded call is in the part that is asked for",
            remedy="give another part: a recording begins when its snapshot was taken",
            exit_code=USAGE,
        )
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
    write_plan(job, checked)
    return job


class _Share:
    """Progress of one run as a part of all runs."""

    def __init__(self, report: Progress, name: str, number: int, of: int, job: Job) -> None:
        self._report, self._name, self._number, self._of = report, name, number, of
        run_s = job.pace.estimate_s(job.summary.duration_ns) or 1.0
        self._before = OVERHEAD_S / 2 / (run_s + OVERHEAD_S)
        self._run = run_s / (run_s + OVERHEAD_S)

    def __call__(self, what: str, fraction: float | None) -> None:
        """Report a step; a fraction is that of the replay itself, None comes before it."""
        within = 0.0 if fraction is None else self._before + self._run * fraction
        self._report(f"{self._name}: {what}", (self._number + within) / self._of)


def run_once(job: Job, slot: Slot, progress: Progress) -> dict[str, Any]:
    """Make, fill, replay, verify and remove one candidate; return the row of the run."""
    directory = job.out / slot.name
    directory.mkdir(parents=True)
    engine = Engine(job.plan_file, job.begin.content)
    told, age = job.summary, job.begin.age
    content = max(told.tree_bytes, job.fixture_bytes) + told.written_bytes
    content = max(content, job.peak_bytes)  # also what is allocated, or written through mappings
    size = image_bytes(content, job.names, age)
    if slot.candidate.directory is None:
        check_space(job.work.parent, grows_to(slot.candidate, size, age))
    began = time.monotonic()
    progress("making the filesystem", None)
    roomy = shutil.disk_usage(job.work).free > size
    keep = job.work / f"{slot.candidate.name}.fixture" if job.rounds > 1 and roomy else None
    with prepared(slot.candidate, job.work, size, keep) as target:
        built = _fill(job, slot, engine, target, keep, progress)
        summary = _execute(job, engine, target, directory, progress)
        progress("verifying", 1.0)
        state = engine.verify(target.mount)
        options = target.options
        types = Types(_recorded_types(job.trace), filesystem_type(target.mount))
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
    job: Job, slot: Slot, engine: Engine, target: Target, keep: Path | None, progress: Progress
) -> dict[str, Any]:
    """Build the fixture, or know what a copied one holds; make caches cold or warm."""
    note = keep.with_suffix(".json") if keep else None
    if note is not None and target.copied:
        built: dict[str, Any] = json.loads(note.read_text())
    else:
        progress("ageing, building" if job.begin.age else "building the fixture", None)
        built = engine.fixture(target.mount, job.begin.age)
        if note is not None and target.image is not None:
            write_json(note, built)
    progress("making caches " + job.begin.cache, None)
    target.cool(slot.candidate, keep)
    if job.begin.cache == WARM:
        images.read_all(target.mount)
    return built


def _recorded_types(trace: Trace) -> frozenset[str]:
    return frozenset(str(spool.get("fstype")) for spool in trace.meta.get("spools", []))


def _execute(
    job: Job, engine: Engine, target: Target, directory: Path, progress: Progress
) -> dict[str, Any]:
    files = engine.files(directory, job.work)
    command = engine.command(target.mount, job.pace, job.order, files)
    with engine.watching(files, lambda done: progress("replaying", done)):
        if job.recorder is not None:
            status = job.recorder(target.mount, command, directory / "trace")
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
