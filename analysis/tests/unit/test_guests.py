"""Runs of machines that a replay booted are not mixed with others silently."""

import pytest

from spoolscope.analysis.compare import compare
from spoolscope.analysis.guests import base_name
from spoolscope.traces.errors import SpoolscopeError

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


HERE = {"kernel": "6.18.44", "machine": None}
OLD, NEW = on("6.1", "6.1.0-56-amd64"), on("6.12", "6.12.117+deb12-amd64")


@pytest.fixture
def made(trace, new_replay):
    """Return ``made(name, {candidate: where it ran})``: the directory of a replay."""

    def make(name, runs):
        replay = new_replay(name, trace, N)
        for number, (candidate, where) in enumerate(runs.items(), 1):
            replay.run(candidate, [number * MS] * N, **where)
        return replay.write()

    return make


def test_this_machine_is_not_compared_with_one_that_was_booted(made):
    with pytest.raises(SpoolscopeError, match=r"accelerator \(none in .*, tcg in "):
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
    assert base_name({"candidate": "ext4@hdd7k", **HERE}) == "ext4@hdd7k"
    assert base_name({"candidate": "ext4@hdd7k@6.1", **OLD}) == "ext4@hdd7k"
