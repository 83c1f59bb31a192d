"""The answer about a fleet as plain objects, for JSON, CSV and Markdown."""

from typing import Any

from spoolscope.analysis.fleet.change import Effect
from spoolscope.analysis.fleet.drill import Drilled, Suspect
from spoolscope.analysis.fleet.fleet_answer import Answer, Latency, Quantile
from spoolscope.analysis.fleet.fleet_words import badge, headline, quality


def facts(answer: Answer) -> dict[str, Any]:
    """Return everything in an answer; times are in ns, shares and ratios are fractions."""
    expected, seen, counted = answer.spool_days
    found: dict[str, Any] = {
        "fleet": answer.shown,
        "engine": answer.engine,
        "headline": headline(answer),
        "word": badge(answer),
        "first": answer.fleet.dates[0] if answer.fleet.dates else None,
        "last": answer.fleet.dates[-1] if answer.fleet.dates else None,
        "spool_days": {"expected": expected, "seen": seen, "counted": counted},
        "left_out": dict(answer.fleet.left_out),
        "calls": answer.calls,
        "lost": answer.lost,
        "quality": list(quality(answer)),
        "problems": list(answer.problems),
        "slow_ns": answer.slow_ns,
        "hosts": [
            {**vars(host), "median": _ends(host.median), "p99": _ends(host.p99)}
            for host in answer.hosts
        ],
        "filesystems": [vars(one) for one in answer.filesystems],
        "programs": [vars(one) for one in answer.programs],
        "latencies": [_latency(one) for one in answer.latencies],
        "directories": list(answer.directories),
        "differ": [_suspect(answer, one) for one in answer.suspects],
        "tests": len(answer.tested.tests),
        "not_judged": answer.tested.alone,
    }
    if answer.split is not None:
        split = answer.split
        found["change"] = {
            "what": split.what,
            "before": split.before,
            "after": split.after,
            "changed": len(split.changed),
            "stayed": len(split.stayed),
            "others": split.others,
            "effects": [_effect(one) for one in answer.effects],
        }
    return found


def drilled_facts(drilled: Drilled) -> dict[str, Any]:
    """Return what was found of one host."""
    return {
        "host": drilled.host,
        "date": drilled.date,
        "days": [{"date": date, "causes": dict(drilled.by_day[date])} for date in drilled.dates],
        "calls": list(drilled.calls),
        "frozen_traces": list(drilled.traces),
    }


def _ends(quantile: Quantile | None) -> dict[str, int] | None:
    return None if quantile is None else vars(quantile)


def _latency(one: Latency) -> dict[str, Any]:
    ends = {f"p{q / 10:g}": _ends(quantile) for q, quantile in one.quantiles.items()}
    return {"fs": one.fs, "syscall": one.syscall, "n": one.n, **ends}


def _suspect(answer: Answer, one: Suspect) -> dict[str, Any]:
    spool, test = answer.fleet.spools[one.test.row], one.test
    return {
        "host": spool.host,
        "dev": spool.dev,
        "fs": spool.fs,
        "measure": test.measure,
        "value": test.value,
        "peers": test.peers,
        "ratio": test.ratio,
        "deviations": test.deviations,
        "n_peers": test.n_peers,
        "p": test.p,
        "q": test.q,
        "day": one.day,
        "cause": one.cause,
        "cause_ns_per_call": one.cause_ns,
        "peers_ns_per_call": one.peers_ns,
        "frozen_traces": list(one.traces),
    }


def _effect(one: Effect) -> dict[str, Any]:
    estimate = one.estimate
    return {
        "measure": one.measure,
        "ratio": estimate.ratio,
        "low": estimate.low,
        "high": estimate.high,
        "confidence": one.confidence,
        "hosts": estimate.n,
        "hosts_faster": estimate.n_lower,
        "control_hosts": one.n_control,
        "control_ratio": one.control,
        "word": one.word,
        "method": estimate.method,
    }
