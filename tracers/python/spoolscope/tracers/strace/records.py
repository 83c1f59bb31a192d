"""Records of calls, and the paths that strace printed with them, collected into arrays."""

from collections.abc import Iterable

import numpy as np

from spoolscope.tracers.strace.lines import Called
from spoolscope.tracers.strace.members import Members
from spoolscope.tracers.strace.words import DELETED, Behind
from spoolscope.traces.capture import Records
from spoolscope.traces.constants import CALL_IN_FLIGHT, CALL_PATH_CUT
from spoolscope.traces.flat import DTYPES, STEAL_UNKNOWN

CHUNK = 65_536
# String ids of the paths that strace printed with descriptors (-y), by argument word; 0: none. The
# name of a deleted file ends as in /proc, so that it differs from names of existing files.
WORDS = ("fd", "fd2", "dirfd", "dirfd2", "ret")
BESIDE = np.dtype([(word, "<u4") for word in WORDS])
ELSEWHERE = 0xFFFF_FFFF
"""The descriptor is of an object without a path, as a socket."""


class Strings:
    """Strings of a capture, each once; id 0 means no string."""

    def __init__(self) -> None:
        self.texts: list[bytes] = [b""]
        self._ids: dict[bytes, int] = {}

    def id(self, text: bytes | None) -> int:
        """Return the id of a string; 0 for an empty one."""
        if not text:
            return 0
        number = self._ids.get(text)
        if number is None:
            number = self._ids[text] = len(self.texts)
            self.texts.append(text)
        return number


class Calls:
    """Collects calls, chunk by chunk because Python values take much memory."""

    def __init__(self, strings: Strings) -> None:
        self._strings = strings
        self._rows: list[tuple[object, ...]] = []
        self._beside: list[tuple[int, ...]] = []
        self._chunks: list[tuple[Records, Records]] = []

    def add(self, line: Called, made: Members, tid: int, start_ns: int, end_ns: int) -> None:
        """Add one call; its process is determined later."""
        flags = (0 if line.ret is not None else CALL_IN_FLIGHT) | made.cut * CALL_PATH_CUT
        size = made.obj_size if made.obj_size >= 0 else made.size
        path2 = 0 if made.cut else self._strings.id(made.path2)
        # The use of the time is unknown: all of it counts as blocked, unexplained.
        times = (start_ns, end_ns, 0, end_ns - start_ns, 0, 0, STEAL_UNKNOWN)
        what = (0, line.ret or 0, made.args, 0, 0, made.pos, size, made.count, 0, tid, tid)
        names = (self._strings.id(made.path), path2, made.call, 0)
        self._rows.append((*times, *what, *names, made.obj_mode, made.lock_type, flags, 0, 0, 0))
        behind = made.behind
        said = tuple(self._path(word, behind.get(word)) for word in WORDS) if behind else _NOTHING
        self._beside.append(said)
        if len(self._rows) == CHUNK:
            self._flush()

    def _path(self, word: str, found: Behind | None) -> int:
        if found is None or found.path is None:
            return 0
        if word == "ret":  # a file opened by a name had that name, even if it was removed since
            return 0 if found.deleted else self._strings.id(found.path)
        if not found.path:
            return ELSEWHERE
        return self._strings.id(found.path + DELETED if found.deleted else found.path)

    def _flush(self) -> None:
        rows = np.array(self._rows, DTYPES["syscall"])
        self._chunks.append((rows, np.array(self._beside, BESIDE)))
        self._rows, self._beside = [], []

    def arrays(self) -> tuple[Records, Records]:
        """Return the records, and the paths printed with each."""
        self._flush()
        return _joined(rows for rows, _ in self._chunks), _joined(b for _, b in self._chunks)


_NOTHING = (0,) * len(WORDS)


def _joined(chunks: Iterable[Records]) -> Records:
    return np.concatenate(list(chunks))
