"""Both parts of the lateness of a replay, over the executed calls."""

from spoolscope.analysis.compare import compare
from spoolscope.analysis.lateness import BY_MACHINE, BY_TARGET, lateness
from spoolscope.report.build import replay_page
from spoolscope.report.sections import fidelity
from spoolscope.traces.phases import unseen

MS = 1_000_000
N = 1200


def replayed(builder, new_replay, **late):
    for n in range(N):
        builder.call("fsync", n * 30 * MS, 1000)
    replay = new_replay("out", builder.write(), N)
    replay.run("ext4", [MS] * N, skipped=(0,), **late)
    return replay.write()


def test_both_parts_are_told_apart(builder, new_replay):
    late = {"late_ns": [k * 10 for k in range(N)], "late_by_machine_ns": [5 * MS] * N}
    (run,) = compare([replayed(builder, new_replay, **late)]).replay.runs
    target, machine = lateness(run)
    assert (target.name, target.n, machine.name, machine.n) == (BY_TARGET, N - 1, BY_MACHINE, N - 1)
    assert (target.x_ns[0], target.x_ns[-1]) == (10, (N - 1) * 10)
    assert set(machine.x_ns) == {5 * MS}


def test_the_report_draws_it(builder, new_replay):
    late = {"late_ns": [0] * N, "late_by_machine_ns": [7 * MS] * N}
    page = replay_page([replayed(builder, new_replay, **late)], unseen)
    (section,) = [section for section in page.sections if section.key == fidelity.anchor]
    (figure,) = [block for block in section.blocks if getattr(block, "key", "") == "lateness"]
    assert figure.finding == (
        "One call in a hundred began over 7.00 ms late because of the machine.")  # fmt: skip
    assert "1,199 calls" in figure.caption


def test_where_no_time_was_kept_nothing_is_drawn(builder, new_replay):
    page = replay_page([replayed(builder, new_replay)], unseen)
    assert "lateness" not in [figure.key for figure in page.figures]
