"""The log-linear buckets of roll-ups: 32 to each doubling, so at most 1/32 wide.

The counts of buckets are integers: those of many minutes and hosts add up without a loss, and a
quantile that is read from them is wrong by at most the width of one bucket.
"""

import numpy as np
import numpy.typing as npt

SUB_BITS = 5
"""Binary digits of a value, below its highest one, that a bucket keeps."""

_SUBS = 1 << SUB_BITS


def bucket_of(ns: npt.NDArray[np.int64]) -> npt.NDArray[np.int16]:
    """Return the buckets of times in ns (not negative); those below 64 ns have one each."""
    _, length = np.frexp(ns.astype(np.longdouble))
    shift = np.maximum(length.astype(np.int64) - (SUB_BITS + 1), 0)
    return ((shift << SUB_BITS) + (ns >> shift)).astype(np.int16)


def lower_ns(bucket: npt.NDArray[np.int16]) -> npt.NDArray[np.int64]:
    """Return the smallest time in ns that falls into each bucket."""
    wide = bucket.astype(np.int64)
    shift = np.maximum((wide >> SUB_BITS) - 1, 0)
    lower: npt.NDArray[np.int64] = (wide - (shift << SUB_BITS)) << shift
    return lower


def width_ns(bucket: npt.NDArray[np.int16]) -> npt.NDArray[np.int64]:
    """Return the width in ns of each bucket: the next one begins at its end."""
    shift = np.maximum((bucket.astype(np.int64) >> SUB_BITS) - 1, 0)
    width: npt.NDArray[np.int64] = np.left_shift(np.int64(1), shift)
    return width
