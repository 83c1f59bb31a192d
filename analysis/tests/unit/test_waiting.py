"""The primary metric with waits for the own process, and contradicting metrics."""

import pytest

from spoolscope.analysis.compare import compare
from spoolscope.analysis.metrics import PRIMARY, WAITING
from spoolscope.cli.compare import text

MS = 1_000_000


@pytest.fixture
def trace(builder):
    """Make twenty pieces of work, 100 ms apart, of two calls without a pause between them."""
    for piece in range(20):
        builder.call("openat", 100 * MS * piece, oncpu_ns=MS)
        builder.call("write", (100 * piece + 2) * MS - 1, oncpu_ns=MS)
    return builder.write()


def test_work_counts_from_when_it_was_due_and_each_delay_once(trace, new_replay):
    out = new_replay("out", trace, 40)
    # Each piece is 5 ms late, with both of its calls. The machine's part does not count.
    out.run("ext4", [MS] * 40, late_ns=[5 * MS] * 40, late_by_machine_ns=[9 * MS] * 40)
    found = compare([out.write()]).candidates["ext4"].metrics
    assert found[PRIMARY] == 40 * MS
    assert found[WAITING] == (40 + 20 * 5) * MS


def test_a_replay_without_a_schedule_has_no_such_metric(trace, new_replay):
    out = new_replay("out", trace, 40, pace="afap")
    out.run("ext4", [MS] * 40)
    out.run("xfs", [2 * MS] * 40)
    found = compare([out.write()])
    assert found.candidates["ext4"].metrics[WAITING] is None
    assert found.pairs[0].waiting_word == ""
    assert not any("due to end" in line for line in text(found))


@pytest.mark.parametrize(("late_ms", "warned"), [(0, False), (1, False), (20, True)])
def test_metrics_that_contradict_are_warned_of(trace, new_replay, late_ms, warned):
    """Check btrfs with less time in calls, but at 20 ms longer waits for its own process."""
    out = new_replay("out", trace, 40)
    for round_ in range(1, 4):
        out.run("ext4", [2 * MS + round_] * 40, round_, late_ns=[0] * 40)
        out.run("btrfs", [MS] * 40, round_, late_ns=[late_ms * MS] * 40)
    found = compare([out.write()], "ext4")
    (pair,) = found.pairs
    assert pair.word == "faster"
    assert pair.waiting_word == ("slower" if warned else "faster")
    assert pair.contradicts == warned
    said = [line for line in text(found) if line.startswith("Warning: The two primary metrics")]
    assert bool(said) == warned
    assert found.to_json()["verdict"]["warnings"] == found.verdict.warnings
