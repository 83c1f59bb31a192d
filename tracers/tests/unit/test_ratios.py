"""The statistics of the benchmark and its verdicts, on numbers computed by hand."""

import pytest
import targets
from ratios import coverage, spread


def result(low, median, high, coverage=0.96):
    return {"low": low, "median": median, "high": high, "coverage": coverage}


def test_the_interval_of_thirteen_rounds_leaves_two_out_at_either_end():
    # 1 - 2 * (1 + 13 + 78) / 2**13, the binomial sum by hand
    assert coverage(13, 2) == pytest.approx(1 - 2 * 92 / 8192)
    found = spread([float(n) for n in range(13)])
    assert (found.median, found.low, found.high) == (6, 2, 10)
    assert found.coverage >= 0.95 > coverage(13, 3)


@pytest.mark.parametrize("n", [1, 2, 5])
def test_of_few_rounds_the_whole_range_is_shown_with_its_true_coverage(n):
    found = spread([float(k) for k in range(n)])
    assert (found.low, found.high) == (0, n - 1)
    assert found.coverage == pytest.approx(1 - 2 / 2**n)


def test_a_verdict_needs_the_whole_interval_on_one_side_of_the_aim():
    assert targets.slowdown("", 10, result(1.01, 1.05, 1.099)).verdict == "reached"
    assert targets.slowdown("", 10, result(1.11, 1.15, 1.20)).verdict == "not reached"
    assert targets.slowdown("", 10, result(1.05, 1.09, 1.11)).verdict == "undecided"


def test_a_thirtieth_of_strace_is_undecided_while_the_intervals_allow_both():
    strace = result(7.0, 10.0, 16.0)  # adds 6 to 15 times: a thirtieth is 0.2 to 0.5
    assert targets.by_strace(result(1.05, 1.1, 1.19), strace).verdict == "reached"
    assert targets.by_strace(result(1.3, 1.3, 1.4), strace).verdict == "undecided"
    missed = targets.by_strace(result(1.6, 1.9, 2.0), strace)
    assert (missed.measured, missed.verdict) == ("1/10", "not reached")


def test_too_few_rounds_decide_nothing():
    assert targets.slowdown("", 10, result(1.0, 1.0, 1.0, coverage=0.5)).verdict == "undecided"


def test_a_firehose_that_the_machine_cannot_make_decides_nothing_unless_it_loses():
    hose = {
        "calls_per_s": 600_000, "wanted_calls_per_s": 1_000_000, "untraced_calls_per_s": 700_000,
        "lost": 0, "unaccounted": 0, "calls": 10, "seconds": 1.0,
    }  # fmt: skip
    (slow,) = targets.of_firehose(hose)
    assert slow.verdict == "undecided"
    (losing,) = targets.of_firehose(hose | {"unaccounted": 1})
    assert losing.verdict == "not reached"
    (full,) = targets.of_firehose(hose | {"calls_per_s": 1_000_100})
    assert full.verdict == "reached"


@pytest.mark.parametrize(("others", "expected"), [(0.4, "reached"), (0.6, "undecided")])
def test_a_window_among_too_many_other_calls_decides_nothing(others, expected):
    part = {
        "ns_per_call": {"system calls": 240.0}, "bpf_ns_per_op": 9e3, "median_op_ns": 1e6,
        "others_by_own_calls": others,
    }  # fmt: skip
    found = targets.of_kernel({"traced": {"delivery": part}, "rejected": {}})
    assert [verdict.verdict for verdict in found] == [expected, expected]
