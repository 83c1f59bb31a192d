"""Files that a replay leaves about its runs; none holds a path of this machine."""

import json
import os
import platform
import shutil
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

from spoolscope.replay import on_disk
from spoolscope.replay.job import WARM, Job, Slot
from spoolscope.replay.machine import guest_facts
from spoolscope.replay.ops import FAULT
from spoolscope.replay.outcomes import SAME
from spoolscope.traces.digests import OWN_KEY, check_sealed, digest_of, sealed
from spoolscope.traces.errors import SpoolscopeError, usage_error
from spoolscope.traces.files import regular, write_file
from spoolscope.traces.results import (
    DIVERGENCES_FILE,
    OUTCOMES_FILE,
    PLAN_FILE,
    REPLAY_FILE,
    RUN_FILE,
    VERSION,
    Asked,
    FinalState,
    Listings,
    Machine,
    ReplayResult,
    RunResult,
    WhatIf,
)
from spoolscope.traces.typed_json import decode, decoded, encode

READ_LATER = OUTCOMES_FILE, DIVERGENCES_FILE
ABOUT = PLAN_FILE, REPLAY_FILE
"""Files about the whole replay, not about one run."""

# Facts of replay.json that change while runs are added, or when the replay goes on.
_MOVING = ("trace", "rounds", "reference", "order", "finished", "runs")


def result_of(
    job: Job,
    slot: Slot,
    summary: dict[str, Any],
    state: dict[str, Any],
    options: str,
) -> RunResult:
    """Return what is known of an ended run without a look at its calls."""
    candidate = slot.candidate
    return RunResult(
        version=VERSION,
        candidate=candidate.name,
        round=slot.round,
        position=slot.position,
        fstype=candidate.fstype,
        device_model=candidate.model,
        mkfs=" ".join(candidate.mkfs),
        journal_bytes=candidate.journal,
        mount_options=options or candidate.mount_options,
        durability=candidate.durability,
        on=list(candidate.layers),
        source=candidate.source,
        instead=candidate.instead,
        pace=job.pace.text,
        loop=job.pace.loop,
        realtime=job.pace.realtime,
        order=job.order,
        start_epoch_ns=summary["start_epoch_ns"],
        makespan_ns=summary["makespan_ns"],
        final_state=decode(FinalState, state),
        orders_given_up=summary["orders_given_up"],
        locks_given_back=summary["locks_given_back"],
        tasks_crashed=summary["tasks_crashed"],
        descriptors_passed=summary["descriptors_passed"],
        owners=summary["owners"],
        listings=decode(Listings, summary["listings"]),
        cache=_cache(job, slot),
        workers=job.workers,
        compressible=job.begin.content.compressible,
        duplicate=job.begin.content.duplicate,
        recorded=job.recorder is not None,
        what_if=decoded(WhatIf, job.what_if),
        kernel=platform.release(),
        machine=decoded(Machine, guest_facts()),
    )


def faults_of(job: Job, outcomes: Any) -> dict[str, int]:
    """Count the page faults that were recorded, and those that happened again."""
    touched = 0
    for part in on_disk.parts(len(outcomes)):
        is_fault = job.plan.ops["op"][part] == FAULT
        touched += int((is_fault & (outcomes["verdict"][part] == SAME)).sum())
    return {"recorded": job.summary.faults, "touched": touched}


def _cache(job: Job, slot: Slot) -> str:
    known = job.begin.cache == WARM or slot.candidate.directory is None
    return job.begin.cache if known else "as it was"


def write_plan(job: Job, checked: dict[str, Any]) -> None:
    """Write what is known of the plan; the plan file itself is removed."""
    write_json(job.out / PLAN_FILE, _summary(job) | checked)


def write_header(job: Job, slots: Sequence[Slot], rows: list[dict[str, Any]], seed: int) -> None:
    """Write replay.json, again after every run: an interrupted replay keeps what it has."""
    write_json(job.out / REPLAY_FILE, sealed(_header(job, slots, rows, seed)))


def _header(
    job: Job, slots: Sequence[Slot], rows: list[dict[str, Any]], seed: int
) -> dict[str, Any]:
    begin = job.begin
    kernel, machine = _where(slots)
    header = ReplayResult(
        version=VERSION,
        trace=os.path.relpath(job.trace.path.resolve(), job.out.resolve()),
        trace_identity=job.trace.identity,
        pace=job.pace.text,
        rounds=job.rounds,
        seed=seed,
        reference=job.reference,
        candidates=_described(slots),
        order=[slot.name for slot in slots],
        finished=len(rows) == len(slots),
        what_if=decoded(WhatIf, job.what_if),
        complete=bool(job.trace.meta.get("complete")),
        kernel=kernel,
        machine=machine,
        plan=_summary(job),
        asked=Asked(
            order=job.order,
            realtime=job.pace.realtime,
            workers=job.workers,
            cache=begin.cache,
            compressible=begin.content.compressible,
            duplicate=begin.content.duplicate,
            age=None if begin.age is None else asdict(begin.age),
            recorded=job.recorder is not None,
            whole_life=job.whole_life,
            devices=[] if job.devices is None else list(job.devices.identity()),
        ),
        runs=[],
    )
    whole: dict[str, Any] = encode(header)
    del whole[OWN_KEY]  # sealed() adds it
    return whole | {"runs": [_carried(row) for row in rows]}


def _described(slots: Sequence[Slot]) -> dict[str, Any]:
    """Return the fields of each candidate; only its name holds the path of a directory."""
    chosen = {slot.candidate.name: slot.candidate for slot in slots}
    return {
        name: {key: value for key, value in asdict(chosen[name]).items() if key != "directory"}
        for name in sorted(chosen)
    }


def _where(slots: Sequence[Slot]) -> tuple[str, Machine | None]:
    """Return the kernel and machine of all runs; all kernels if these are compared."""
    machine = guest_facts()
    compared = sorted({slot.candidate.kernel for slot in slots})
    if machine is not None and any(compared):
        machine = {key: fact for key, fact in machine.items() if key not in ("series", "kernel")}
        return ", ".join(compared), decoded(Machine, machine)
    return platform.release(), decoded(Machine, machine)


def _summary(job: Job) -> dict[str, Any]:
    """Return the summary of the plan without its path: the file is removed after the replay."""
    return {key: value for key, value in job.summary.as_dict().items() if key != "path"}


def write_row(directory: Path, row: dict[str, Any]) -> None:
    """Write run.json."""
    write_json(directory / RUN_FILE, _carried(row))


def digests_of(directory: Path) -> dict[str, str]:
    """Return the digests of those files of a run that are read later."""
    return {name: digest_of(directory / name) for name in READ_LATER}


def _carried(row: dict[str, Any]) -> dict[str, Any]:
    """Return a row with a relative path, as in files: a replay may be copied elsewhere."""
    return row | {"run": Path(row["run"]).name}


def write_json(path: Path, value: Any) -> None:
    """Write a JSON file, which appears only when it is complete."""
    write_file(path, json.dumps(value, indent=1) + "\n")


def finished_runs(out: Path) -> tuple[int, int] | None:
    """Return how many runs are finished, and how many are wanted; None if none or all are."""
    try:
        header = json.loads(regular(out / REPLAY_FILE).read_text())
        done, wanted = len(header["runs"]), len(header["order"])
    except (OSError, ValueError, KeyError, TypeError):
        return None
    return (done, wanted) if 0 < done < wanted else None


def finished_rows(job: Job, slots: Sequence[Slot], seed: int) -> list[dict[str, Any]]:
    """Return the rows of an interrupted replay, and remove what its last run had begun.

    Raises:
        SpoolscopeError: it was begun with other options or on another kernel, or is damaged.
    """
    try:
        before = json.loads(regular(job.out / REPLAY_FILE).read_text())
        check_sealed(before)
        rows = [dict(row, run=str(job.out / row["run"])) for row in before["runs"]]
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise SpoolscopeError(
            f"{job.out / REPLAY_FILE} is damaged: {error}",
            remedy="give another -o, without --resume",
        ) from error
    # In the form of a file, where tuples are lists.
    now = json.loads(json.dumps(_header(job, slots, [], seed)))
    # Headers of earlier versions lack some keys.
    shared = [key for key in now if key not in _MOVING and key in before]
    differing = [key for key in shared if now[key] != before[key]]
    if len(rows) > len(slots):
        differing.append("rounds")
    elif [Path(row["run"]).name for row in rows] != [slot.name for slot in slots[: len(rows)]]:
        differing.append("candidates")
    if differing:
        raise usage_error(
            f"the replay in {job.out} was made otherwise: {', '.join(differing)}",
            remedy="give --resume with the options it was begun with, or another -o",
        )
    for slot in slots[len(rows) :]:
        shutil.rmtree(job.out / slot.name, ignore_errors=True)
    return rows
