"""Judging an explanation: right, wrong and missing answers must be distinguished."""

import math

import pytest

from spoolscope.lab.accuracy import Call, common, joined, overlap_ns, score

TRUTH = [(100, 200), (300, 400)]


def call(begin, end, *pieces):
    made = Call(1, "fsync", begin, end)
    for a, b, cause in pieces:
        made.causes[cause] += b - a
        made.pieces.append((a, b, cause))
    made.causes["cpu"] = end - begin - sum(made.causes.values())
    return made


def test_stretches_are_joined_and_measured():
    assert joined([(5, 9), (1, 3), (8, 12), (3, 4)]) == [(1, 4), (5, 12)]
    assert overlap_ns(150, 350, TRUTH) == 100
    assert overlap_ns(0, 1000, TRUTH) == 200
    assert overlap_ns(200, 300, TRUTH) == 0
    assert common([(0, 150), (160, 320)], TRUTH) == [(100, 150), (160, 200), (300, 320)]


def test_common_is_what_a_plain_search_finds():
    one = [(n, n + 7) for n in range(0, 200, 13)]
    other = [(n, n + 5) for n in range(3, 200, 11)]
    both = {t for a, b in one for t in range(a, b)} & {t for a, b in other for t in range(a, b)}
    found = common(one, other)
    assert {t for a, b in found for t in range(a, b)} == both
    for begin, end in ((0, 50), (17, 18), (60, 200)):
        expected = len({t for a, b in other for t in range(a, b)} & set(range(begin, end)))
        assert overlap_ns(begin, end, other) == expected


def test_the_right_cause_at_the_right_time_is_recovered():
    found = score([call(95, 205, (100, 200, "flush"))], TRUTH, {"flush"})
    assert (found.n_judged, found.n_right, found.wrong) == (1, 1, {})
    assert (found.recovered, found.beyond) == (1.0, 0.0)


def test_another_cause_is_wrong_and_recovers_nothing():
    found = score([call(95, 205, (100, 200, "writeback"))], TRUTH, {"flush"})
    assert (found.n_judged, found.n_right, found.wrong) == (1, 0, {"writeback": 1})
    assert found.recovered == 0


def test_half_a_wait_is_half_recovered_and_time_outside_is_beyond():
    found = score([call(90, 210, (90, 150, "flush"), (150, 200, "writeback"))], TRUTH, {"flush"})
    assert found.recovered == pytest.approx(0.5)
    assert found.beyond == pytest.approx(0.1)
    assert found.n_right == 1


def test_the_typical_call_is_the_median_one():
    waits = ((100, 200), (100, 120), (100, 190))
    found = score([call(95, 205, (*wait, "flush")) for wait in waits], TRUTH, {"flush"})
    assert found.typical == pytest.approx(0.9)
    assert math.isnan(score([], TRUTH, {"flush"}).typical)


def test_calls_that_the_fault_did_not_hold_are_not_judged():
    found = score([call(500, 900, (500, 900, "runq"))], TRUTH, {"flush"})
    assert found.n_judged == 0
    assert math.isnan(found.right)
    assert math.isnan(found.recovered)


def test_a_call_shorter_than_the_delay_only_ran_meanwhile():
    brief = call(120, 130)
    assert score([brief], TRUTH, {"flush"}).n_judged == 1
    assert score([brief], TRUTH, {"flush"}, least_ns=50).n_judged == 0


def test_as_many_as_a_hundredth_of_the_calls_are_judged_of_those_held():
    slower = [call(1000 + n, 9001 + n) for n in range(98)]
    quick = [call(100, 101, (100, 101, "writeback"))] * 100
    slow = [call(100, 200, (100, 200, "flush")), call(300, 390, (300, 390, "writeback"))]
    found = score([*slower, *quick, *slow], TRUTH, {"flush"})
    assert (found.n_calls, found.n_judged, found.n_right) == (200, 2, 1)


def test_a_culprit_counts_directly_or_behind_who_waited_for_it():
    direct, behind, other = (call(100, 200, (100, 200, "dir_lock")) for _ in range(3))
    direct.blamed[7] = 90
    behind.blamed[8] = 90
    behind.behind_pids[7] = 80
    other.blamed[8] = 90
    for one, expected in ((direct, 1), (behind, 1), (other, 0)):
        assert score([one], TRUTH, {"dir_lock"}, {7}).n_named == expected
    assert score([direct], TRUTH, {"dir_lock"}).n_named is None


def test_an_instant_is_right_by_what_the_culprit_waited_for_then_not_at_another_time():
    one = call(100, 200, (100, 200, "dir_lock"))
    one.behind.append((100, 160, "log_space"))
    found = score([one], TRUTH, {"log_space"})
    assert (found.n_right, found.n_direct, found.wrong) == (1, 0, {})
    assert (found.recovered, found.directly, found.beyond) == (0.6, 0, 0)
    one.behind = [(100, 140, "log_space"), (140, 200, "inode_io"), (120, 130, "log_space")]
    found = score([one], TRUTH, {"log_space"})
    assert (found.n_right, found.wrong, found.recovered) == (0, {"dir_lock": 1}, 0.4)


def test_what_others_wait_for_beside_the_fault_is_beyond_it():
    one = call(50, 210, (50, 210, "dir_lock"))
    one.behind.append((60, 150, "log_space"))
    found = score([one], TRUTH, {"log_space"})
    assert (found.recovered, found.beyond) == (0.5, 0.4)


def test_the_same_instant_counts_once():
    one = call(100, 200, (100, 200, "journal_commit"))
    one.behind.append((100, 200, "flush"))
    found = score([one], TRUTH, {"journal_commit", "flush"})
    assert (found.recovered, found.directly, found.beyond) == (1, 1, 0)


@pytest.mark.parametrize("cause", ["steal", "runq", "preempt"])
def test_a_call_that_had_no_cpu_is_counted_and_not_judged(cause):
    robbed, held = call(100, 160, (100, 110, "flush")), call(300, 390, (300, 380, "flush"))
    robbed.causes[cause], robbed.causes["cpu"] = 45, 5
    held.causes[cause], held.causes["cpu"] = 4, 6
    found = score([robbed, held] * 100, TRUTH, {"flush"})
    assert (found.n_robbed, found.n_judged, found.n_right) == (0, 2, 2)
    found = score([robbed], TRUTH, {"flush"})
    assert (found.n_robbed, found.n_judged, found.injected_ns) == (1, 0, 0)
    # Unless that is the injected fault.
    assert score([robbed], TRUTH, {cause}).n_judged == 1
