"""Effect of lateness by the machine on a verdict: none, decisive, or unknown."""

import pytest

from spoolscope.analysis.compare import compare
from spoolscope.analysis.demands.language import parse_demand
from spoolscope.analysis.demands.of_replays import decide_replays
from spoolscope.traces.results_certificate import (
    Calls,
    Certificate,
    InFlight,
    Judged,
    Lateness,
    LatePart,
    Makespan,
)
from spoolscope.traces.typed_json import encode

MS = 1_000_000
N = 2000
LATE = "lateness_by_machine_p99_ns"


@pytest.fixture
def trace(builder):
    for call in range(N):
        builder.call("openat", call * MS, oncpu_ns=MS // 2)
    return builder.write()


def certificate(*missed: str) -> dict:
    none = {"p50_ns": 0, "p90_ns": 0, "max_ns": 5 * MS}
    machine = LatePart(ns=N, share=1.0, p99_ns=5 * MS, **none)
    made = dict.fromkeys(("recorded", "executed", "same"), N)
    rest = ("diverged", "skipped", "never_reached", "never_returned", "of_unknown_threads",
            "left_out_on_purpose", "reconstructed")  # fmt: skip
    whole = Certificate(
        verdict="unfaithful" if missed else "faithful",
        reasons=[f"{name} was missed" for name in missed],
        pace="original", loop="open", realtime=False, same_filesystem=True,
        calls=Calls(**made, **dict.fromkeys(rest, 0)),
        goals=[Judged(name=name, value=1.0, limit=0.0, met=False) for name in missed],
        lateness=Lateness(calls=N, over_1ms=1, over_1ms_by_machine=1, p99_ns=5 * MS, **none,
                          parts={"machine": machine}, drift_ppm=0.0),
        makespan=Makespan(recorded_ns=MS, replayed_ns=MS, error=0.0),
        in_flight=InFlight(recorded_mean=1.0, replayed_mean=1.0, recorded_max=1, replayed_max=1,
                           emd=0.0, emd_by_mean=0.0, bin_ns=MS, recorded=[1.0], replayed=[1.0]),
    )  # fmt: skip
    return encode(whole)


def compared(new_replay, trace, slow, late, missed=(LATE,)):
    """Compare three rounds: calls take 1 ms on ext4; on xfs some are slow, some late."""
    out = new_replay("out", trace, N)
    for round_ in range(1, 4):
        given = {"late_ns": [0] * N, "certificate": certificate(*missed)}
        out.run("ext4", [MS + round_] * N, round_, late_by_machine_ns=[0] * N, **given)
        latency = [slow if call in late else MS // 2 for call in range(N)]
        by = [5 * MS if call in late else 0 for call in range(N)]
        out.run("xfs", latency, round_, late_by_machine_ns=by, **given)
    return compare([out.write()], "ext4")


def test_runs_are_faithful_for_a_verdict_that_stands_without_late_calls(trace, new_replay):
    found = compared(new_replay, trace, slow=MS // 2, late=range(0, N, 20))
    (pair,) = found.pairs
    assert (pair.word, pair.lateness.word, pair.lateness.holds) == ("faster", "faster", True)
    assert pair.lateness.late_share == pytest.approx(0.05)
    assert pair.lateness.without.ratio == pytest.approx(0.5, abs=1e-3)
    assert found.verdict.headline.startswith("xfs is faster than ext4")
    assert "Faithful for this question: without the 5.0 % of calls" in found.verdict.sure


def test_a_verdict_that_late_calls_made_is_none(trace, new_replay):
    """Check xfs whose late calls take 31 ms; without these it takes half as long as ext4."""
    found = compared(new_replay, trace, slow=31 * MS, late=range(0, N, 20))
    (pair,) = found.pairs
    assert (pair.word, pair.lateness.word, pair.lateness.holds) == ("slower", "faster", False)
    assert found.verdict.headline.startswith("Not faithful: 3 of 3 runs on ")
    assert "Lateness decides: without the 5.0 %" in found.verdict.sure
    (decision,) = decide_replays(found, parse_demand("time > +10 %"))
    assert (decision.decision, "made late" in decision.why) == ("undecided", True)


def test_a_verdict_that_turns_round_is_not_the_same_one(trace, new_replay):
    """Check one round: indicative with the late calls, and indicative of the opposite without."""
    out = new_replay("out", trace, N)
    given = {"late_ns": [0] * N, "certificate": certificate(LATE)}
    out.run("ext4", [MS] * N, 1, late_by_machine_ns=[0] * N, **given)
    late = range(0, N, 20)
    by = [5 * MS if call in late else 0 for call in range(N)]
    latency = [31 * MS if call in late else MS // 2 for call in range(N)]
    out.run("xfs", latency, 1, late_by_machine_ns=by, **given)
    (pair,) = compare([out.write()], "ext4").pairs
    assert (pair.primary.ratio > 1, pair.lateness.without.ratio < 1) == (True, True)
    assert not pair.lateness.holds


def test_too_many_late_calls_tell_nothing(trace, new_replay):
    found = compared(new_replay, trace, slow=MS // 2, late=range(N * 6 // 10))
    assert not found.pairs[0].lateness.holds
    assert found.verdict.headline.startswith("Not faithful")
    assert "60.0 % of the calls late: too many to tell" in found.verdict.sure


def test_only_lateness_is_excused(trace, new_replay):
    found = compared(new_replay, trace, MS // 2, range(10), missed=(LATE, "other_result"))
    assert found.pairs[0].lateness.holds
    assert found.verdict.headline.startswith("Not faithful")
