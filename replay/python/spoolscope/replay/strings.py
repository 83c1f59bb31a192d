"""The strings of a plan: names below the spool, symlink targets, attribute names."""

import numpy as np
import numpy.typing as npt

from spoolscope.traces.flat import NONE
from spoolscope.traces.text import decoded
from spoolscope.traces.trace import Trace

Int = npt.NDArray[np.int64]


class Strings:
    """Strings by path id; names outside the spool have none, so nothing can reach them.

    Several spools of one trace become directories ``spool0/``, ``spool1/`` of the target.
    """

    def __init__(self, trace: Trace) -> None:
        paths = trace.table("paths")
        ids = paths["path_id"].to_numpy()
        kinds = paths["kind"].to_pylist()
        spools = paths["spool"].to_pylist()
        several = len(trace.meta.get("spools", [])) > 1
        self._strings: list[bytes] = []
        self._several = several
        self._spools = np.array([-1 if spool is None else spool for spool in [*spools, None]])
        self._known: dict[bytes, int] = {}
        self._index = np.full(int(ids.max(initial=-1)) + 2, NONE, np.uint32)
        for number, path, kind, spool in zip(
            ids.tolist(), paths["path"].to_pylist(), kinds, spools, strict=True
        ):
            if kind == "outside":
                continue
            text = decoded(path) if kind == "text" else _below(decoded(path), spool, several)
            self._index[number] = self.index(text)

    def of(self, path_ids: Int) -> npt.NDArray[np.uint32]:
        """Return the string index of each path id; NONE for -1 and for names outside."""
        return self._index[path_ids]

    def spool_of(self, path_ids: Int) -> list[int]:
        """Return the spool that each path lies on."""
        found: list[int] = self._spools[path_ids].tolist()
        return found

    def add(self, path: bytes, spool: int) -> int:
        """Return the index of a name of a spool that is not in the trace."""
        return self.index(_below(path, spool, self._several))

    def index(self, name: bytes) -> int:
        """Return the index of a name below the target, adding it if it is new."""
        if name not in self._known:
            self._known[name] = len(self._strings)
            self._strings.append(name)
        return self._known[name]

    def text(self, index: int) -> bytes:
        """Return a string."""
        return self._strings[index]

    def packed(self) -> tuple[npt.NDArray[np.uint64], npt.NDArray[np.uint8]]:
        """Return offsets (one more than there are strings) and all bytes."""
        lengths = [len(text) for text in self._strings]
        index = np.concatenate([[0], np.cumsum(lengths, dtype=np.uint64)]).astype(np.uint64)
        return index, np.frombuffer(b"".join(self._strings), np.uint8)


def _below(path: bytes, spool: int, several: bool) -> bytes:  # noqa: FBT001
    path = path.strip(b"/")
    if not several:
        return path
    mount = b"spool%d" % spool
    return mount + b"/" + path if path else mount
