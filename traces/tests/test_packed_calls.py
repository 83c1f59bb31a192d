"""Calls of a capture keep all their members, although most of these stay packed."""

import random

import numpy as np
import pyarrow as pa
import pytest

from spoolscope.traces.capture import Capture
from spoolscope.traces.join import join
from spoolscope.traces.packed_calls import CALL, FOLLOWED, LEFT_PACKED, Chunk, PackedCalls

LENGTHS = 7, 1, 300, 40
KEPT = "start_ns", "end_ns", "seq", "path", "path2"


@pytest.fixture(params=[0, 1], ids=["stored", "zstd"])
def whole(request):
    """Calls of random bytes, and a capture of them in chunks."""
    bits = np.random.default_rng(2026).integers(0, 256, sum(LENGTHS) * CALL.itemsize, np.uint8)
    calls = bits.view(CALL)
    chunks, at = [], 0
    for n in LENGTHS:
        raw = calls[at : at + n].tobytes()
        stored = pa.compress(raw, codec="zstd", asbytes=True) if request.param else raw
        chunks.append(Chunk(n, request.param, len(raw), memoryview(stored)))
        at += n
    capture = Capture(0, 0, closed=True, strings=[b""], packed=PackedCalls(chunks))
    capture.records = {"syscall": calls[list(FOLLOWED.names)].astype(FOLLOWED), "tree": calls[:0]}
    return calls, capture


def test_calls_are_unpacked_in_any_order(whole):
    calls, capture = whole
    chance = random.Random(2026)
    for length in (0, 1, 5, len(calls)):
        rows = np.array(chance.sample(range(len(calls)), length), np.int64)
        assert capture.whole_calls()(rows).tobytes() == calls[rows].tobytes()


def test_changed_numbers_count_even_if_other_members_were_dropped(whole):
    calls, capture = whole
    present = capture.records["syscall"]
    for name in ("seq", "path", "path2"):
        present[name] = np.arange(len(calls))
    of_now = capture.whole_calls()
    capture.keep_of_calls(KEPT)
    assert capture.records["syscall"].dtype.names == KEPT
    found = of_now(np.arange(len(calls)))
    for name in CALL.names:
        changed = np.arange(len(calls)) if name in ("seq", "path", "path2") else calls[name]
        assert (found[name] == changed).all(), name
        if name in KEPT:
            assert (capture.records["syscall"][name] == changed).all(), name


def test_calls_that_were_never_packed_are_the_same(whole):
    calls, capture = whole
    capture.packed, capture.records["syscall"] = None, calls
    of_now = capture.whole_calls()
    capture.keep_of_calls(KEPT)
    rows = np.array([3, 300, 2])
    assert of_now(rows).tobytes() == calls[rows].tobytes()
    assert (capture.records["syscall"]["seq"] == calls["seq"]).all()


def test_the_calls_of_joined_segments_follow_one_another(whole):
    calls, capture = whole
    members = {"task": ("event", "path"), "switch": ("in_ns",), "tree": ("parent",)}
    for kind, names in {**members, "xattr": ("tree",)}.items():
        capture.records[kind] = np.zeros(0, [(name, np.uint64) for name in names])
    for name in ("path", "path2"):
        capture.records["syscall"][name] = 0
    both = join([capture, capture])
    last = both.whole_calls()(np.arange(len(calls), 2 * len(calls)))
    for name in LEFT_PACKED:
        assert (last[name] == calls[name]).all(), name
