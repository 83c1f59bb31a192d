"""The strings of a plan: names below the spool, symlink targets, attribute names."""

from collections.abc import Iterator, Sequence
from itertools import compress
from pathlib import Path

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from spoolscope.replay import on_disk
from spoolscope.replay.columns import are_several
from spoolscope.traces.errors import SpoolscopeError
from spoolscope.traces.flat import NONE
from spoolscope.traces.text import decoded
from spoolscope.traces.trace import RECORD_AGAIN, Trace

Int = npt.NDArray[np.int64]
Rows = npt.NDArray[np.void]
_COLUMNS = ("path_id", "path", "kind", "spool")
_DIGEST = np.dtype("S16")
_ROW = np.dtype([("path_id", "i8"), ("spool", "i2"), ("inside", "?"), ("digest", "u8", 2)])
# Numbers of names that are read at once, and that are compared at once.
_PIECE, _GROUP = 1 << 15, 1 << 18


class Strings:
    """Strings by path id; names outside the spool have none, so nothing can reach them.

    Several spools of one trace become directories ``spool0/``, ``spool1/`` of the target. A long
    trace has millions of names: they and their numbers lie in unlinked files.

    Args:
        trace: An opened trace.
        place: Directory for these files; None is that for temporary files.
    """

    def __init__(self, trace: Trace, place: Path | None = None) -> None:
        self._trace, self._place = trace, place
        self._several = are_several(trace)
        rows = on_disk.gathered(self._rows(), _ROW, place)
        first = _first_alike(rows, place)
        self._ends = on_disk.array(self._number(rows, first) + 1, np.int64, place)
        self._text = on_disk.gathered(self._texts(first), np.uint8, place)
        buffers = [None, pa.py_buffer(self._ends), pa.py_buffer(self._text)]
        self._names = pa.LargeBinaryArray.from_buffers(
            pa.large_binary(), len(self._ends) - 1, buffers
        )
        self._added: dict[bytes, int] = {}

    def _read(self) -> Iterator[pa.Table]:
        for group in self._trace.parts("paths", _COLUMNS):
            for at in range(0, group.num_rows, _PIECE):
                yield group.slice(at, _PIECE)

    def _rows(self) -> Iterator[Rows]:
        """Yield one row for each path; names are compared by their digests."""
        for paths in self._read():
            inside = pc.not_equal(paths["kind"].cast(pa.string()), "outside")
            names = _names(paths.filter(inside), self._several)
            rows = np.zeros(paths.num_rows, _ROW)
            rows["path_id"] = paths["path_id"].to_numpy()
            rows["spool"] = paths["spool"].fill_null(-1).to_numpy()
            rows["inside"] = inside.to_numpy()
            rows["digest"][rows["inside"]] = _digests(names).view(np.uint64).reshape(-1, 2)
            yield rows

    def _number(self, rows: Rows, first: Int) -> int:
        """Number the names in the order of the table, by path id; return how many there are."""
        numbers = on_disk.array(len(rows), np.uint32, self._place)
        n, size = 0, 0
        for part in on_disk.parts(len(rows)):
            new = first[part] == np.arange(part.start, part.stop)
            numbers[part] = n + np.cumsum(new) - new
            n += int(new.sum())
            self._check(rows["path_id"][part], 0, NONE - 1)
            size = max(size, int(rows["path_id"][part].max()) + 1)
        # The last element is that of path id -1: none.
        self._index = on_disk.array(size + 1, np.uint32, self._place)
        self._spools = on_disk.array(size + 1, np.int16, self._place)
        self._index[:], self._spools[:] = NONE, -1
        for part in on_disk.parts(len(rows)):
            path_id, inside = rows["path_id"][part], rows["inside"][part]
            self._spools[path_id] = rows["spool"][part]
            self._index[path_id[inside]] = numbers[first[part][inside]]
        return n

    def _texts(self, first: Int) -> Iterator[npt.NDArray[np.uint8]]:
        """Yield the bytes of each name, once, and note where they end."""
        row = n = 0
        for paths in self._read():
            new = first[row : row + paths.num_rows] == np.arange(row, row + paths.num_rows)
            names = _names(paths.filter(pa.array(new)), self._several)
            _, ends, text = names.buffers()
            at = np.frombuffer(ends, np.int64)[names.offset : names.offset + len(names) + 1]
            self._ends[n : n + len(at)] = self._ends[n] + at - at[0]
            row, n = row + paths.num_rows, n + len(names)
            yield np.frombuffer(text or b"", np.uint8)[at[0] : at[-1]]

    def of(self, path_ids: Int) -> npt.NDArray[np.uint32]:
        """Return the string index of each path id; NONE for -1 and for names outside.

        Raises:
            SpoolscopeError: the table of paths does not have one.
        """
        self._check(path_ids, -1, len(self._index) - 2)
        return self._index[path_ids]

    def _check(self, path_ids: Int, least: int, most: int) -> None:
        for found in (int(path_ids.min(initial=least)), int(path_ids.max(initial=most))):
            if not least <= found <= most:
                raise SpoolscopeError(
                    f"trace {self._trace.path} is damaged: path id {found}, not {least} to {most}",
                    remedy=RECORD_AGAIN,
                )

    def spool_of(self, path_ids: Int) -> list[int]:
        """Return the spool that each path lies on."""
        found: list[int] = self._spools[path_ids].tolist()
        return found

    def below(self, path: bytes, spool: int) -> bytes:
        """Return the name below the target of a name of a spool."""
        return b"spool%d/%s" % (spool, path) if self._several else path

    def text(self, index: int) -> bytes:
        """Return the name of the trace that has this index."""
        text: bytes = self._names[index].as_py()
        return text

    def below_any(self, roots: Sequence[bytes]) -> npt.NDArray[np.bool_]:
        """Return which names of the trace are one of ``roots``, or below one."""
        wanted, found = pa.array(roots, pa.large_binary()), np.zeros(len(self._names), np.bool_)
        for part in on_disk.parts(len(self._names) if roots else 0):
            names = self._names[part]
            while pc.any(pc.greater(pc.binary_length(names), 0)).as_py():
                found[part] |= pc.is_in(names, value_set=wanted).to_numpy(zero_copy_only=False)
                names = _above(names)
        return found

    def known(self, names: Sequence[bytes]) -> dict[bytes, int]:
        """Return the index of each of these names below the target that has one."""
        found = {name: self._added[name] for name in names if name in self._added}
        wanted = pa.array(names, pa.large_binary())
        for part in on_disk.parts(len(self._names) if names else 0):
            which = pc.index_in(self._names[part], value_set=wanted)
            at = np.flatnonzero(which.is_valid())
            hits = wanted.take(which.take(pa.array(at))).to_pylist()
            found |= zip(hits, (at + part.start).tolist(), strict=True)
        return found

    def add(self, name: bytes) -> int:
        """Add a new name below the target; return its index."""
        self._added[name] = len(self._names) + len(self._added)
        return self._added[name]

    def directories(self, indices: npt.NDArray[np.uint32], there: Int) -> dict[bytes, int]:
        """Return the directory of each of some names of the trace, and the first place in it.

        Args:
            indices: The names.
            there: Places of those names that are directories which are not wanted.
        """
        # The first digest stands for none, and is not after any other.
        parts = on_disk.parts(len(there))
        known = (self._names.take(pa.array(indices[there[part]])) for part in parts)
        digests = np.unique(np.concatenate([np.zeros(1, _DIGEST), *map(_digests, known)]))
        found: dict[bytes, int] = {}
        for part in on_disk.parts(len(indices)):
            above = _above(self._names.take(pa.array(indices[part]))).dictionary_encode()
            _, first = np.unique(above.indices.to_numpy(), return_index=True)
            names = above.dictionary
            digest = _digests(names)
            last = np.searchsorted(digests, digest, "right") - 1
            new = digests[last] != digest
            for name, at in compress(zip(names.to_pylist(), first.tolist(), strict=True), new):
                found.setdefault(name, at + part.start)
        return found

    def __len__(self) -> int:
        """Return the number of strings."""
        return len(self._names) + len(self._added)

    def packed(self) -> tuple[list[npt.NDArray[np.int64]], list[npt.NDArray[np.uint8]]]:
        """Return offsets (one more than there are strings) and all bytes, both in pieces."""
        lengths = [len(name) for name in self._added]
        ends = self._ends[-1] + np.cumsum(lengths, dtype=np.int64)
        return [self._ends, ends], [self._text, np.frombuffer(b"".join(self._added), np.uint8)]


def _above(names: pa.LargeBinaryArray) -> pa.LargeBinaryArray:
    """Return the directory of each name; Arrow's regular expressions take twice the time."""
    above = [name.rpartition(b"/")[0] for name in names.to_pylist()]
    return pa.array(above, pa.large_binary())


def _digests(names: pa.LargeBinaryArray) -> npt.NDArray[np.bytes_]:
    """Return 128 bits of SipHash for each name, with the key of this process."""
    texts = names.to_pylist()
    halves = [map(hash, texts), (hash(text + b"/") for text in texts)]
    both = [np.fromiter(half, np.int64, len(texts)) for half in halves]
    return np.stack(both, axis=1).view(_DIGEST).reshape(-1)


def _first_alike(rows: Rows, place: Path | None) -> Int:
    """Return for each row the first one that has the same name; -1 for names outside."""
    first = on_disk.array(len(rows), np.int64, place)
    first[:] = -1
    n_groups = len(rows) // _GROUP + 1
    for group in range(n_groups):
        found = [np.zeros(0, np.int64)]
        for part in on_disk.parts(len(rows)):
            chosen = rows["inside"][part] & (rows["digest"][part, 0] % n_groups == group)
            found.append(np.flatnonzero(chosen) + part.start)
        at = np.concatenate(found)
        digest = rows["digest"][at]
        # Only two names with the same first half (2**-64) could lie mixed.
        order = np.argsort(digest[:, 0], kind="stable")
        at, digest = at[order], digest[order]
        other = (digest[1:] != digest[:-1]).any(axis=1)
        began = np.flatnonzero(np.concatenate([[True], other])[: len(at)])
        first[at] = np.repeat(at[began], np.diff(began, append=len(at)))
    return first


def _names(paths: pa.Table, several: bool) -> pa.LargeBinaryArray:  # noqa: FBT001
    """Return the string of each path."""
    text = paths["path"].cast(pa.large_string()).combine_chunks()
    path = pc.ascii_ltrim(text, characters="/")
    if several:
        number = paths["spool"].fill_null(-1).cast(pa.large_string()).combine_chunks()
        mount = pc.binary_join_element_wise(_text("spool"), number, _text(""))
        below = pc.binary_join_element_wise(mount, path, _text("/"))
        path = pc.if_else(pc.equal(path, ""), mount, below)
    is_text = pc.equal(paths["kind"].cast(pa.string()), "text").combine_chunks()
    path = pc.if_else(is_text, text, path)
    names = path.cast(pa.large_binary())
    *_, joined = names.buffers()
    # Most names have none: to search each takes as long as all that is above.
    if joined is None or b"%" not in joined.to_pybytes():
        return names
    escaped = pc.match_substring(path, "%")
    raw = [decoded(name) for name in path.filter(escaped).to_pylist()]
    return pc.replace_with_mask(names, escaped, pa.array(raw, pa.large_binary()))


def _text(text: str) -> pa.LargeStringScalar:
    return pa.scalar(text, pa.large_string())
