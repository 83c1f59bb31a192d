"""Where to look further: the day and the cause of a host that differs, and its frozen traces."""

import json
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa

from spoolscope.analysis.fleet import expressions
from spoolscope.analysis.fleet.engines import Engine
from spoolscope.analysis.fleet.measures import MEASURES, Fleet
from spoolscope.analysis.fleet.outliers import TREND, TRENDED, Test
from spoolscope.analysis.fleet.sources import Source, names_in
from spoolscope.traces import recording
from spoolscope.traces.errors import USAGE, SpoolscopeError
from spoolscope.traces.rollups.names import HOST_NOTE, WINDOWS
from spoolscope.traces.rollups.places import Place
from spoolscope.traces.rollups.schema import CALL

FROZEN = "frozen"
SHOWN_CALLS = 15


@dataclass(frozen=True)
class Suspect:
    """A named spool, and what its difference is made of.

    Attributes:
        test: The test that named it.
        day: The day on which it was furthest from its peers.
        cause: The cause of which its calls have most more than those of its peers.
        cause_ns: That time, per call; peers_ns is the median of the peers.
        traces: Frozen traces of its host, if the directory has them.
    """

    test: Test
    day: str
    cause: str
    cause_ns: float
    peers_ns: float
    traces: Sequence[str]


def suspects(at: Place, fleet: Fleet, tests: Sequence[Test], causes: pa.Table) -> list[Suspect]:
    """Return where to look for each named spool; ``causes`` are those by day."""
    per_call = _per_call(fleet, causes)
    return [_suspect(at, fleet, test, per_call) for test in tests]


def _suspect(at: Place, fleet: Fleet, test: Test, per_call: Mapping[str, np.ndarray]) -> Suspect:
    spool = fleet.spools[test.row]
    kin = [row for row, one in enumerate(fleet.spools) if one.fs == spool.fs and row != test.row]
    measure = TRENDED if test.measure == TREND else test.measure
    logs = np.log(fleet.values[measure])
    away = logs[test.row] - _middle_of_days(logs[kin])
    sign = 1 if test.slower else -1
    day = fleet.dates[int(np.nanargmax(sign * away))] if np.isfinite(away).any() else ""
    excess = {
        cause: sign * (values[test.row] - float(np.median(values[kin])))
        for cause, values in per_call.items()
        if cause in MEASURES[measure].causes
    }
    cause = max(excess, key=lambda name: excess[name], default="")
    own = per_call.get(cause, np.zeros(len(fleet.spools)))
    traces = frozen_traces(at, spool.host)
    return Suspect(test, day, cause, float(own[test.row]), float(np.median(own[kin])), traces)


def _middle_of_days(logs: np.ndarray) -> np.ndarray:
    known = np.isfinite(logs).any(axis=0)
    middles = np.full(logs.shape[1], np.nan)
    middles[known] = np.nanmedian(logs[:, known], axis=0)
    return middles


def _per_call(fleet: Fleet, causes: pa.Table) -> dict[str, np.ndarray]:
    """Return for each cause the time of a call in it, ns, by spool."""
    rows = {(spool.host, spool.dev): row for row, spool in enumerate(fleet.spools)}
    totals: dict[str, np.ndarray] = {}
    calls = np.zeros(len(fleet.spools))
    table = causes.group_by(["host", "dev", "cause"]).aggregate([("sum_ns", "sum"), ("n", "sum")])
    for one in table.to_pylist():
        row = rows.get((one["host"], one["dev"]))
        if row is None:  # its days are astray
            continue
        if one["cause"] == CALL:
            calls[row] += one["n_sum"]
        else:
            own = totals.setdefault(one["cause"], np.zeros(len(fleet.spools)))
            own[row] += one["sum_ns_sum"]
    return {cause: values / np.maximum(calls, 1) for cause, values in sorted(totals.items())}


def frozen_traces(at: Place, host: str) -> list[str]:
    """Return the paths of a host's frozen traces.

    These are below ``frozen/host=HOST``, and where its flight recorder writes them itself.
    """
    below = f"{FROZEN}/host={host}"
    found = []
    for name in names_in(at, below):
        if name.startswith("date="):
            found += [f"{below}/{name}/{trace}" for trace in names_in(at, f"{below}/{name}")]
        else:
            found.append(f"{below}/{name}")
    for name in names_in(at):
        if name.startswith(WINDOWS) and _host_of(at, name) == host:
            traces = [
                trace for trace in names_in(at, name) if trace.startswith(f"{recording.FROZEN}-")
            ]
            found += [f"{name}/{trace}" for trace in traces]
    return [at.url(path) for path in found]


def _host_of(at: Place, windows: str) -> str | None:
    """Return the host of a flight recorder; None if it has noted none that can be read."""
    path = at.full(f"{windows}/{HOST_NOTE}")
    with suppress(OSError, ValueError), at.files.open_input_stream(path) as note:
        return str(json.loads(note.read()))
    return None


@dataclass(frozen=True)
class Drilled:
    """One host, on one day or all.

    Attributes:
        host: Its name.
        date: The day, None for all.
        dates: Its days.
        by_day: Time of each cause on each day, ns: {date: {cause: ns}}.
        calls: The costliest calls of programs: comm, syscall, n, sum_ns and causes.
        traces: Its frozen traces.
    """

    host: str
    date: str | None
    dates: Sequence[str]
    by_day: Mapping[str, Mapping[str, int]]
    calls: Sequence[Mapping[str, Any]]
    traces: Sequence[str]


def drilled(source: Source, engine: Engine, host: str, date: str | None) -> Drilled:
    """Ask for one host.

    Raises:
        SpoolscopeError: there is no such host, or it has nothing of that day.
    """
    sums = source.tables["sums"]
    days = engine.rows(expressions.causes_by_day(sums.filter(sums.host == host))).to_pylist()
    by_day: dict[str, dict[str, int]] = {}
    for row in days:
        if row["cause"] != CALL:
            own = by_day.setdefault(row["date"], {})
            own[row["cause"]] = own.get(row["cause"], 0) + row["sum_ns"]
    if not by_day or (date is not None and date not in by_day):
        raise SpoolscopeError(
            f"{source.place.shown} has no calls of {host}{f' on {date}' if date else ''}",
            remedy="see the hosts and days in 'spoolscope fleet report'",
            exit_code=USAGE,
        )
    parts: dict[tuple[str, str], dict[str, int]] = {}
    whole: dict[tuple[str, str], tuple[int, int]] = {}
    for row in engine.rows(expressions.programs_of(sums, host, date)).to_pylist():
        key = row["comm"], row["syscall"]
        if row["cause"] == CALL:
            whole[key] = row["n"], row["sum_ns"]
        else:
            parts.setdefault(key, {})[row["cause"]] = row["sum_ns"]
    calls = [
        {"comm": key[0], "syscall": key[1], "n": n, "sum_ns": ns, "causes": parts.get(key, {})}
        for key, (n, ns) in sorted(whole.items(), key=lambda one: (-one[1][1], one[0]))
    ]
    traces = frozen_traces(source.place, host)
    return Drilled(host, date, sorted(by_day), by_day, calls[:SHOWN_CALLS], traces)
