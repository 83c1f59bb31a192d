"""Arrays as long as a trace: in files without a name, so that memory does not grow with them."""

import os
import tempfile
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

# Elements processed at once.
CHUNK = 1 << 17


def array(n: int, dtype: Any, place: Path | None) -> npt.NDArray[Any]:
    """Return n zeros, mapped from a file in a directory; None is that for temporary files.

    Raises:
        OSError: there is no room for it.
    """
    if n == 0:
        return np.zeros(0, dtype)
    with tempfile.TemporaryFile(dir=place) as file:
        # Allocated now: on a full disk a store to the mapping would raise SIGBUS.
        os.posix_fallocate(file.fileno(), 0, n * np.dtype(dtype).itemsize)
        return np.memmap(file, dtype, "r+", shape=(n,))


def gathered(pieces: Iterable[npt.NDArray[Any]], dtype: Any, place: Path | None) -> Any:
    """Return arrays joined into one, which is mapped from a file without a name.

    Raises:
        OSError: there is no room for it.
    """
    with tempfile.TemporaryFile(dir=place) as file:
        for piece in pieces:
            file.write(np.ascontiguousarray(piece, dtype).data)
        n = file.tell() // np.dtype(dtype).itemsize
        file.flush()
        return np.memmap(file, dtype, "r+", shape=(n,)) if n else np.zeros(0, dtype)


def parts(n: int) -> Iterator[slice]:
    """Yield slices that make up n elements."""
    for start in range(0, n, CHUNK):
        yield slice(start, min(start + CHUNK, n))
