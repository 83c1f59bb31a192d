"""The paths of a trace by id: absolute host paths in, names below a spool out."""

from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from spoolscope.tracers.aliases import Aliases
from spoolscope.tracers.resolved import Resolved
from spoolscope.traces.capture import Capture
from spoolscope.traces.parquet import ROW_GROUP
from spoolscope.traces.private import Private
from spoolscope.traces.text import escaped

Columns = dict[str, Any]
Int = npt.NDArray[np.int64]
Devices = Callable[[npt.NDArray[np.integer]], Int]
"""Returns the device of the spool that each path id lies on, 0 outside."""
KINDS = pa.array(["spool", "outside", "text"])
SPOOL, OUTSIDE, TEXT = range(3)
NAMED_PART = ROW_GROUP // 8
"""Rows of the paths table that are made together, but for those of quiet names."""


class PathIds:
    """Path ids of a trace.

    The ids of calls come first, then those of quiet names of the tree, then those that tables add.

    Attributes:
        quiet_ids: Ids of the quiet names, in the order of their rows.
    """

    def __init__(self, capture: Capture, resolved: Resolved) -> None:
        self._paths, self._quiet = resolved.paths, resolved.state.quiet
        self._aliases = Aliases(capture.meta)
        self._ids = resolved.ids
        spools = capture.meta.get("spools", [])
        self._mounts = [s["mount"].encode().rstrip(b"/") for s in spools]
        self._devices = [int(s["dev"]) for s in spools]
        self._first = len(resolved.paths)
        self.quiet_ids = np.arange(len(self._quiet.rows), dtype=np.int64) + self._first
        self._by_id = np.zeros(0, np.int64)
        self._spools: list[int] = []

    def id(self, path: bytes) -> int:
        """Return the id of an absolute path, adding it if needed."""
        path = self._aliases.real(path)
        if path not in self._ids:
            self._ids[path] = len(self._paths) + len(self.quiet_ids)
            self._paths.append(path)
        return self._ids[path]

    def path(self, number: int) -> bytes:
        """Return the path of an id that is not of a quiet name."""
        return self._paths[number if number < self._first else number - len(self.quiet_ids)]

    def text_id(self, text: bytes) -> int:
        """Return the id of a text that is not a path of its own."""
        return self.id(b"\0" + text)

    def spool_of(self, path: bytes) -> int:
        """Return the index of a path's spool, -1 if none; the deepest mount wins."""
        found, length = -1, -1
        for i, mount in enumerate(self._mounts):
            n = len(mount)
            if n >= length and path.startswith(mount) and path[n : n + 1] in (b"/", b""):
                found, length = i, n
        return found

    def is_on_spool(self, path: bytes) -> bool:
        """Return whether a path lies on a spool."""
        return self.spool_of(path) >= 0

    def device(self, ids: npt.NDArray[np.integer]) -> Int:
        """Return the device of each path's spool, 0 outside."""
        total = len(self._paths) + len(self.quiet_ids)
        if len(self._by_id) != total + 1:
            of_spool = np.array([*self._devices, 0], np.int64)  # the last is that of spool -1
            devices = of_spool[np.array(self._known_spools(), np.int64)]
            quiet = of_spool[self._quiet.by_place(self.spool_of)]
            parts = devices[: self._first], quiet, devices[self._first :], np.zeros(1, np.int64)
            self._by_id = np.concatenate(parts)
        found: Int = self._by_id[ids]
        return found

    def _known_spools(self) -> list[int]:
        """Return the index of the spool of every path, -1 if none."""
        self._spools.extend(map(self.spool_of, self._paths[len(self._spools) :]))
        return self._spools

    def columns(self, private: Private | None) -> Iterator[Columns]:
        """Yield the paths table in parts, pseudonymised if names are private."""
        hide = private.names.path if private is not None else bytes
        yield from self._named(0, self._first, hide)
        parts = self._quiet.texts(
            lambda path: _within(self._shown(path, hide, self.spool_of(path))), _shower(hide)
        )
        spools = self._quiet.by_place(self.spool_of)
        kinds = np.where(spools >= 0, SPOOL, OUTSIDE)
        done = 0
        for texts in parts:
            part = slice(done, done + len(texts))
            shown = texts.cast(pa.large_string()).cast(pa.string())
            yield _columns(self.quiet_ids[part], shown, kinds[part], spools[part])
            done = part.stop
        yield from self._named(self._first, len(self._paths), hide)

    def _named(self, first: int, end: int, hide: Callable[[bytes], bytes]) -> Iterator[Columns]:
        for begin in range(first, max(end, first + 1), NAMED_PART):
            part = slice(begin, min(begin + NAMED_PART, end))
            paths, spools = self._paths[part], self._known_spools()[part]
            ids = np.arange(begin, begin + len(paths), dtype=np.int64)
            ids += len(self.quiet_ids) * (first == self._first)
            shown = [
                self._shown(path, hide, spool) for path, spool in zip(paths, spools, strict=True)
            ]
            of_spool = np.array(spools, np.int64)
            is_text = np.array([path.startswith(b"\0") for path in paths], np.bool_)
            kinds = np.where(is_text, TEXT, np.where(of_spool >= 0, SPOOL, OUTSIDE))
            yield _columns(ids, pa.array(shown, pa.string()), kinds, of_spool)

    def _shown(self, path: bytes, hide: Callable[[bytes], bytes], spool: int) -> str:
        """Return a path in the form of the table, given its spool."""
        if spool >= 0:
            path = path[len(self._mounts[spool]) + 1 :]
        return escaped(hide(path.removeprefix(b"\0")))


def _within(directory: str) -> bytes:
    """Return the prefix of names in a directory; the top of a spool has no name."""
    return f"{directory}/".encode() if directory else b""


def _shower(hide: Callable[[bytes], bytes]) -> Callable[[bytes], bytes]:
    return lambda name: escaped(hide(name)).encode()


def _columns(ids: Int, texts: pa.Array, kinds: Int, spools: Int) -> Columns:
    return {
        "path_id": ids,
        "path": texts,
        "kind": KINDS.take(pa.array(kinds)),
        "spool": np.ma.masked_less(spools.astype(np.int16), 0),
    }
