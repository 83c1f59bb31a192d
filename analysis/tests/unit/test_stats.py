"""Intervals and verdict words, against tables and simulation."""

import math

import numpy as np
import pytest

from spoolscope.analysis.stats import (
    Estimate,
    contradict,
    kendall_tau,
    paired,
    rounds_wanted,
    t_coverage,
    t_quantile,
    within_run,
    word,
)

# Two-sided 95 % points of Student's t, from printed tables.
TABLE = {1: 12.706, 2: 4.303, 3: 3.182, 4: 2.776, 9: 2.262, 10: 2.228, 19: 2.093, 30: 2.042}


@pytest.mark.parametrize(("df", "t"), TABLE.items())
def test_t_quantiles(df, t):
    assert t_quantile(df) == pytest.approx(t, abs=6e-4)
    assert t_coverage(t_quantile(df, 0.5), df) == pytest.approx(0.5)


def test_paired_interval_by_hand():
    found = paired([90, 80, 85], [100, 100, 100])
    logs = np.log([0.9, 0.8, 0.85])
    half = 4.3027 * logs.std(ddof=1) / math.sqrt(3)
    assert found.ratio == pytest.approx(math.exp(logs.mean()))
    assert found.low == pytest.approx(math.exp(logs.mean() - half), rel=1e-4)
    assert (found.n, found.n_lower, found.method) == (3, 3, "paired-t")


def test_paired_interval_covers_the_truth_as_often_as_it_says():
    rng = np.random.default_rng(1)
    hits = 0
    for _ in range(600):
        drift = rng.normal(0, 0.3, 5)  # shared by a round: pairing removes it
        a = np.exp(drift + rng.normal(math.log(1.1), 0.05, 5))
        b = np.exp(drift + rng.normal(0, 0.05, 5))
        found = paired(list(a), list(b))
        hits += found.low <= 1.1 <= found.high
    assert 0.92 <= hits / 600 <= 0.98


def test_few_rounds_are_only_indicative():
    assert word(paired([50], [100])) == "indicative"
    assert word(paired([50, 50.1], [100, 100])) == "indicative"
    assert paired([50], [100]).low is None


@pytest.mark.parametrize(
    ("low", "high", "expected"),
    [
        (0.70, 0.90, "faster"),
        (0.90, 0.97, "inconclusive"),
        (0.97, 1.03, "equivalent"),
        (1.06, 1.20, "slower"),
        (1.01, 1.20, "inconclusive"),
        (0.90, 1.20, "inconclusive"),
    ],
)
def test_words(low, high, expected):
    estimate = Estimate(math.sqrt(low * high), low, high, 5, 3, "paired-t")
    assert word(estimate) == expected
    assert word(estimate, faithful=False) == "inconclusive"


def test_within_run_interval_needs_blocks_and_brackets_the_ratio():
    rng = np.random.default_rng(2)
    reference = rng.gamma(2, 1e9, 60)
    candidate = 0.7 * reference * rng.normal(1, 0.2, 60)
    found = within_run(candidate, reference, seed=3)
    assert found.method == "within-run"
    assert found.low < found.ratio < found.high
    assert 0.6 < found.low < 0.7 < found.high < 0.8
    assert within_run(candidate[:9], reference[:9]).low is None
    assert word(found) == "indicative"


def test_noisier_runs_want_more_rounds():
    quiet = paired([95, 96, 94, 95], [100] * 4)
    noisy = paired([70, 130, 90, 100], [100] * 4)
    assert quiet.n < rounds_wanted(quiet) < rounds_wanted(noisy) <= 100
    assert rounds_wanted(paired([1], [2])) == 10


@pytest.mark.parametrize(
    ("one", "other", "tau"),
    [
        ([1, 2, 3, 4], [10, 20, 30, 40], 1.0),
        ([1, 2, 3, 4], [4, 3, 2, 1], -1.0),
        ([1, 2, 3, 4], [1, 3, 2, 4], 4 / 6),  # one of six pairs the other way round
        ([1, 2, 2], [1, 2, 3], 2 / math.sqrt(2 * 3)),  # tau-b: one pair is equal in the first
        ([1, 1], [1, 2], math.nan),
        ([1], [1], math.nan),
    ],
)
def test_tau_is_that_of_the_textbook(one, other, tau):
    assert kendall_tau(one, other) == pytest.approx(tau, nan_ok=True)


@pytest.mark.parametrize(
    ("one", "other", "told"),
    [
        (0.5, 1.5, True),
        (0.5, 0.9, False),
        (0.97, 1.02, False),
        (0.97, 1.2, True),
        (0.5, math.nan, False),
    ],
)
def test_ratios_contradict_if_one_counts(one, other, told):
    estimates = (Estimate(ratio, None, None, 1, 0, "none") for ratio in (one, other))
    assert contradict(*estimates) == told
