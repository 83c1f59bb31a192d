"""Services of disks: requests read in parts give the same results as all at once."""

import random
from collections import defaultdict

import pytest

from spoolscope.analysis.services import by_kind, disk_turns
from spoolscope.traces.trace import Trace


@pytest.fixture
def in_parts(monkeypatch):
    """Make tables be read in parts of a few rows."""
    whole = Trace.parts

    def parts(trace, name, columns=None):
        for part in whole(trace, name, columns):
            for first in range(0, part.num_rows, 7):
                yield part.slice(first, 7)

    monkeypatch.setattr(Trace, "parts", parts)


@pytest.mark.usefixtures("in_parts")
def test_requests_are_served_one_after_the_other_on_each_disk(builder):
    rng = random.Random(5)
    builder.call("read", 0)
    for n in range(200):
        kind = {"dev": rng.randrange(2), "op": rng.choice(["read", "write", "flush", "discard"])}
        builder.block_io(n * 1000, rng.randrange(5000), rng.randrange(20_000), **kind)
    with (trace := Trace.open(builder.write())).connect() as con:
        expected = con.execute(
            "SELECT dev, op, list(ns ORDER BY ns) FROM (SELECT dev, op, to_ns - greatest(from_ns, "
            "coalesce(lag(to_ns) OVER (PARTITION BY dev ORDER BY to_ns), from_ns)) AS ns FROM ("
            "SELECT dev, op, ts_ns + queue_ns AS from_ns, ts_ns + queue_ns + device_ns AS to_ns "
            "FROM block_ios WHERE op != 'discard')) GROUP BY ALL"
        ).fetchall()
    found = defaultdict(list)
    for turns in disk_turns(trace):
        for key, ns in by_kind(turns):
            found[key] += ns.tolist()
    assert {(dev, op): ns for dev, op, ns in expected} == {
        key: sorted(ns) for key, ns in found.items()
    }
