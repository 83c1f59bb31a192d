"""One run: a candidate made, filled, replayed on, verified, checked, emptied and removed."""

import json
import shutil
import time
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from spoolscope.replay import images
from spoolscope.replay.aftermath import aftermath
from spoolscope.replay.artifacts import digests_of, faults_of, result_of, write_json, write_row
from spoolscope.replay.differences import Types
from spoolscope.replay.disturbance import Watch
from spoolscope.replay.divergences import causes, judge, shown, ties_of
from spoolscope.replay.engine import Engine, ended_early, to_its_end
from spoolscope.replay.fidelity import Conditions, fidelity, to_make
from spoolscope.replay.images import filesystem_type
from spoolscope.replay.job import WARM, Job, Slot
from spoolscope.replay.lifetime import Lifetime
from spoolscope.replay.machine import slowness
from spoolscope.replay.outcomes import Late, read_outcomes, write_parquet, written_bytes
from spoolscope.replay.recorded_cache import remember
from spoolscope.replay.targets import Target, check_space, grows_to, image_bytes, prepared
from spoolscope.traces.phases import Phases
from spoolscope.traces.results import (
    DIVERGENCES_FILE,
    OUTCOMES_FILE,
    Age,
    Disk,
    Disturbance,
    DivergenceCounts,
    Divergences,
    RunResult,
)
from spoolscope.traces.results_certificate import Calls
from spoolscope.traces.results_life import Life
from spoolscope.traces.trace import Trace
from spoolscope.traces.typed_json import decode, decoded, encode

STARTING, REPLAYING = "starting its recorder", "replaying"
MAKING = {"steps": ("mkfs", "mount", "fill"), "device": ("fill",), "capacity": ("after_mkfs",)}
"""Parts of a filesystem's life that a run which begins with a copy has not."""


def running_s(job: Job) -> dict[str, float]:
    """Return about how long the phases of a run take, in seconds."""
    calls, names = job.summary.syscalls, job.names
    recorded = job.recorder is not None
    run_s = job.pace.estimate_s(job.summary.duration_ns)
    slower = slowness()
    phases = {
        "making the filesystem": 0.5,
        "building the fixture": 0.5 + names / 20_000,
        "preparing caches": 1.0 + names / 50_000,
        STARTING: 4.0 if recorded else 0.0,
        REPLAYING: calls / 50_000,
        "converting its recording": 2 + calls / 20_000 if recorded else 0.0,
        "verifying": 0.5 + names / 50_000,
        "checking and emptying it": 1.0 + names / 10_000,
        "judging": 0.1 + calls / 200_000,
    }
    found = {phase: seconds * slower for phase, seconds in phases.items()}
    return found if run_s is None else found | {REPLAYING: max(run_s, found[REPLAYING])}


def image_size(job: Job) -> int:
    """Return the bytes of the images of a replay."""
    content = max(job.summary.tree_bytes, job.fixture_bytes, job.peak_bytes)
    return image_bytes(content, job.names, job.begin.age)


def run_once(
    job: Job, slot: Slot, show: Phases, replaced: Sequence[dict[str, Any]] = ()
) -> dict[str, Any]:
    """Make, fill, replay, verify, check, empty and remove one candidate; return its row.

    ``replaced`` holds the rows of the earlier, disturbed runs that this one replaces.
    """
    directory = job.out / slot.name
    directory.mkdir(parents=True)
    engine = Engine(job.plan_file, job.begin.content)
    age = job.begin.age
    size = image_size(job)
    if slot.candidate.directory is None and job.devices is None:
        check_space(job.work.parent, grows_to(slot.candidate, size, age))
    began = time.monotonic()
    show("making the filesystem")
    roomy = shutil.disk_usage(job.work).free > size
    keep = job.work / f"{slot.candidate.label}.fixture" if job.rounds > 1 and roomy else None
    life = Lifetime()
    with prepared(slot.candidate, job.work, size, keep, life, job.player, job.devices) as target:
        built = _fill(job, engine, target, keep, life, show)
        disks = target.devices()
        life.watch(disks)
        with life.dirty():
            summary, disturbed = _execute(job, engine, target, directory, show)
        life.by_kind(directory / "trace", disks)
        show("verifying")
        state = engine.verify(target.written())
        options = target.options
        types = Types(_recorded_types(job.trace), filesystem_type(target.mount))
        show("checking and emptying it")
        aftermath(target, life, whole=job.whole_life)
    show("judging")
    file = directory / "outcomes.bin"
    outcomes = read_outcomes(file)
    wrong = judge(job.plan, outcomes, types, ties_of(engine, outcomes, file))
    caused = causes(job.plan, outcomes, wrong, types, job.trace)
    given = Conditions(job.pace, summary, int(state["mismatched"]), types.same, job.users)
    late = Late(len(outcomes), job.plan.place) if job.pace.has_schedule else None
    found = fidelity(job.plan, outcomes, job.summary, given, late)
    life.facts["mail_bytes"] = {
        "fill": built["bytes"],
        "replay": written_bytes(job.plan, outcomes),
    }
    write_parquet(job.plan, outcomes, directory / OUTCOMES_FILE, job.users, late)
    file.unlink()
    write_json(directory / DIVERGENCES_FILE, encode(decode(Divergences, caused)))
    row: dict[str, Any] = encode(
        replace(
            _begun(result_of(job, slot, summary, state, options), built, target),
            **vars(found),
            wall_ns=int((time.monotonic() - began) * 1e9),
            run=str(directory),
            faults=faults_of(job, outcomes),
            divergences=decode(DivergenceCounts, shown(caused)),
            disturbance=decode(Disturbance, disturbed),
            repeated=[decode(Disturbance, one["disturbance"]) for one in replaced],
            life=decode(Life, with_making(life.as_dict(), [one["life"] for one in replaced])),
            digests=digests_of(directory),
        )
    )
    write_row(directory, row)
    return row


def _fill(
    job: Job,
    engine: Engine,
    target: Target,
    keep: Path | None,
    life: Lifetime,
    show: Phases,
) -> dict[str, Any]:
    """Build the fixture, or read what a copied one holds; then set the caches as asked for."""
    note = keep.with_suffix(".json") if keep else None
    if note is not None and target.copied:
        built: dict[str, Any] = json.loads(note.read_text())
    else:
        show("building the fixture")
        life.capacity("after_mkfs", target.mount)
        life.watch(target.devices())
        with life.step("fill"):
            built = engine.fixture(target.filled_at, job.begin.age)
            images.run("sync", "-f", target.filled_at)
        if note is not None and target.storage is not None:
            write_json(note, built)
    show("preparing caches")
    target.cool(keep, life)
    if job.begin.cache == WARM:
        images.read_all(target.mount)
    built["cached"] = remember(job.memory, target.mount) if job.memory else None
    return built


def _begun(result: RunResult, built: dict[str, Any], target: Target) -> RunResult:
    """Return a result with the state in which the replay began."""
    return replace(
        result,
        fixture="copied" if target.copied else "built",
        age=decoded(Age, built.get("age")),
        cached=built["cached"],
        xattrs={"set": built["xattrs"], "skipped": built["xattrs_skipped"]},
        stand_ins=built["stand_ins"],
        devices=[decode(Disk, disk) for disk in target.storage.devices] if target.storage else [],
    )


def with_making(life: dict[str, Any], replaced: Sequence[dict[str, Any]]) -> dict[str, Any]:
    """Return a life with the making of its filesystem, which may be a copy of one that was made.

    Args:
        life: Result of ``Lifetime.as_dict``.
        replaced: Lives of the runs that were replaced; the first one may have made it.
    """
    found = dict(life)
    for earlier in replaced:
        for part, names in MAKING.items():
            known = earlier.get(part) or {}
            made = {name: known[name] for name in names if name in known}
            found[part] = made | (found.get(part) or {})
    return found


def _recorded_types(trace: Trace) -> frozenset[str]:
    return frozenset(str(spool.get("fstype")) for spool in trace.meta.get("spools", []))


def _execute(
    job: Job, engine: Engine, target: Target, directory: Path, show: Phases
) -> tuple[dict[str, Any], dict[str, Any]]:
    """Replay, recorded or not; return the engine's summary, and the disturbance meanwhile."""
    files = engine.files(directory, job.work)
    command = engine.command(target.mount, job.pace, job.order, files)

    def recording(_what: str, converted: float | None) -> None:
        if converted is not None:
            watch.end()
            show("converting its recording", converted)

    show(REPLAYING if job.recorder is None else STARTING)
    watch = Watch()
    with engine.watching(files, lambda done: show(REPLAYING, done)):
        if job.recorder is not None:
            status = job.recorder(target.mount, command, directory / "trace", recording)
        else:
            status = to_its_end(command)
    disturbed = watch.end()
    summary = engine.summary(files, status)
    if summary["failed"] or summary["interrupted"]:
        kept = directory / OUTCOMES_FILE
        write_parquet(job.plan, read_outcomes(files.outcomes), kept, job.users)
        files.outcomes.unlink()
        raise ended_early(summary, kept)
    return summary, disturbed


def is_true(row: dict[str, Any]) -> bool:
    """Return whether a run reproduced everything: no divergence, nothing left out."""
    missing = to_make(decode(Calls, row["certificate"]["calls"])) - row["executed"]
    return int(row["divergent"] + missing + row["final_state"]["mismatched"]) == 0
