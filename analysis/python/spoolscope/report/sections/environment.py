"""What is needed to do it again."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from spoolscope.analysis.beyond import beyond_calls, unjudged_calls
from spoolscope.analysis.compare import Comparison
from spoolscope.analysis.conditions import Conditions
from spoolscope.analysis.study import Study
from spoolscope.analysis.wording import count
from spoolscope.report.inputs import Inputs
from spoolscope.report.page import Section, TableBlock
from spoolscope.traces.trace import Trace

anchor = "environment"


def applies(page: Inputs) -> bool:  # noqa: ARG001
    """Every page has it."""
    return True


def make(page: Inputs) -> Section:
    """The conditions of the replay, and of each recording."""
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
    """Return the rows of a trace; mount points of a replay existed for its time alone."""
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
    return f"{at}{spool.get('fstype')} ({spool.get('options')})"


def environment_rows(found: Comparison) -> list[list[str]]:
    """Return what is needed to do the replay again."""
    header = found.replay.header
    rows = [["replayed trace", Path(str(header["trace"])).name],
            ["pace", str(header.get("pace", "?"))],
            ["order", Conditions.of(header).order],
            ["options", " ".join(Conditions.of(header).options()) or "none"],
            ["rounds", str(header.get("rounds", "?"))],
            ["seed", str(header.get("seed", "?"))]]  # fmt: skip
    for name, candidate in found.candidates.items():
        rows.append([f"{name}: made by", candidate.mkfs or "-"])
        rows.append([f"{name}: mounted with", candidate.mount_options or "-"])
        first = next(run.row for run in found.replay.runs if run.candidate == name)
        rows.append([f"{name}: made on", _made_on(first)])
        order = ", ".join(
            str(run.row.get("position", "?")) for run in found.replay.runs if run.candidate == name
        )
        rows.append([f"{name}: place in its round", order])
        rows.append([f"{name}: caches at start", str(first.get("cache", "?"))])
        rows.append([f"{name}: age at start", _aged(first.get("age"))])
        data = ", ".join(
            f"{first[key]} % {key}" for key in ("compressible", "duplicate") if first.get(key)
        )
        rows.append([f"{name}: data", data or "neither compressible nor duplicate"])
    return rows


def _made_on(row: Mapping[str, Any]) -> str:
    """Say what kind of disk a filesystem was made on, and its journal if that lies apart."""
    journal = f"{row['journal_bytes'] / 2**20:,.0f} MiB" if row.get("journal_bytes") else ""
    devices = [_disk(device) for device in row.get("devices", [])]
    if not devices:
        made = "a directory" if row.get("fstype") == "dir" else "an image"
        return f"{made}; its journal of {journal} on another" if journal else made
    return f"; its journal of {journal} on ".join(devices)


def _disk(device: Mapping[str, Any]) -> str:
    words = [
        device["model"] or "no model",
        f"{device['size_bytes'] / 2**30:,.1f} GiB",
        "rotates" if device["rotational"] else "does not rotate",
        f"scheduler {device['scheduler'] or 'unknown'}",
        f"cache {device['write_cache'] or 'unknown'}",
        "trimmed before each run" if device["trimmed"] else "not trimmed",
    ]
    return f"{device['name']} ({', '.join(words)})"


def _aged(age: Mapping[str, Any] | None) -> str:
    """Say how old a filesystem was made and how much it is in pieces, as FIEMAP shows it."""
    if not age:
        return "not aged"
    made, free, kept, probe = (
        f"{age[key] / 2**20:,.0f} MiB"
        for key in ("bytes_made", "free_bytes_before", "bytes_kept", "probe_bytes")
    )
    before, after, fixture = age["probe_before"], age["probe_after"], age["fixture"]
    return (
        f"seed {age['seed']}: {made} of files made in {free} of room, {kept} kept;"
        f" a new file of {probe} had {count(before['extents'])} extents before and"
        f" {count(after['extents'])} after; of {count(fixture['files'])} files of the fixture"
        f" {count(fixture['files_split'])} have more than one extent,"
        f" at most {count(fixture['most'])}"
    )
