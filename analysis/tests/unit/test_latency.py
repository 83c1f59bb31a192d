"""Percentiles, and too few events for them."""

import random
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest

from spoolscope.analysis.explain import PHASES, explain
from spoolscope.analysis.latency import (
    IN_FLIGHT,
    QUANTILES,
    class_of,
    curve,
    curves,
    exact_quantiles,
    family_curves,
    supported,
)
from spoolscope.analysis.stages import begin
from spoolscope.traces.trace import Trace

SAMPLE = Path(__file__).resolve().parents[3] / "traces" / "samples" / "postfix-dovecot"


def test_a_percentile_needs_enough_events():
    assert supported(1000, 0.99)
    assert not supported(999, 0.99)
    assert supported(20, 0.5)
    assert not supported(19, 0.5)
    assert supported(10_000, 0.999)


def test_latencies_by_call(builder):
    for n in range(1000):
        builder.call("read", n * 10_000, oncpu_ns=n + 1)
    builder.call("fsync", 0, oncpu_ns=7_000_000)
    by_call = explain(builder.write()).by_syscall
    assert list(by_call) == ["fsync", "read"]
    read = by_call["read"].latency
    assert (read.n, read.total_ns, read.max_ns) == (1000, 500_500, 1000)
    assert (read.p50_ns, read.p99_ns) == (500, 990)
    assert read.p999_ns is None
    assert by_call["fsync"].latency.p50_ns is None


def test_calls_in_flight_do_not_bend_percentiles(builder):
    for n in range(20):
        builder.call("fcntl", n, oncpu_ns=100)
    builder.call("fcntl", 50, oncpu_ns=10**10, flags_seen=IN_FLIGHT)
    latency = explain(builder.write()).by_syscall["fcntl"].latency
    assert (latency.n, latency.p50_ns, latency.total_ns) == (21, 100, 10**10 + 2000)


def test_curve_keeps_the_ends_and_the_tail():
    values = np.arange(1, 100_001)
    found = curve("x", values, points=50)
    assert found.n == 100_000
    assert (found.x_ns[0], found.x_ns[-1], found.share[-1]) == (1, 100_000, 1.0)
    assert sum(share > 0.99 for share in found.share) > 15
    pairs = zip(found.x_ns, found.share, strict=True)
    assert all(abs(x / 100_000 - share) < 1e-9 for x, share in pairs)


def test_families():
    assert class_of("fdatasync") == "sync"
    assert class_of("renameat2") == "rename"
    assert class_of("ioctl") == "other"


@pytest.mark.parametrize("seed", range(3))
def test_quantiles_are_those_of_all_values_sorted(builder, seed):
    rng = random.Random(seed)
    for n, size in (("read", 1), ("fsync", 2), ("stat", 3), ("write", 400), ("open", 1501)):
        for _ in range(size):
            length = rng.choice([rng.randrange(50), int(10 ** rng.uniform(0, 11)), 4095, 4096])
            builder.call(n, 0, oncpu_ns=length)
    with Trace.open(builder.write()).connect() as con:
        begin(con).make("call_totals", "named_waits")
        found = exact_quantiles(con)
        whole = con.execute(
            f"SELECT syscall, quantile_cont(dur_ns, {list(QUANTILES)}) FROM syscalls GROUP BY 1"
        ).fetchall()
    assert {name: pytest.approx(values, rel=1e-12) for name, values in whole} == found


def test_curves_of_a_trace_are_those_of_all_its_calls_at_once():
    trace = Trace.open(SAMPLE)
    calls = trace.table("syscalls", ["syscall", "dur_ns", "flags_seen"])
    done = calls["flags_seen"].to_numpy() & IN_FLIGHT == 0
    names = calls["syscall"].cast(pa.string()).to_numpy(zero_copy_only=False)[done]
    with trace.connect() as con:
        begin(con).make("call_totals", "named_waits")
        found = curves(con)
    assert found == family_curves(names, calls["dur_ns"].to_numpy()[done])
    assert {curve.name for curve in found} >= {"sync", "open", "read", "write", "other"}


def test_an_explanation_shows_how_far_it_is():
    seen = []
    explain(SAMPLE, blame=True, progress=lambda what, share: seen.append((what, share)))
    assert [what for what, _ in seen] == list(PHASES)
    shares = [share for _, share in seen]
    assert shares == sorted(shares)
    assert shares[0] == 0
