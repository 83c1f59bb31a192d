"""Recordings against replays: known ratios and orders, different causes, and refusals."""

import json

import pytest
from click.testing import CliRunner

from spoolscope.analysis.compare import compare
from spoolscope.analysis.validation import validate
from spoolscope.cli.compare import text as compared
from spoolscope.cli.main import group
from spoolscope.traces.errors import SpoolscopeError
from spoolscope.traces.trace import Trace

MS = 1_000_000
N = 400
ON = {"ext4": 1.0, "xfs": 0.5, "btrfs": 2.0}
LOCK = "schedule < fcntl_setlk < do_fcntl"
COMMIT = "jbd2_log_wait_commit < ext4_sync_file"


def recording(new_builder, name, fstype, call_ms, calls=N, commit_ms=0.0):
    """Record calls of one length, ten a second, which may wait for a commit, and a lock wait."""
    builder = new_builder(name)
    waits = ((COMMIT, int(commit_ms * MS)),) if commit_ms else ()
    for k in range(calls):
        own = int((call_ms - commit_ms) * MS)
        builder.call("fsync", 100 * MS * k, oncpu_ns=own, waits=waits)
    builder.call("fcntl", 100 * MS * calls, waits=((LOCK, 10_000 * MS),))
    return builder.write(spools=[{"mount": "/spool", "fstype": fstype, "dev": 1}])


@pytest.fixture
def recordings(new_builder):
    """Make two recordings of each filesystem, of different lengths as with a real service."""
    return {
        name: [recording(new_builder, f"{name}{k}", name, ms, N + 50 * k) for k in (0, 1)]
        for name, ms in ON.items()
    }


def replays(new_replay, trace, on, name="out", **row):
    out = new_replay(name, trace, N + 1)
    for round_ in (1, 2, 3):
        for candidate, ms in on.items():
            out.run(candidate, [int(ms * MS) + round_] * N + [MS], round_, **row)
    return out.write()


def validated(recordings, out):
    opened = {name: [Trace.open(path) for path in some] for name, some in recordings.items()}
    return validate(opened, compare([out], trace=recordings["ext4"][0]))


def test_a_ranking_holds_if_both_order_alike(recordings, new_replay):
    found = validated(recordings, replays(new_replay, recordings["ext4"][0], ON))
    assert (found.holds, found.metrics[0].tau) == (True, 1.0)
    ratios = {one.filesystem: one for one in found.metrics[0].ratios}
    for name, ms in (("xfs", 0.5), ("btrfs", 2.0)):
        assert ratios[name].recorded.ratio == pytest.approx(ms)
        assert ratios[name].replayed.ratio == pytest.approx(ms, rel=1e-4)
        assert ratios[name].apart == pytest.approx(0, abs=1e-4)
        assert (ratios[name].recorded.n, ratios[name].replayed.n) == (2, 3)
        assert ratios[name].is_sure
    assert found.verdict == (
        "The ranking holds where it is decided: both sides order 3 of 3 pairs of filesystems alike,"
        " and none differently."
    )
    assert found.calls["ext4"] == N + 25  # the wait for a lock is not among them
    json.dumps(found.to_json(), allow_nan=False)


@pytest.mark.parametrize(
    ("on", "tau"),
    [({"ext4": 1, "xfs": 2, "btrfs": 0.5}, -1.0), ({"ext4": 1, "xfs": 1.5, "btrfs": 2}, 1 / 3)],
)
def test_a_ranking_does_not_hold_if_replays_order_otherwise(recordings, new_replay, on, tau):
    found = validated(recordings, replays(new_replay, recordings["ext4"][0], on))
    assert found.holds is False
    assert found.verdict.startswith("The ranking does not hold. Recordings say the opposite of")
    assert "xfs before ext4" in found.verdict
    assert found.metrics[0].tau == pytest.approx(tau)


def test_recordings_alone_have_an_interval_from_within(recordings, new_replay):
    single = {name: some[:1] for name, some in recordings.items()}
    found = validated(single, replays(new_replay, recordings["ext4"][0], ON))
    xfs = found.metrics[0].ratios[0].recorded
    assert (xfs.method, xfs.n) == ("within-run", 1)
    assert xfs.low <= 0.5 <= xfs.high


def test_a_pair_that_chance_orders_says_nothing_of_the_ranking(recordings, new_replay):
    """Check xfs with one round slower than ext4 by far, and one faster: tau alone is below 1."""
    out = new_replay("out", recordings["ext4"][0], N + 1)
    for round_, xfs in ((1, 0.3), (2, 4.0)):
        for name, ms in (("ext4", 1.0), ("xfs", xfs), ("btrfs", 2.0 + round_ / 100)):
            out.run(name, [int(ms * MS)] * N + [MS], round_)
    found = validated(recordings, out.write())
    assert (found.holds, [r.is_sure for r in found.metrics[0].ratios]) == (True, [False, True])
    assert found.metrics[0].tau < 1
    assert found.verdict == (
        "The ranking holds where it is decided: both sides order 1 of 3 pairs of filesystems alike,"
        " and none differently. Decided 2 by recordings only."
    )


def test_without_a_pair_that_both_decide_nothing_is_known(recordings, new_replay):
    out = new_replay("out", recordings["ext4"][0], N + 1)
    for round_, spread in ((1, 0.2), (2, 5.0)):
        for name, ms in (("ext4", 1.0), ("xfs", spread), ("btrfs", 1 / spread)):
            out.run(name, [int(ms * MS)] * N + [MS], round_)
    found = validated(recordings, out.write())
    assert found.holds is None
    assert found.verdict.startswith("It is not known whether the ranking holds: both sides decide")


def test_causes_that_differ_are_told(new_builder, new_replay):
    """Check xfs calls that wait 0.4 ms for a commit in the recording, and 0.1 ms in the replay."""
    traces = {
        "ext4": [recording(new_builder, "a", "ext4", 1.0)],
        "xfs": [recording(new_builder, "b", "xfs", 0.5, commit_ms=0.4)],
    }
    out = new_replay("out", traces["ext4"][0], N + 1)
    for name, ms, commit_ms in (("ext4", 1.0, 0.0), ("xfs", 0.5, 0.1)):
        directory = out.run(name, [int(ms * MS)] * N + [MS])
        recording(new_builder, directory / "trace", name, ms, commit_ms=commit_ms)
    found = validated(traces, out.write())
    by_cause = {(one.filesystem, one.cause): one for one in found.causes}
    commit = by_cause["xfs", "journal_commit"]
    assert commit.recorded_ns == pytest.approx(0.4 * MS, rel=0.01)
    assert commit.replayed_ns == pytest.approx(0.1 * MS, rel=0.01)
    assert not [name for name, _ in by_cause if name == "ext4"]


def test_what_cannot_be_compared_is_refused(recordings, new_replay):
    out = replays(new_replay, recordings["ext4"][0], {"ext4": 1.0, "xfs": 1.0})
    with pytest.raises(SpoolscopeError, match="no replay is on btrfs") as caught:
        validated(recordings, out)
    assert "ext4, xfs" in caught.value.remedy
    with pytest.raises(SpoolscopeError, match="one filesystem alone"):
        validated({"ext4": recordings["ext4"]}, out)


def test_the_verb_prints_both_ratios_and_tau(recordings, new_replay):
    out = replays(new_replay, recordings["ext4"][0], ON)
    words = [str(recordings["ext4"][0]), "--against", f"xfs={recordings['xfs'][0]}"]
    words += ["--against", str(recordings["btrfs"][0]), "--replays", str(out), "-q"]
    done = CliRunner().invoke(group, ["validate", *words], standalone_mode=False)
    assert (done.exit_code, done.exception) == (0, None)
    assert done.stdout.startswith("The ranking holds where it is decided: both sides order 3 of 3")
    assert max(map(len, done.stdout.splitlines())) <= 80
    told = CliRunner().invoke(group, ["validate", *words, "--json"], standalone_mode=False)
    assert json.loads(told.stdout)["holds"] is True


def test_the_own_filesystem_has_the_recorded_mount_options(new_builder, new_replay):
    builder = new_builder("optioned")
    for k in range(N):
        builder.call("fsync", 100 * MS * k, oncpu_ns=MS)
    spool = {"mount": "/spool", "fstype": "ext4", "dev": 1, "options": "rw,noatime,data=ordered"}
    trace = builder.write(spools=[spool])
    out = new_replay("out", trace, N)
    for name, options in (("ext4-journal", "rw,noatime,data=journal"), ("ext4", "rw,noatime")):
        out.run(name, [MS] * N, fstype="ext4", mount_options=options)
    assert compare([out.write()], trace=trace).own.candidate == "ext4"


def test_compare_says_how_true_the_own_filesystem_is(recordings, new_replay):
    trace = recordings["ext4"][0]
    found = compare([replays(new_replay, trace, {"ext4": 0.9, "xfs": 0.5})], trace=trace)
    assert found.own.candidate == "ext4"
    assert found.own.ratio.ratio == pytest.approx(0.9, rel=1e-4)
    assert found.own.ratio.n == 3
    lines = " ".join(compared(found))
    assert "Replay of its own filesystem: ext4 took 0.90 x the time" in lines
    other = compare([replays(new_replay, trace, {"xfs": 0.5}, "other")], trace=trace)
    assert other.own is None
    assert "there is none; add --on ext4" in " ".join(compared(other))
