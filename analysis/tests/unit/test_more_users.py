"""Outcomes of replays with more users than recorded."""

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from spoolscope.analysis.metrics import compared_calls, time_blocks
from spoolscope.analysis.outcomes import read_replay

MS = 1_000_000
LATE = 7000 * MS
TWICE = {
    "label": "with 2 times the users",
    "left_out": {"fsync": 1},
    "scale": {"users": 2, "phases_ns": [LATE]},
    "sentence": "WHAT IF: twice.",
}


@pytest.fixture
def outputs(builder, new_replay):
    """Make a replay of three calls, and one for twice the users, without copies in its order."""
    for call, at_ms in (("rename", 0), ("fsync", 2000), ("unlink", 4000)):
        builder.call(call, at_ms * MS, MS)
    trace = builder.write()
    once, twice = new_replay("once", trace, 3), new_replay("twice", trace, 3)
    once.run("ext4", [1, 2, 3])
    table = pq.read_table(once.path / "ext4-r0" / "outcomes.parquet")
    table = pa.concat_tables([table.take([2, 0]), table.take([0, 2])])
    table = table.set_column(4, "end_ns", pa.array([2 * MS + 30, 10, 100, 2 * MS + 300]))
    table = table.append_column("copy", pa.array([0, 0, 1, 1], pa.int32()))
    place = twice.run("ext4", [0, 0, 0], what_if=TWICE)
    pq.write_table(table, place / "outcomes.parquet")
    return once.write(), twice.write()


def test_calls_of_copies_follow_those_of_the_recording(outputs):
    replay = read_replay([outputs[1]])
    (run,) = replay.runs
    # fsync was left out on purpose in all copies.
    assert run.latency_ns.tolist() == [10, 0, 30, 100, 0, 300]
    assert replay.syscalls.tolist() == ["rename", "fsync", "unlink"] * 2
    since = (replay.ts_ns - replay.ts_ns[0]) // MS
    assert since.tolist() == [0, 2000, 4000, 7000, 9000, 11000]
    calls = compared_calls(replay)
    assert calls.tolist() == list(range(6))
    assert len(set(time_blocks(replay, calls).tolist())) == 6


def test_against_as_many_users_as_recorded_only_the_same_calls_count(outputs):
    replay = read_replay(list(outputs))
    assert replay.candidates == ["ext4", "ext4 with 2 times the users"]
    assert compared_calls(replay).tolist() == [0, 1, 2]


def test_without_the_trace_calls_have_numbers_only(outputs, tmp_path):
    (tmp_path / "trace").rename(tmp_path / "gone")
    replay = read_replay([outputs[1]])
    assert replay.trace is None
    assert replay.runs[0].latency_ns.tolist() == [10, -1, 30, 100, -1, 300]
    assert len(replay.syscalls) == 6
