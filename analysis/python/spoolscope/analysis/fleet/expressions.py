"""Every question to a fleet's sums, as an Ibis expression: the same for each engine.

Only operations that DuckDB and Spark compute alike to the last digit are used: sums, counts,
extremes and windows over integers. Rows come in a fixed order. Quantiles are the bucket in which
they lie; its two ends are their error bound.
"""

from collections.abc import Iterable
from typing import Any

import ibis

from spoolscope.analysis.causes import BETWEEN_PROGRAMS
from spoolscope.analysis.latency import SYSCALL_CLASSES
from spoolscope.traces.rollups.minutes import MINUTE_NS
from spoolscope.traces.rollups.schema import CALL

Expression = Any
"""An Ibis table expression."""

SYNCS = SYSCALL_CLASSES["sync"]
STEP_NS = 1_000_000_000
"""Least change of a wall clock that counts as a step."""
SHOWN_DIRECTORIES = 20
UNKNOWN = 0
"""Device of calls whose spool is not known: they are in sums of hosts, but are no spool."""

_DAY = ("host", "date", "dev")


def _sums(table: Expression, by: Iterable[str], **more: Expression) -> Expression:
    """Sum up calls and time by some columns, in the order of these."""
    names = list(by)
    added = {"n": table.n.sum().cast("int64"), "sum_ns": table.sum_ns.sum().cast("int64")}
    return table.group_by(names).agg(**added, **more).order_by(names)


# From roll-ups to the tables of day sums.


def sums(calls: Expression) -> Expression:
    """Return calls of a day by program, call and cause."""
    return _sums(calls, (*_DAY, "comm", "syscall", "cause"))


def spread(calls: Expression) -> Expression:
    """Return whole calls of a day by their duration."""
    by = [*_DAY, "syscall", "bucket"]
    whole = calls.filter(calls.cause == CALL)
    return whole.group_by(by).agg(n=whole.n.sum().cast("int64")).order_by(by)


def journal(commits: Expression) -> Expression:
    """Return the commits of a day by program."""
    return _sums(commits, (*_DAY, "comm"), max_ns=commits.max_ns.max())


def places(directories: Expression) -> Expression:
    """Return the costliest directories of a day."""
    summed = _sums(directories, (*_DAY, "directory"))
    window = ibis.window(
        group_by=list(_DAY), order_by=[summed.sum_ns.desc(), summed.directory.asc()]
    )
    ranked = summed.mutate(place=ibis.row_number().over(window))
    top = ranked.filter(ranked.place < SHOWN_DIRECTORIES).drop("place")
    return top.order_by([*_DAY, "directory"])


def runs(minutes: Expression) -> Expression:
    """Return a row for each day of each run of a recorder."""
    by = ["host", "date", "recorder_id"]
    step = (minutes.clock_step_ns.abs() > STEP_NS).ifelse(1, 0)
    # Each spool has a row of what the recorder saw in a minute.
    once = minutes.group_by([*by, "seq", "minute_s"]).agg(
        own_ns=minutes.covered_ns.max(), step=step.max().cast("int64")
    )
    # Two recorders at once cover no more than the minute.
    upto = ibis.cumulative_window(
        group_by=["host", "date", "minute_s"], order_by=["recorder_id", "seq"]
    )
    sums_ns = once.own_ns.sum().over(upto).cast("int64")
    once = once.mutate(room_ns=MINUTE_NS - (sums_ns - once.own_ns))
    once = once.mutate(covered_ns=_filling(once.room_ns, once.own_ns))
    found = once.group_by(by).agg(
        first_seq=once.seq.min(),
        last_seq=once.seq.max(),
        minutes=once.count(),
        covered_ns=once.covered_ns.sum().cast("int64"),
        steps=once.step.sum().cast("int64"),
    )
    return found.order_by(by)


def _filling(room_ns: Expression, own_ns: Expression) -> Expression:
    """Return the part of a recorder's time for which a minute has room; all for the first one."""
    left_ns = (room_ns < 0).ifelse(0, room_ns)
    fits = (room_ns == MINUTE_NS) | (own_ns <= left_ns)
    return fits.ifelse(own_ns, left_ns).cast("int64")


def days(minutes: Expression) -> Expression:
    """Return a row for each day of each spool: coverage, losses and conditions."""
    # A recorder numbers its minutes for all spools together; not every spool has a row in each.
    runs = minutes.group_by(["host", "date", "recorder_id"]).agg(
        missing=minutes.seq.max() - minutes.seq.min() + 1 - minutes.seq.nunique()
    )
    holes = runs.group_by(["host", "date"]).agg(holes=runs.missing.sum().cast("int64"))
    own = minutes.group_by([*_DAY, "recorder_id"]).agg(more=minutes.count() - minutes.seq.nunique())
    twice = own.group_by(list(_DAY)).agg(twice=own.more.sum().cast("int64"))
    last = {
        name: minutes[name].argmax(minutes.minute_s)
        for name in ("fs", "options", "device", "kernel", "tool")
    }
    step = (minutes.clock_step_ns.abs() > STEP_NS).ifelse(1, 0)
    facts = minutes.group_by(list(_DAY)).agg(
        minutes=minutes.count(),
        covered_ns=minutes.covered_ns.sum().cast("int64"),
        steps=step.sum().cast("int64"),
        calls=minutes.calls.sum().cast("int64"),
        lost=minutes.lost.sum().cast("int64"),
        recorder_ns=minutes.recorder_ns.sum().cast("int64"),
        cpus=minutes.cpus.max(),
        changes=(minutes.kernel + " " + minutes.options).nunique() - 1,
        **last,
    )
    joined = facts.join(twice, list(_DAY)).join(holes, ["host", "date"])
    order = ["minutes", "holes", "twice", "covered_ns", "steps", "calls", "lost", "recorder_ns"]
    names = [*_DAY, *order, "cpus", "changes", "fs", "options", "device", "kernel", "tool"]
    return joined.select(*names).order_by(list(_DAY))


# Questions to day sums.


def causes_by_day(sums: Expression) -> Expression:
    """Return calls and time by host, day, spool and cause."""
    return _sums(sums.filter(sums.dev != UNKNOWN), (*_DAY, "cause"))


def syscalls_by_day(sums: Expression) -> Expression:
    """Return whole calls and their time by host, day, spool and call."""
    whole = sums.filter((sums.cause == CALL) & (sums.dev != UNKNOWN))
    return _sums(whole, (*_DAY, "syscall"))


def causes(sums: Expression, days: Expression) -> Expression:
    """Return the time of each cause on each type of filesystem, and the hosts that met it."""
    parts = _with_fs(sums.filter(sums.cause != CALL), days)
    return _sums(parts, ("fs", "cause"), hosts=parts.host.nunique())


def programs(sums: Expression) -> Expression:
    """Return the parts of each program's time, without waits of programs for programs."""
    parts = sums.filter((sums.cause != CALL) & ~sums.cause.isin(BETWEEN_PROGRAMS))
    return _sums(parts, ("comm", "cause"), hosts=parts.host.nunique())


def callers(sums: Expression) -> Expression:
    """Return whole calls of each program, and the hosts on which it made them."""
    whole = sums.filter(sums.cause == CALL)
    return _sums(whole, ("comm",), hosts=whole.host.nunique())


def committers(journal: Expression) -> Expression:
    """Return the commits that each program's calls asked for."""
    return _sums(journal, ("comm",), max_ns=journal.max_ns.max(), hosts=journal.host.nunique())


def costliest(places: Expression, n: int = SHOWN_DIRECTORIES) -> Expression:
    """Return the directories of the fleet in which calls waited longest."""
    summed = _sums(places, ("host", "dev", "directory"))
    return summed.order_by([summed.sum_ns.desc(), summed.host, summed.dev, summed.directory]).limit(
        n
    )


def durations(spread: Expression, days: Expression) -> Expression:
    """Return whole calls by filesystem, host, call and bucket, for the questions below."""
    of = _with_fs(spread, days)
    by = ["fs", "host", "syscall", "bucket"]
    return of.group_by(by).agg(n=of.n.sum().cast("int64"))


def quantiles(durations: Expression, by: Iterable[str], per_mille: int) -> Expression:
    """Return the bucket of a quantile of durations for each value of some columns.

    Args:
        durations: Calls by bucket.
        by: Columns to tell apart.
        per_mille: The quantile in thousandths: 990 for the 99th percentile.
    """
    names = list(by)
    bars = durations.group_by([*names, "bucket"]).agg(n=durations.n.sum().cast("int64"))
    ordered = ibis.cumulative_window(group_by=names, order_by="bucket")
    whole = ibis.window(group_by=names)
    counted = bars.mutate(below=bars.n.sum().over(ordered), total=bars.n.sum().over(whole))
    reached = counted.filter(counted.below * 1000 >= counted.total * per_mille)
    return (
        reached.group_by(names)
        .agg(n=reached.total.max().cast("int64"), bucket=reached.bucket.min())
        .order_by(names)
    )


def quantiles_of_calls(durations: Expression, per_mille: int) -> Expression:
    """Return a quantile of each call on each type of filesystem, of the whole fleet."""
    return quantiles(durations, ("fs", "syscall"), per_mille)


def quantiles_of_hosts(durations: Expression, per_mille: int) -> Expression:
    """Return a quantile of the calls that sync, for each host."""
    return quantiles(durations.filter(durations.syscall.isin(SYNCS)), ("host",), per_mille)


def slow_syncs(durations: Expression, bucket: int) -> Expression:
    """Return for each host the calls that sync, and those in a bucket or above it."""
    syncs = durations.filter(durations.syscall.isin(SYNCS))
    slow = (syncs.bucket >= bucket).ifelse(syncs.n, 0)
    return (
        syncs.group_by("host")
        .agg(n=syncs.n.sum().cast("int64"), slow=slow.sum().cast("int64"))
        .order_by("host")
    )


def coverage(days: Expression, runs: Expression) -> Expression:
    """Return what each host gave: days, minutes, holes, losses."""
    seen, added = _seen(days, runs), ("twice", "calls", "lost", "recorder_ns")
    sums = days.group_by("host").agg(
        days=days.date.nunique(),
        first=days.date.min(),
        last=days.date.max(),
        **{name: days[name].sum().cast("int64") for name in added},
    )
    names = ["host", "days", "first", "last", *_SEEN, *added]
    return sums.join(seen, "host").select(*names).order_by("host")


_SEEN = ("minutes", "holes", "covered_ns", "steps")


def _seen(days: Expression, runs: Expression) -> Expression:
    """Return for each host what its recorders saw, whatever spools they recorded."""
    # A recorder numbers its minutes over midnight.
    of_runs = runs.group_by(["host", "recorder_id"]).agg(
        n=runs.minutes.sum().cast("int64"),
        numbered=(runs.last_seq.max() - runs.first_seq.min() + 1).cast("int64"),
        covered_ns=runs.covered_ns.sum().cast("int64"),
        steps=runs.steps.sum().cast("int64"),
    )
    holes = (of_runs.numbered - of_runs.n).cast("int64")
    found = of_runs.select("host", of_runs.n.name("minutes"), holes.name("holes"), *_SEEN[2:])
    # Day sums of earlier versions have no runs, only what each spool has a row of.
    early = days.anti_join(runs, ["host", "date"])
    of_days = early.group_by(["host", "date"]).agg(**{name: early[name].max() for name in _SEEN})
    every = found.union(of_days.select("host", *_SEEN))
    return every.group_by("host").agg(**{name: every[name].sum().cast("int64") for name in _SEEN})


def conditions(days: Expression) -> Expression:
    """Return the days of every spool as they are, in order."""
    return days.filter(days.dev != UNKNOWN).order_by(list(_DAY))


def programs_of(sums: Expression, host: str, date: str | None = None) -> Expression:
    """Return what the calls of each program of one host went into, on one day or all."""
    chosen = sums.filter(sums.host == host)
    if date is not None:
        chosen = chosen.filter(chosen.date == date)
    return _sums(chosen, ("comm", "syscall", "cause"))


def _with_fs(table: Expression, days: Expression) -> Expression:
    """Add the type of the filesystem to each row."""
    return table.join(days.select(*_DAY, "fs"), list(_DAY))
