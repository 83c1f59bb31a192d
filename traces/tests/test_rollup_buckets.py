"""Buckets of roll-ups: every time is in exactly one, none is wider than it may be."""

import numpy as np

from spoolscope.traces.rollups.buckets import SUB_BITS, bucket_of, lower_ns, width_ns


def _times() -> np.ndarray:
    edges = np.array([1 << bits for bits in range(62)], np.int64)
    random = np.random.default_rng(1).integers(0, 1 << 62, 10_000)
    return np.concatenate([np.arange(5_000), edges - 1, edges, edges + 1, random])


def test_a_time_lies_in_its_bucket() -> None:
    ns = _times()
    bucket = bucket_of(ns)
    assert (lower_ns(bucket) <= ns).all()
    assert (ns < lower_ns(bucket) + width_ns(bucket)).all()


def test_buckets_follow_one_another_without_a_gap() -> None:
    bucket = np.arange(0, int(bucket_of(np.array([1 << 61]))[0]), dtype=np.int16)
    assert (lower_ns(bucket[1:]) == lower_ns(bucket[:-1]) + width_ns(bucket[:-1])).all()
    assert (bucket_of(lower_ns(bucket)) == bucket).all()


def test_no_bucket_is_wider_than_a_32nd_of_its_times() -> None:
    bucket = bucket_of(_times())
    wide = bucket[width_ns(bucket) > 1]
    assert (width_ns(wide) << SUB_BITS <= lower_ns(wide)).all()
