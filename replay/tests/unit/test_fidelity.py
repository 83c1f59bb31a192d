"""The certificate on runs made by hand, whose lateness, drift, makespan and overlap are known."""

from types import SimpleNamespace

import numpy as np
import pytest

from spoolscope.replay import concurrency, lateness, on_disk
from spoolscope.replay.fidelity import Conditions, fidelity
from spoolscope.replay.ops import FORK
from spoolscope.replay.outcomes import BAD_FD, DIVERGED, PENDING, SAME, SKIPPED, Plan
from spoolscope.replay.pace import parse_pace
from spoolscope.traces.errors import SpoolscopeError
from spoolscope.traces.flat import DTYPES, NO_CALL_ROW, NONE
from spoolscope.traces.results_certificate import Makespan, Stall

US, MS, S = 1_000, 1_000_000, 1_000_000_000
ORIGINAL = parse_pace("original")
CLEAN = {"tasks_crashed": 0, "orders_given_up": 0, "cpu_idle": 0.5, "cpu_steal": 0.0}


def ops(*rows: tuple[int, int, int]) -> np.ndarray:
    """Return calls of (thread, start, end), ns."""
    made = np.zeros(len(rows), DTYPES["plan_op"])
    made["thread"], made["start_ns"], made["end_ns"] = np.array(rows, np.int64).T
    made["call"] = np.arange(len(rows))
    return made


def results(*rows: tuple[int, int, int]) -> np.ndarray:
    """Return outcomes of (ready, issue, end), ns, all with the recorded result."""
    made = np.zeros(len(rows), DTYPES["outcome"])
    made["ready_ns"], made["issue_ns"], made["end_ns"] = np.array(rows, np.int64).T
    made["verdict"] = SAME
    return made


def judged(calls, outcomes, pace=ORIGINAL, *, same=True, mismatched=0, **summary):
    planned = SimpleNamespace(
        syscalls=len(calls) + 3,
        before_start=7,
        in_flight=0,
        strangers=0,
        elsewhere=0,
        left_out={"fsync": 3},
    )
    given = Conditions(pace, CLEAN | summary, mismatched, same)
    return fidelity(
        Plan(calls, np.zeros(0, DTYPES["plan_entry"]), [], np.zeros(1, DTYPES["plan_thread"])),
        outcomes,
        planned,
        given,
    )


def steady(n: int, late_ns: object = 0) -> tuple[np.ndarray, np.ndarray]:
    """Return n calls of 0.1 ms, one per ms, of one thread, and their outcomes, issued late."""
    at = np.arange(n) * MS
    issue = at + np.asarray(late_ns, np.int64)
    calls = ops(*((0, t, t + MS // 10) for t in at.tolist()))
    return calls, results(*((t, i, i + MS // 10) for t, i in zip(at, issue, strict=True)))


def test_a_perfect_run_is_faithful():
    certificate = judged(*steady(1000)).certificate
    assert (certificate.verdict, certificate.reasons) == ("faithful", [])
    assert certificate.lateness.max_ns == 0
    assert certificate.lateness.drift_ppm == 0
    assert certificate.makespan.error == 0
    assert certificate.in_flight.emd == 0
    assert all(goal.met for goal in certificate.goals)


def test_lateness_is_told_by_quantile_and_call():
    late = np.zeros(1000, np.int64)
    late[-20:] = 3 * MS
    late[-1] = 5 * MS
    # The calls are too far apart to disturb one another here.
    calls, outcomes = steady(1000, 0)
    calls["start_ns"] *= 10
    calls["end_ns"] = calls["start_ns"] + MS // 10
    outcomes["ready_ns"] = calls["start_ns"]
    outcomes["issue_ns"] = calls["start_ns"] + late
    outcomes["end_ns"] = outcomes["issue_ns"] + MS // 10
    found = judged(calls, outcomes)
    told = found.certificate.lateness
    assert (told.p50_ns, told.p90_ns, told.p99_ns) == (0, 0, 3 * MS)
    assert (told.max_ns, told.over_1ms, told.over_1ms_by_machine) == (5 * MS, 20, 20)
    assert (found.lateness_p50_ns, found.lateness_p99_ns) == (0, 3 * MS)
    assert told.longest_stall == Stall(ns=5 * MS, due_ns=9990 * MS)
    (reason,) = found.certificate.reasons
    assert "1 % of the calls over 3 ms late" in reason
    assert "50 % idle" in reason


@pytest.mark.parametrize(
    ("idle", "realtime", "told"), [(0.5, False, True), (0.5, True, False), (0.4, False, False)]
)
def test_a_remedy_is_named_where_cpus_were_free(idle, realtime, told):
    calls, outcomes = steady(1000, np.where(np.arange(1000) < 980, 0, MS))
    pace = parse_pace("original", realtime=realtime)
    certificate = judged(calls, outcomes, pace=pace, cpu_idle=idle).certificate
    (reason,) = [said for said in certificate.reasons if "the machine made" in said]
    assert ("--realtime" in reason, certificate.realtime) == (told, realtime)


def test_lateness_is_divided_exactly_among_its_causes():
    calls = ops((0, 0, 10), (0, 10, 20), (1, 12, 14), (0, 30, 40), (0, 90, 99))
    outcomes = results(
        (0, 4, 24),  # 4 late by the machine, then 10 longer than recorded
        (10, 25, 35),  # busy until 24, then 1 by the machine
        (35, 37, 39),  # waited for the other thread until 35, then 2
        (30, 36, 46),  # busy until 35, then 1
        (90, 90, 99),  # in time again
    )
    late = lateness.lateness(calls, outcomes, np.ones(5, np.bool_), ORIGINAL)
    assert late.total(slice(None)).tolist() == [4, 15, 25, 6, 0]
    assert late.dependencies.tolist() == [0, 0, 23, 0, 0]
    # The lateness before a call is divided as 4 : 10; for the last late call, as 5 : 10.
    assert late.machine.tolist() == [4, 14 * 4 // 14 + 1, 2, 5 * 5 // 15 + 1, 0]
    assert late.idle.tolist() == [4, 1, 2, 1, 0]
    assert late.slower_calls.tolist() == [0, 10, 0, 4, 0]
    assert late.waited.tolist() == [False, False, True, False, False]
    assert late.slept.tolist() == [False, False, False, False, True]


def test_one_stall_makes_all_late_calls_after_it_the_machines():
    n = 300
    stalled_until = 200 * MS
    at = np.arange(n) * MS
    issue = np.maximum(at, stalled_until + np.arange(n) * MS // 10)
    calls = ops(*((0, t, t + MS // 10) for t in at.tolist()))
    outcomes = results(*((t, i, i + MS // 10) for t, i in zip(at, issue, strict=True)))
    told = judged(calls, outcomes).certificate.lateness
    assert told.over_1ms == told.over_1ms_by_machine > 200
    assert told.parts["machine"].share == 1
    assert told.longest_stall == Stall(ns=200 * MS, due_ns=0)


def test_a_child_is_due_some_time_after_its_fork_in_a_closed_loop():
    calls = ops((0, 0, 10), (0, 20, 30), (1, 50, 60), (1, 75, 80))
    calls["op"][1], calls["arg"][1] = FORK, 1
    calls["arg"][0] = calls["arg"][2] = calls["arg"][3] = NONE
    outcomes = results((0, 0, 100), (110, 111, 120), (141, 143, 160), (175, 175, 180))
    late = lateness.lateness(calls, outcomes, np.ones(4, np.bool_), parse_pace("think"))
    # Pauses of 10 after the first call, of 30 since the fork, of 15 after the child's first.
    assert late.due.tolist() == [0, 110, 141, 175]
    assert late.machine.tolist() == [0, 1, 2, 0]
    assert late.slower_calls.tolist() == [0, 0, 0, 0]


@pytest.mark.parametrize(("drift", "word"), [(0.0005, "faithful"), (0.004, "unfaithful")])
def test_drift_is_the_slope_of_lateness(drift, word):
    calls, outcomes = steady(5000, (np.arange(5000) * MS * drift).astype(np.int64))
    # The machine was in time: calls of another thread had to end first.
    outcomes["ready_ns"] = outcomes["issue_ns"]
    certificate = judged(calls, outcomes).certificate
    assert certificate.lateness.drift_ppm == pytest.approx(drift * 1e6, rel=0.01)
    assert certificate.verdict == word
    assert ("fell behind by 0.4 %" in " ".join(certificate.reasons)) == (word == "unfaithful")


def test_a_replay_that_catches_up_does_not_fall_behind():
    calls, outcomes = steady(5000, (np.arange(5000)[::-1] * MS * 0.004).astype(np.int64))
    outcomes["ready_ns"] = outcomes["issue_ns"]
    reasons = " ".join(judged(calls, outcomes).certificate.reasons)
    assert "caught up by 0.4 %" in reasons


def test_a_single_stall_is_no_drift():
    late = np.zeros(5000, np.int64)
    late[4000:4050] = 300 * MS
    calls, outcomes = steady(5000, late)
    assert judged(calls, outcomes).certificate.lateness.drift_ppm == 0


def test_makespan_and_overlap_count_on_the_same_filesystem_only():
    # Two calls of 10 ms side by side become three times as long, one after the other.
    calls = ops((0, 0, 10 * MS), (1, 0, 10 * MS), (0, 20 * MS, 30 * MS))
    outcomes = results((0, 0, 10 * MS), (10 * MS, 10 * MS, 20 * MS), (20 * MS, 20 * MS, 36 * MS))
    here = judged(calls, outcomes).certificate
    assert here.makespan == Makespan(recorded_ns=30 * MS, replayed_ns=36 * MS, error=0.2)
    assert here.in_flight.recorded_mean == pytest.approx(1)
    assert here.in_flight.replayed_mean == pytest.approx(1)
    # Recorded: none, one and two calls for a third each. Replayed: always one.
    assert here.in_flight.emd == pytest.approx(2 / 3)
    assert here.in_flight.emd_by_mean == pytest.approx(2 / 3)
    assert here.verdict == "unfaithful"
    assert [r for r in here.reasons if "20 % longer" in r]
    assert [r for r in here.reasons if "in flight differs by 66.7 %" in r]
    there = judged(calls, outcomes, same=False).certificate
    assert {g.name: g.met for g in there.goals}["makespan_error"] is None
    assert not [r for r in there.reasons if "longer" in r or "in flight" in r]


@pytest.mark.parametrize("pace", ["original", "think", "afap"])
def test_a_long_run_is_judged_piece_by_piece(pace, monkeypatch):
    """With pieces of any size the certificate is that of the whole, forks and waits included."""
    generator = np.random.default_rng(11)
    n = 500
    start = np.sort(generator.integers(0, 50 * MS, n))
    thread = generator.integers(0, 4, n)
    calls = ops(*zip(thread, start, start + generator.integers(0, MS, n), strict=True))
    calls["op"][0], calls["thread"][0], calls["arg"][0] = FORK, 0, 3
    issue = start + generator.integers(0, MS, n) * generator.integers(0, 2, n)
    ready = start + generator.integers(0, MS, n) // 2
    outcomes = results(*zip(ready, issue, issue + generator.integers(0, MS, n), strict=True))
    outcomes["verdict"] = generator.choice([SAME, DIVERGED, SKIPPED], n, p=[0.9, 0.05, 0.05])
    whole = judged(calls, outcomes, parse_pace(pace))
    monkeypatch.setattr(on_disk, "CHUNK", 7)
    assert judged(calls, outcomes, parse_pace(pace)) == whole
    if pace != "afap":
        assert whole.certificate.lateness.parts["machine"].ns > 0


def test_distributions_of_calls_in_flight():
    start, end = np.array([0, 0, 20]), np.array([10, 10, 30])
    assert concurrency.distribution(start, end).tolist() == pytest.approx([1 / 3, 1 / 3, 1 / 3])
    assert concurrency.over_time(start, end, 5, 6) == [2, 2, 0, 0, 1, 1]
    assert concurrency.earth_movers_distance(np.array([1.0]), np.array([0, 0, 0, 1.0])) == 3
    empty = np.zeros(0, np.int64)
    assert len(concurrency.distribution(empty, empty)) == 0
    assert concurrency.summary((empty, empty), (empty, empty)).emd_by_mean is None


def test_in_flight_agrees_with_counting_moment_by_moment():
    generator = np.random.default_rng(7)
    start = generator.integers(0, 500, 80)
    end = start + generator.integers(0, 60, 80)
    moments = np.arange(start.min(), end.max())
    levels = ((start[:, None] <= moments) & (moments < end[:, None])).sum(axis=0)
    wanted = np.bincount(levels) / len(moments)
    assert concurrency.distribution(start, end).tolist() == pytest.approx(wanted.tolist())
    assert concurrency.mean(wanted) == pytest.approx((end - start).sum() / len(moments))


def test_results_count_and_are_named():
    calls, outcomes = steady(1000)
    outcomes["verdict"][:5] = DIVERGED
    outcomes["verdict"][10:14], outcomes["reason"][10:14] = SKIPPED, 6
    outcomes["verdict"][990:] = PENDING
    calls["call"][3] = NO_CALL_ROW
    found = judged(calls, outcomes, mismatched=2, tasks_crashed=1)
    counts = found.certificate.calls
    assert (counts.same, counts.diverged, counts.never_reached) == (981, 4, 10)
    assert (counts.skipped, counts.skipped_for) == (4, {"unsupported": 4})
    assert (counts.executed, counts.reconstructed) == (985, 1)
    assert (counts.left_out_on_purpose, counts.before_start) == (3, 7)
    assert (found.executed, found.divergent, found.skipped) == (985, 4, 14)
    said = "; ".join(found.certificate.reasons)
    for part in ("0.4 % of the calls had another", "1.4 % of the calls to be made were not",
                 "2 names of the final tree", "1 tasks died"):  # fmt: skip
        assert part in said


def test_as_fast_as_possible_keeps_no_time():
    found = judged(*steady(100, 5 * S), pace=parse_pace("afap"))
    assert found.certificate.verdict == "untimed"
    assert found.certificate.lateness is None
    assert found.certificate.makespan.error is None
    assert (found.lateness_p99_ns, found.certificate.loop) == (None, "closed")


def test_a_scaled_run_is_held_against_scaled_times():
    calls, outcomes = steady(1000)
    outcomes["issue_ns"] //= 2
    outcomes["ready_ns"] //= 2
    outcomes["end_ns"] = outcomes["issue_ns"] + MS // 10
    certificate = judged(calls, outcomes, pace=parse_pace("scaled=2")).certificate
    assert certificate.lateness.max_ns == 0
    assert certificate.verdict == "faithful"
    assert {g.name: g.met for g in certificate.goals}["in_flight_emd_by_mean"] is None


def test_paces_name_their_loop():
    loops = {text: parse_pace(text).loop for text in ("original", "scaled=0.5", "think", "afap")}
    assert loops == {"original": "open", "scaled=0.5": "open", "think": "closed", "afap": "closed"}
    assert parse_pace("think").estimate_s(2 * S) == 2
    assert parse_pace("scaled=4").estimate_s(2 * S) == 0.5
    assert parse_pace("think", realtime=True).words() == ["--pace", "think", "--realtime"]
    with pytest.raises(SpoolscopeError, match="afap has no times"):
        parse_pace("afap", realtime=True)
    for text in ("fast", "scaled=0", "scaled=x", "scaled=inf", "scaled"):
        with pytest.raises(SpoolscopeError, match="unknown pace"):
            parse_pace(text)


def forking(
    rows: list[tuple[int, int, int]], made: list[tuple[int, int, int]]
) -> lateness.Lateness:
    """Return the lateness of these calls, of which the first forks thread 1."""
    calls = ops(*rows)
    calls["op"][0], calls["arg"][0] = FORK, 1
    return lateness.lateness(calls, results(*made), np.ones(len(rows), np.bool_), ORIGINAL)


def test_what_a_thread_is_late_by_when_it_begins_is_divided_as_its_fork():
    rows = [(0, 100, 110), (1, 150, 160), (1, 170, 180)]
    # The fork waited for another thread until 1,090, then 10 more for a CPU.
    late = forking(rows, [(1090, 1100, 1110), (150, 1100, 1110), (170, 1110, 1120)])
    assert late.machine.tolist() == [10, 950 * 10 // 1000, 940 * 10 // 1000]
    assert late.dependencies.tolist() == [990, 950 * 990 // 1000, 940 * 990 // 1000]
    assert late.total(slice(None)).tolist() == [1000, 950, 940]


@pytest.mark.parametrize("generations", [1, 9])
def test_what_a_thread_is_late_by_goes_over_generations_and_pieces(monkeypatch, generations):
    """Each thread forks the next one; all are as late as the first, because of the machine."""
    monkeypatch.setattr(on_disk, "CHUNK", generations + 2)
    rows = [(n, 100 + n, 100 + n) for n in range(generations)]
    rows += [(generations, 150, 160), (0, 150, 160), (0, 170, 180)]
    calls = ops(*rows)
    calls["op"][:generations], calls["arg"][:generations] = FORK, np.arange(generations) + 1
    made = [(start, start + 1000, end + 1000) for _, start, end in rows]
    late = lateness.lateness(calls, results(*made), np.ones(len(rows), np.bool_), ORIGINAL)
    assert late.machine.tolist() == [1000] * len(rows)


def test_calls_left_out_on_purpose_and_lost_descriptors_are_shares_of_all_calls():
    calls, outcomes = steady(10)
    outcomes["verdict"][:9], outcomes["reason"][:9] = DIVERGED, BAD_FD
    goals = {goal.name: goal.value for goal in judged(calls, outcomes).certificate.goals}
    assert goals["other_result"] == goals["not_executed"] == pytest.approx(0.9)
    # Three more were left out on purpose.
    assert judged(*steady(10)).certificate.verdict == "faithful"
