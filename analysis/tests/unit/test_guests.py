"""Runs in booted machines are not silently mixed with others."""

import shutil

import pytest

from spoolscope.analysis.compare import compare
from spoolscope.analysis.guests import base_name, on_newer_kernels
from spoolscope.cli.compare import text
from spoolscope.traces.errors import SpoolscopeError
from spoolscope.traces.results import RunResult
from spoolscope.traces.typed_json import decode

MS = 1_000_000
N = 400


@pytest.fixture
def trace(builder):
    for n in range(N):
        builder.call("openat", n * 50 * MS, oncpu_ns=MS)
    return builder.write()


def on(series, release, accelerator="tcg", *, icount=False):
    facts = {"series": series, "kernel": release, "accelerator": accelerator, "icount": icount}
    return {"kernel": release, "machine": facts}


def run(candidate, where):
    return decode(RunResult, {"candidate": candidate, **where})


HERE = {"kernel": "6.18.44", "machine": None}
OLD, NEW = on("6.1", "6.1.0-56-amd64"), on("6.12", "6.12.117+deb12-amd64")


@pytest.fixture
def made(trace, new_replay):
    """Return ``made(name, {candidate: machine})``: the directory of a replay."""

    def make(name, runs):
        replay = new_replay(name, trace, N)
        for number, (candidate, where) in enumerate(runs.items(), 1):
            replay.run(candidate, [number * MS] * N, **where)
        return replay.write()

    return make


def test_this_machine_is_not_compared_with_one_that_was_booted(made):
    with pytest.raises(SpoolscopeError, match=r"machine booted for it \(none in .*, tcg in "):
        compare([made("here", {"ext4": HERE}), made("there", {"ext4": OLD})])


def test_instructions_are_not_compared_with_times(made):
    counted = on("6.1", "6.1.0-56-amd64", icount=True)
    with pytest.raises(SpoolscopeError, match="tcg with --icount in "):
        compare([made("timed", {"ext4": OLD}), made("counted", {"ext4": counted})])


def test_one_kernel_needs_no_label(made):
    found = compare([made("out", {"jfs": OLD, "reiserfs": OLD})])
    assert list(found.candidates) == ["jfs", "reiserfs"]
    assert any("emulated machine" in problem for problem in found.verdict.problems)
    assert "--on jfs --on reiserfs --vm 6.1 --rounds" in found.verdict.next_command


def test_kernels_are_compared_as_such(made):
    found = compare([made("old", {"ext4": OLD}), made("new", {"ext4": NEW})])
    assert sorted(found.candidates) == ["ext4@6.1", "ext4@6.12"]
    both = compare([made("both", {"ext4@6.1": OLD, "ext4@6.12": NEW})])
    assert list(both.candidates) == ["ext4@6.1", "ext4@6.12"]
    assert " --on ext4 --vm 6.1 --vm 6.12 " in both.verdict.next_command


def test_a_candidate_on_a_device_model_keeps_the_name_that_asks_for_it():
    assert base_name(run("ext4@hdd7k", HERE)) == "ext4@hdd7k"
    assert base_name(run("ext4@hdd7k@6.1", OLD)) == "ext4@hdd7k"


def test_the_oldest_kernel_is_the_reference_however_runs_were_ordered(made):
    found = compare([made("out", {"ext4@6.12": NEW, "ext4@6.1": OLD})])
    assert found.reference == "ext4@6.1"
    assert found.kernels == []  # the only pair shows it


def test_each_filesystem_on_a_newer_kernel_is_held_against_itself(trace, new_replay):
    """Check ext4 with 20 % more time on the newer kernel, xfs with the same; three rounds."""
    replay = new_replay("both", trace, N, rounds=3)
    times = {"xfs@6.12": 200, "ext4@6.12": 120, "xfs@6.1": 200, "ext4@6.1": 100}
    for round_ in range(1, 4):
        for candidate, ms in times.items():
            where = NEW if candidate.endswith("6.12") else OLD
            replay.run(candidate, [ms * MS + round_] * N, round_, **where)
    found = compare([replay.write()])
    held = {(p.candidate, p.reference): (p.primary.ratio, p.word) for p in found.kernels}
    assert held == {
        ("ext4@6.12", "ext4@6.1"): (pytest.approx(1.2), "slower"),
        ("xfs@6.12", "xfs@6.1"): (pytest.approx(1.0), "equivalent"),
    }
    assert "ext4@6.12 is slower than ext4@6.1: 20 % more time in calls." in found.verdict.headline
    assert "xfs@6.12 is equivalent to xfs@6.1" in found.verdict.headline
    told = list(text(found))
    assert max(map(len, told)) <= 80
    [title] = [n for n, line in enumerate(told) if line.endswith("on the oldest kernel")]
    assert [line.split()[:2] for line in told[title + 1 : title + 3]] == [
        ["xfs@6.12", "1.00"],
        ["ext4@6.12", "1.20"],
    ]


def test_runs_of_a_machine_that_this_one_is_not_have_their_base_names():
    runs = [run("ext4@6.18.44", HERE), run("ext4@6.1", OLD), run("jfs@6.1", OLD)]
    assert [base_name(one) for one in runs] == ["ext4", "ext4", "jfs"]
    assert on_newer_kernels(runs) == [("ext4@6.18.44", "ext4@6.1")]


def test_where_instructions_are_counted_only_time_on_the_cpu_is_compared(
    trace, new_builder, new_replay
):
    """Check calls of 7 ms with 2 ms on the CPU, a clone with 100 ms; time in calls 50 and 10 ms."""
    replay = new_replay("counted", trace, N)
    for candidate, latency, cpu in (("ext4", 50, 2), ("xfs", 10, 3)):
        counted = on("6.1", "6.1.0-56-amd64", icount=True)
        directory = replay.run(candidate, [latency * MS] * N, 1, **counted)
        recorded = new_builder(f"counted/{directory.name}/trace")
        for n in range(N):
            recorded.call("openat", n * 10 * MS, oncpu_ns=cpu * MS, blocked_ns=5 * MS)
        recorded.call("clone", N * 10 * MS, oncpu_ns=100 * MS)
        recorded.write()
    found = compare([replay.write()])
    totals = {name: c.metrics["total_ns"] for name, c in found.candidates.items()}
    assert totals == {"ext4": 2 * N * MS, "xfs": 3 * N * MS}
    assert found.candidates["ext4"].causes == {"cpu": 2 * N * MS}
    assert "800 ms against 1.20 s on the CPU in calls" in found.verdict.headline
    assert "make and end processes" in found.verdict.sure
    shutil.rmtree(replay.path / "xfs-r1" / "trace")
    with pytest.raises(SpoolscopeError, match="xfs-r1 has no recording"):
        compare([replay.path])


def test_a_replay_that_is_not_finished_says_so(trace, new_replay):
    replay = new_replay("part", trace, N, order=["ext4-r1", "xfs-r1", "ext4-r2", "xfs-r2"])
    replay.run("ext4", [MS] * N, 1, **OLD)
    [told] = [p for p in compare([replay.write()]).verdict.problems if "not made" in p]
    assert told == "3 of 4 runs were not made: --resume goes on."
