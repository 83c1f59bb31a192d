"""The language of --fail-if, and its decisions on replays."""

import json
from pathlib import Path

import numpy as np
import pytest
from click.testing import CliRunner

from spoolscope.analysis.demands.decisions import Measured, decide, worst
from spoolscope.analysis.demands.language import (
    CAUSE,
    COUNT,
    MEAN,
    OVER,
    QUANTILE,
    TIME,
    parse_demand,
    parse_metric,
)
from spoolscope.analysis.demands.recorded import lack
from spoolscope.cli.main import group
from spoolscope.traces.errors import SpoolscopeError
from spoolscope.traces.trace import Trace

MS = 1_000_000
N = 1200


@pytest.mark.parametrize(
    ("text", "kind", "above", "limit", "relative"),
    [
        ("time > +10 %", TIME, True, 1.1, True),
        ("time>+10%", TIME, True, 1.1, True),
        ("time < -5 %", TIME, False, 0.95, True),
        ("time >= 1.5 x", TIME, True, 1.5, True),
        ("time of fsync > +10 %", TIME, True, 1.1, True),
        ("mean of sync > 20 ms", MEAN, True, 20e6, False),
        ("p99 of fsync > +20 %", QUANTILE, True, 1.2, True),
        ("p99.9 of rename > 1 s", QUANTILE, True, 1e9, False),
        ("median > 10 us", QUANTILE, True, 1e4, False),
        ("calls over 10 ms > 1 %", OVER, True, 0.01, False),
        ("calls over 10 ms > +1 %", OVER, True, 1.01, True),
        ("fsync over 100 ms > 2 times", OVER, True, 2.0, True),
        ("calls of fsync over 100ms > 2 x", OVER, True, 2.0, True),
        ("journal commit > +50 %", CAUSE, True, 1.5, True),
        ("journal_commit > +50 %", CAUSE, True, 1.5, True),
        ("time of cache flush > +50 %", CAUSE, True, 1.5, True),
        ("commits > +10 %", COUNT, True, 1.1, True),
        ("written bytes per delivery > 100000", COUNT, True, 1e5, False),
    ],
)
def test_expressions(text, kind, above, limit, relative):
    demand = parse_demand(text)
    assert (demand.metric.kind, demand.above, demand.relative) == (kind, above, relative)
    assert demand.limit == pytest.approx(limit)


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("", "needs one of > < >= <="),
        ("time", "needs one of > < >= <="),
        ("time > +10 % > 3", "needs one of > < >= <="),
        ("time => +10 %", "needs one of > < >= <="),
        ("> +10 %", "has no metric"),
        ("speed > +10 %", "'speed' is no metric"),
        ("p99 of fsyncc > +10 %", "did you mean fsync"),
        ("time of fcntl > +10 %", "not compared"),
        ("file lock > +10 %", "not compared"),
        ("time of file lock > +10 %", "not compared"),
        ("time > 10 %", "write +10 % or -10 %"),
        ("time > +10", "'+10' is no limit"),
        ("time > much", "'much' is no limit"),
        ("time > 10 ms", "give a change"),
        ("time < -200 %", "nothing falls by 200 %"),
        ("p0 of fsync > 1 ms", "no percentile"),
        ("commits > 10 ms", "'10 ms' is no limit of commits"),
        ("commits per fortnight > 1 x", "nothing is counted per 'fortnight'"),
    ],
)
def test_errors_say_what_is_wrong_and_what_is_right(text, says):
    with pytest.raises(SpoolscopeError) as caught:
        parse_demand(text)
    assert says in f"{caught.value.message}; {caught.value.remedy}"
    assert caught.value.exit_code == 2
    assert "\n" not in caught.value.message + caught.value.remedy


@pytest.mark.parametrize(
    ("text", "low", "high", "expected"),
    [
        ("time > +10 %", 1.11, 1.5, "fails"),
        ("time > +10 %", 1.05, 1.5, "undecided"),
        ("time > +10 %", 0.9, 1.10, "passes"),
        ("time < -10 %", 0.7, 0.89, "fails"),
        ("time < -10 %", 0.7, 0.95, "undecided"),
        ("time < -10 %", 0.9, 1.2, "passes"),
        ("commits > 0", 0.0, 0.0, "passes"),
        ("commits <= 0", 0.0, 0.0, "fails"),
        ("commits <= 0", 0.1, 0.2, "passes"),
        ("commits >= 2", 2.0, 2.5, "fails"),
        ("commits >= 2", 1.0, 2.0, "undecided"),
        ("time > +10 %", None, None, "undecided"),
    ],
)
def test_only_a_whole_interval_decides(text, low, high, expected):
    decision = decide(parse_demand(text), "xfs", Measured(1.0, low, high))
    assert decision.decision == expected
    assert bool(decision.why) == (expected == "undecided")
    doubted = decide(parse_demand(text), "xfs", Measured(1.0, low, high), "runs diverged")
    assert (doubted.decision, doubted.why) == ("undecided", "runs diverged")
    assert worst([decision, doubted]) == ("fails" if expected == "fails" else "undecided")


@pytest.mark.parametrize(
    ("low", "high", "said"),
    [
        (3.0, 4.0, "holds (exit 4): "),
        (0.1, 0.2, "does not hold: "),
        (0.5, 3.0, "undecided (exit 5)"),
    ],
)
def test_a_decision_is_on_the_expression_as_it_was_given(low, high, said):
    decision = decide(
        parse_demand("p99 of fsync > 1 s"), "xfs", Measured(1e9, low * 1e9, high * 1e9)
    )
    assert decision.text.startswith(said)
    assert "p99 of fsync > 1 s (xfs: 1.00 s" in decision.text


@pytest.fixture
def replay(builder, new_replay):
    """Return ``replay(rounds, slower)``: ext4, and xfs with calls longer by that factor."""
    for n in range(N):
        builder.call("fsync" if n % 2 else "rename", n * MS, 1000, path=f"a/{n}")

    def make(rounds, slower, **row):
        made = new_replay("out", builder.write(), N)
        noise = np.random.default_rng(5).normal(1, 0.01, (rounds, 2))
        for round_ in range(rounds):
            for side, (name, factor) in enumerate((("ext4", 1.0), ("xfs", slower))):
                took = int(MS * factor * noise[round_, side])
                made.run(name, [took] * N, round_, **(row if name == "xfs" else {}))
        return made.write()

    return make


def decided(path, *demands):
    words = [str(word) for demand in demands for word in ("--fail-if", demand)]
    result = CliRunner().invoke(
        group, ["compare", str(path), "-q", "--json", "--reference", "ext4", *words],
        standalone_mode=False,
    )  # fmt: skip
    assert result.exception is None, result.exception
    return result.return_value, json.loads(result.stdout)["fail_if"]


def test_replays_of_enough_rounds_are_decided(replay):
    wanted = {
        "time > +10 %": "fails",
        "time > +50 %": "passes",
        "time > +30 %": "undecided",
        "time of fsync > +10 %": "fails",
        "p90 of rename > 1.1 ms": "fails",
        "mean of rename > 2 ms": "passes",
        "calls over 2 ms > +1 %": "passes",
        "calls over 1.15 ms > 50 %": "fails",
        "commits > +10 %": "undecided",
        "deliveries > +10 %": "undecided",
        "time of mkdir > +10 %": "undecided",
    }
    code, decisions = decided(replay(5, 1.3), *wanted)
    of_xfs = [one for one in decisions if one["candidate"] == "xfs"]
    assert {one["expression"]: one["decision"] for one in of_xfs} == wanted
    about = {(one["candidate"], one["relative"]) for one in decisions}
    assert about == {("xfs", True), ("xfs", False), ("ext4", False)}
    assert code == 4


def test_one_round_decides_nothing(replay):
    code, (decision,) = decided(replay(1, 5.0), "time > +10 %")
    assert code == 5
    assert "needs 3 at least" in decision["why"]


def test_runs_that_diverged_decide_nothing(replay):
    code, (decision,) = decided(replay(5, 5.0, divergent=200), "time > +10 %")
    assert code == 5
    assert "not true to the recording" in decision["why"]


def test_one_that_fails_outweighs_one_that_is_undecided(replay):
    code, decisions = decided(replay(5, 1.3), "commits > 1 x", "time > +10 %")
    assert code == 4
    assert [one["decision"] for one in decisions] == ["undecided", "fails"]


@pytest.fixture
def recorded(builder, new_replay, new_builder):
    """Make three recorded rounds: xfs calls wait twice as long for twice as many commits."""
    for n in range(20):
        builder.call("fsync", n * MS, 1000, path=f"a/{n}")
    replay = new_replay("out", builder.write(), 20)
    for round_ in range(3):
        for name, factor in (("ext4", 1), ("xfs", 2)):
            directory = replay.run(name, [MS * factor + round_ * 1000] * 20, round_)
            of_run = new_builder(str((directory / "trace").relative_to(directory.parents[1])))
            for n in range(20):
                wait = ("schedule < jbd2_log_wait_commit < ext4_sync_file", MS * factor + round_)
                of_run.call("fsync", n * 10 * MS, 1000, (wait,), path=f"a/{n}")
            for n in range(10 * factor):
                of_run.commit(n * MS, MS)
                of_run.block_io(n * MS, 0, MS, bytes=4096)
            of_run.write()
    return replay.write()


@pytest.mark.slow
def test_causes_and_counts_come_from_the_recordings_of_runs(recorded):
    wanted = {
        "journal commit > +50 %": "fails",
        "journal commit > 3 x": "passes",
        "commits > +50 %": "fails",
        "commits per call > 2.5 x": "passes",
        "written bytes > +50 %": "fails",
        "cache flush > +50 %": "passes",
        "commits per delivery > 1 x": "undecided",
    }
    code, decisions = decided(recorded, *wanted)
    assert {one["expression"]: one["decision"] for one in decisions} == wanted
    assert code == 4


def test_a_slow_call_in_one_run_alone_decides_a_share(builder, new_replay):
    for n in range(N):
        builder.call("rename", n * MS, 1000)
    made = new_replay("out", builder.write(), N)
    for round_ in range(5):
        for name in ("ext4", "xfs"):
            made.run(name, [MS] * (N - 1) + [200 * MS if round_ == 2 else MS], round_)
    code, decisions = decided(made.write(), "calls over 100 ms > 90 %")
    assert (code, {one["decision"] for one in decisions}) == (0, {"passes"})


@pytest.mark.parametrize(
    ("metric", "meta", "lacks"),
    [
        ("time", {"tier": "T0", "imported": {"from": "strace"}}, ""),
        ("calls", {"tier": "T0"}, ""),
        ("commits", {"tier": "T2"}, ""),
        ("commits", {"tier": "T1"}, "tier T1"),
        ("commits", {"imported": {"from": "strace"}}, "was imported"),
        ("journal commit", {"tier": "T0"}, "tier T0"),
        ("journal commit", {"tier": "T1"}, ""),
        ("journal commit", {"imported": {"from": "strace"}}, "was imported"),
        ("flushes", {"programs": {"missing": {"on_rq_complete_6": ""}}}, "could not be attached"),
        ("flushes", {"programs": {"missing": {"on_rq_complete_6": ""},
                                  "instead": ["on_rq_complete_6"]}}, ""),
    ],
)  # fmt: skip
def test_a_trace_lacks_what_it_could_not_record(metric, meta, lacks):
    found = lack(Trace(Path("mail.trace"), meta), parse_metric(metric))
    assert bool(found) == bool(lacks)
    assert lacks in found


def test_what_a_run_could_not_record_is_no_zero(builder, new_replay, new_builder):
    for n in range(N):
        builder.call("rename", n * MS, 1000)
    replay = new_replay("out", builder.write(), N)
    for round_ in range(3):
        for name in ("ext4", "xfs"):
            of_run = new_builder("unused")
            of_run.path = replay.run(name, [MS] * N, round_) / "trace"
            of_run.call("rename", 0, MS)
            missing = {"on_rq_complete": "no such tracepoint"}
            of_run.write(programs={"attached": [], "missing": missing, "unloaded": []})
    path = replay.write()
    for metric, decision in (("flushes", "undecided"), ("commits", "passes")):
        _, decisions = decided(path, f"{metric} > +10 %")
        assert [one["decision"] for one in decisions] == [decision]
