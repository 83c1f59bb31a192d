"""Overlaps of intervals, against a count of every single nanosecond."""

import random

import duckdb
import numpy as np
import pytest

from spoolscope.analysis.overlay import layers, one_at_a_time, overlaps

SPAN = 3 << 26  # several bins, so that steps of one nanosecond meet their borders


def intervals(rng, n, of):
    """Return random intervals, some long, many at a border of bins: (of, from, to)."""
    found = []
    for _ in range(n):
        begin = rng.choice([rng.randrange(200), (1 << 26) - rng.randrange(5), rng.randrange(SPAN)])
        found.append((rng.randrange(of), begin, begin + rng.choice([0, 1, 7, 100, 1 << 26])))
    return found


def load(con, name, rows, columns):
    con.execute(f"CREATE TABLE {name} ({columns})")
    if rows:
        con.executemany(f"INSERT INTO {name} VALUES ({', '.join('?' * len(rows[0]))})", rows)


@pytest.fixture
def con():
    with duckdb.connect() as connection:
        yield connection


@pytest.mark.parametrize("seed", range(4))
def test_overlaps_are_all_there_once(con, seed):
    rng = random.Random(seed)
    a, b = intervals(rng, 60, 3), intervals(rng, 60, 3)
    load(con, "a", a, "k BIGINT, from_ns BIGINT, to_ns BIGINT")
    load(con, "b", b, "k BIGINT, from_ns BIGINT, to_ns BIGINT")
    found = con.execute(overlaps("a", "b", "l.k = r.k", "l.k")).fetchall()
    expected = [
        (k, max(p, r), min(q, s))
        for k, p, q in a for m, r, s in b if k == m and max(p, r) < min(q, s)
    ]  # fmt: skip
    assert sorted(found) == sorted(expected)


@pytest.mark.parametrize("seed", range(4))
def test_one_at_a_time_covers_the_same_and_never_twice(con, seed):
    rng = random.Random(seed)
    rows = [(k, p % 500, p % 500 + (q - p) % 90) for k, p, q in intervals(rng, 80, 3)]
    load(con, "a", rows, "k BIGINT, from_ns BIGINT, to_ns BIGINT")
    found = con.execute(one_at_a_time("a", "k", "k")).fetchall()
    covered = {(k, t) for k, p, q in rows for t in range(p, q)}
    left = [(k, t) for k, p, q in found for t in range(p, q)]
    assert len(left) == len(set(left))
    assert set(left) == covered


@pytest.mark.parametrize("seed", range(4))
def test_of_the_same_intervals_one_is_chosen_whatever_their_order(con, seed):
    rng = random.Random(seed)
    rows = [(1, at // 10 * 100, at // 10 * 100 + 90, at % 10) for at in range(400)]
    rng.shuffle(rows)
    load(con, "a", rows, "k BIGINT, from_ns BIGINT, to_ns BIGINT, who BIGINT")
    found = con.execute(one_at_a_time("a", "k", "who")).fetchall()
    assert sorted(found) == [(1, at * 100, at * 100 + 90, 0) for at in range(40)]


@pytest.mark.parametrize("seed", range(4))
def test_layers_say_what_holds_at_every_instant(seed):
    rng = random.Random(seed)
    rows, most = [], (3, 1 << 40, 7)
    for id_ in range(3):
        for layer, claims in enumerate(most):
            at = 0
            while at < 300:
                begin = at + rng.choice(
                    [0, 0, 3, 20] if layer else [-20, -3, 0, 20]
                )  # they overlap
                at = begin + rng.choice([0, 1, 5, 40])
                rows.append((id_, layer, rng.randrange(1, claims + 1), begin, at))
    held = {}
    for id_, layer, claim, p, q in rows:
        for t in range(p, q):
            held.setdefault((id_, t), [0] * len(most))[layer] += claim
    columns = ("id", "layer", "claim", "from_ns", "to_ns")
    rng.shuffle(rows)
    claims = dict(zip(columns, np.array(rows).T, strict=True))
    pieces = layers(claims, len(most))
    found = {}
    for id_, p, q, *sums in zip(pieces.id, pieces.from_ns, pieces.to_ns, *pieces.held, strict=True):
        for t in range(p, q):
            assert (id_, t) not in found
            found[id_, t] = sums
    assert found == held


def test_without_claims_there_are_no_pieces():
    none = np.empty(0, np.int64)
    claims = dict.fromkeys(("id", "layer", "claim", "from_ns", "to_ns"), none)
    assert len(layers(claims, 2).id) == 0
