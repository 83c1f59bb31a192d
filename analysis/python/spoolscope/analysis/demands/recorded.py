"""Reasons why a trace cannot hold a metric: none of what was not recorded is no zero."""

from collections.abc import Mapping
from typing import Any

from spoolscope.analysis.demands.language import CAUSE, COUNT, Metric
from spoolscope.traces.trace import Trace

_OF_CALLS = ("calls", "syncs", "deliveries")
_OF_COMMITS = {
    "ext": "on_jbd2_start",
    "xfs": "on_xfs_iclog_done",
    "btrfs": "on_btrfs_sync_file",
}
"""The beginning of a filesystem's type, and the program that records its commits."""
_OF_REQUESTS = ("on_io_start", "on_rq_issue", "on_rq_complete")


def lack(trace: Trace, metric: Metric) -> str:
    """Return why a trace cannot hold what a metric measures, "" if it can."""
    meta = trace.meta
    if metric.kind != CAUSE and (metric.kind != COUNT or metric.name in _OF_CALLS):
        return ""
    if meta.get("imported"):
        return f"{trace.path.name} was imported, without it"
    tier = meta.get("tier", "T2")
    if tier == "T0" or (tier == "T1" and metric.kind == COUNT):
        return f"{trace.path.name} was recorded with tier {tier}, without it"
    if metric.kind == COUNT and (program := _missing(meta, metric.name)):
        return f"{trace.path.name} was recorded without it: {program} could not be attached"
    return ""


def _missing(meta: Mapping[str, Any], name: str) -> str:
    """Return the first program that is missing for a counted thing, "" if none is."""
    programs = meta.get("programs") or {}
    absent = set(programs.get("missing") or ()) - set(programs.get("unloaded") or ())
    absent -= set(programs.get("instead") or ())
    needed: tuple[str, ...] = _OF_REQUESTS
    if name == "commits":
        types = [str(spool.get("fstype")) for spool in meta.get("spools", [])]
        needed = tuple(
            p for kind, p in _OF_COMMITS.items() if any(t.startswith(kind) for t in types)
        )
    return min((program for program in absent if program.startswith(needed)), default="")
