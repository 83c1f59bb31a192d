"""The section with all conditions needed for a repetition."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from spoolscope.analysis.beyond import beyond_calls, unjudged_calls
from spoolscope.analysis.compare import Comparison
from spoolscope.analysis.conditions import Conditions
from spoolscope.analysis.study import Study
from spoolscope.analysis.wording import count, once
from spoolscope.report.inputs import Inputs
from spoolscope.report.page import Section, TableBlock
from spoolscope.traces.results import Age, Disk, RunResult
from spoolscope.traces.trace import Trace

anchor = "environment"


def applies(page: Inputs) -> bool:  # noqa: ARG001
    """Return True: every page has this section."""
    return True


def make(page: Inputs) -> Section:
    """Lay out the conditions of the replay, and of each recording."""
    if page.found is None:
        rows = [["trace", str(study.explanation.trace)] for study in page.studies.values()]
    else:
        rows = environment_rows(page.found)
    for name, study in page.studies.items():
        rows += _recording_rows(name, study, mounts=page.found is None)
    table = TableBlock("Environment", ["what", "~value"], rows, "As recorded by the tools.")
    intro = "What is needed to do it again."
    return Section(anchor, "Environment", "Environment", intro, [table])


def _recording_rows(name: str, study: Study, *, mounts: bool) -> list[list[str]]:
    """Return the rows of a trace; without mount points for a replay, whose mounts are temporary."""
    meta = study.explanation.meta
    cpus = meta.get("cpus") or "?"
    rows = [
        [f"{name}: kernel", f"{meta.get('kernel', '?')} {meta.get('arch', '')}, {cpus} CPUs"],
        *([f"{name}: spool", _spool(spool, mounts=mounts)] for spool in meta.get("spools", [])),
    ]
    if missing := meta.get("programs", {}).get("missing"):
        said = "; ".join(f"{program}: {reason}" for program, reason in missing.items())
        rows.append([f"{name}: not traced", said])
    beside = [*beyond_calls(Trace.open(study.explanation.trace)), *unjudged_calls(meta)]
    rows += [[f"{name}: beside calls", sentence] for sentence in beside]
    pseudonyms = "yes" if meta.get("pseudonymised") else "no"
    rows.append([f"{name}: names pseudonymised", pseudonyms])
    return rows


def _spool(spool: Mapping[str, Any], *, mounts: bool) -> str:
    at = f"{spool.get('mount')} " if mounts else ""
    return f"{at}{spool.get('fstype')} ({once(str(spool.get('options')))})"


def environment_rows(found: Comparison) -> list[list[str]]:
    """Return rows of the conditions for repeating the replay."""
    header = found.replay.header
    rows = [["replayed trace", Path(header.trace).name],
            ["pace", header.pace],
            ["order", Conditions.of(header).order],
            ["options", " ".join(Conditions.of(header).options()) or "none"],
            ["rounds", _known(header.rounds)],
            ["seed", _known(header.seed)]]  # fmt: skip
    for name, candidate in found.candidates.items():
        rows.append([f"{name}: made by", candidate.mkfs or "-"])
        rows.append([f"{name}: mounted with", candidate.mount_options or "-"])
        first = next(run.result for run in found.replay.runs if run.candidate == name)
        rows.append([f"{name}: made on", _made_on(first)])
        order = ", ".join(
            _known(run.result.position) for run in found.replay.runs if run.candidate == name
        )
        rows.append([f"{name}: place in its round", order])
        rows.append([f"{name}: caches at start", first.cache])
        rows.append([f"{name}: age at start", _aged(first.age)])
        data = ", ".join(
            f"{getattr(first, key)} % {key}"
            for key in ("compressible", "duplicate")
            if getattr(first, key)
        )
        rows.append([f"{name}: data", data or "neither compressible nor duplicate"])
    return rows


def _known(value: int | None) -> str:
    return "?" if value is None else str(value)


def _made_on(run: RunResult) -> str:
    """Return the kind of disk of a filesystem, and of its journal if that is separate."""
    journal = f"{run.journal_bytes / 2**20:,.0f} MiB" if run.journal_bytes else ""
    devices = [_disk(device) for device in run.devices]
    if not devices:
        made = "a directory" if run.fstype == "dir" else "an image"
        return f"{made}; its journal of {journal} on another" if journal else made
    return f"; its journal of {journal} on ".join(devices)


def _disk(device: Disk) -> str:
    words = [
        device.model or "no model",
        f"{device.size_bytes / 2**30:,.1f} GiB",
        "rotates" if device.rotational else "does not rotate",
        f"scheduler {device.scheduler or 'unknown'}",
        f"cache {device.write_cache or 'unknown'}",
        "trimmed before each run" if device.trimmed else "not trimmed",
    ]
    return f"{device.name} ({', '.join(words)})"


def _aged(age: Age | None) -> str:
    """Return the ageing of a filesystem, and its fragmentation by FIEMAP."""
    if not age:
        return "not aged"
    made, free, kept, probe = (
        f"{size / 2**20:,.0f} MiB"
        for size in (age.bytes_made, age.free_bytes_before, age.bytes_kept, age.probe_bytes)
    )
    before, after, fixture = age.probe_before, age.probe_after, age.fixture
    if before is None or after is None or fixture is None:
        return f"seed {age.seed}: {made} of files made"
    return (
        f"seed {age.seed}: {made} of files made in {free} of room, {kept} kept;"
        f" a new file of {probe} had {count(before.extents)} extents before and"
        f" {count(after.extents)} after; of {count(fixture.files)} files of the fixture"
        f" {count(fixture.files_split)} have more than one extent,"
        f" at most {count(fixture.most)}"
    )
