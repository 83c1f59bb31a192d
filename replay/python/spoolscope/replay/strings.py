"""The strings of a plan: names below the spool, symlink targets, attribute names."""

from collections.abc import Iterable, Sequence

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from spoolscope.traces.flat import NONE
from spoolscope.traces.text import decoded
from spoolscope.traces.trace import Trace

Int = npt.NDArray[np.int64]
_COLUMNS = ("path_id", "path", "kind", "spool")


class Strings:
    """Strings by path id; names outside the spool have none, so nothing can reach them.

    Several spools of one trace become directories ``spool0/``, ``spool1/`` of the target. A long
    trace has millions of names: those of the trace stay in Arrow's arrays, and are worked on all
    at once.
    """

    def __init__(self, trace: Trace) -> None:
        self._several = len(trace.meta.get("spools", [])) > 1
        none, nobody = np.zeros(0, np.int64), pa.array([], pa.large_binary())
        ids, spools, inside, names = [none], [none], [none == 0], [nobody]
        for paths in trace.parts("paths", _COLUMNS):
            ids.append(paths["path_id"].to_numpy())
            spools.append(paths["spool"].fill_null(-1).to_numpy())
            known = pc.not_equal(paths["kind"].cast(pa.string()), "outside")
            inside.append(known.to_numpy())
            names.append(_names(paths.filter(known), self._several))
        encoded = pa.chunked_array(names).dictionary_encode().combine_chunks()
        del names
        self._names = encoded.dictionary
        path_ids = np.concatenate(ids)
        self._spools = np.full(int(path_ids.max(initial=-1)) + 2, -1, np.int64)
        self._spools[path_ids] = np.concatenate(spools)
        self._index = np.full(len(self._spools), NONE, np.uint32)
        self._index[path_ids[np.concatenate(inside)]] = encoded.indices.to_numpy()
        self._added: dict[bytes, int] = {}
        # Three times the names were in memory on the way here.
        pa.default_memory_pool().release_unused()

    def of(self, path_ids: Int) -> npt.NDArray[np.uint32]:
        """Return the string index of each path id; NONE for -1 and for names outside."""
        return self._index[path_ids]

    def spool_of(self, path_ids: Int) -> list[int]:
        """Return the spool that each path lies on."""
        found: list[int] = self._spools[path_ids].tolist()
        return found

    def below(self, path: bytes, spool: int) -> bytes:
        """Return what a name of a spool is called below the target."""
        return b"spool%d/%s" % (spool, path) if self._several else path

    def known(self, names: Sequence[bytes]) -> dict[bytes, int]:
        """Return the index of each of these names below the target that has one."""
        wanted = pa.array(names, pa.large_binary())
        places = pc.index_in(wanted, value_set=self._names).to_pylist()
        found = {name: at for name, at in zip(names, places, strict=True) if at is not None}
        return found | {name: self._added[name] for name in names if name in self._added}

    def add(self, name: bytes) -> int:
        """Return the index of a name below the target that is new."""
        self._added[name] = len(self._names) + len(self._added)
        return self._added[name]

    def directories(self, indices: Iterable[int]) -> tuple[list[bytes], Int]:
        """Return the directories of some names, each once, and the first place that is in each."""
        names = self._names
        if self._added:
            names = pa.concat_arrays([names, pa.array(list(self._added), pa.large_binary())])
        above = pc.replace_substring_regex(
            names.take(pa.array(indices)), pattern="/?[^/]*$", replacement="", max_replacements=1
        ).dictionary_encode()
        _, first = np.unique(above.indices.to_numpy(), return_index=True)
        return above.dictionary.to_pylist(), first

    def packed(self) -> tuple[npt.NDArray[np.uint64], list[npt.NDArray[np.uint8]]]:
        """Return offsets (one more than there are strings) and all bytes, in pieces."""
        _, offsets, data = self._names.buffers()
        ends = np.frombuffer(offsets, np.int64, len(self._names) + 1)
        text = np.frombuffer(data or b"", np.uint8)[: ends[-1]]
        lengths = [len(name) for name in self._added]
        index = np.concatenate([ends, ends[-1] + np.cumsum(lengths, dtype=np.int64)])
        return index.astype(np.uint64), [text, np.frombuffer(b"".join(self._added), np.uint8)]


def _names(paths: pa.Table, several: bool) -> pa.LargeBinaryArray:  # noqa: FBT001
    """Return the string of each path."""
    text = paths["path"].cast(pa.large_string()).combine_chunks()
    path = pc.ascii_trim(text, characters="/")
    if several:
        number = paths["spool"].fill_null(-1).cast(pa.large_string()).combine_chunks()
        mount = pc.binary_join_element_wise(_text("spool"), number, _text(""))
        below = pc.binary_join_element_wise(mount, path, _text("/"))
        path = pc.if_else(pc.equal(path, ""), mount, below)
    is_text = pc.equal(paths["kind"].cast(pa.string()), "text").combine_chunks()
    path = pc.if_else(is_text, text, path)
    escaped = pc.match_substring(path, "%")
    raw = [decoded(name) for name in path.filter(escaped).to_pylist()]
    path = path.cast(pa.large_binary())
    return pc.replace_with_mask(path, escaped, pa.array(raw, pa.large_binary())) if raw else path


def _text(text: str) -> pa.LargeStringScalar:
    return pa.scalar(text, pa.large_string())
