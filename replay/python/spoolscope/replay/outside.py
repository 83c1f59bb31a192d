"""Files renamed or linked into a spool, or out of it, and their places in a replay meanwhile.

Only a spool that is a directory of its filesystem has an edge that can be crossed. In the target
such a file lies beside the spool while it is outside, with a new name for each time that it came
or went: changes to it in between are not in the trace.
"""

from typing import NamedTuple

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from spoolscope.replay.columns import column, has_crossings
from spoolscope.replay.ops import Ops
from spoolscope.replay.strings import Strings
from spoolscope.traces.abi import RENAME_EXCHANGE
from spoolscope.traces.calls import of_effect
from spoolscope.traces.constants import ENTRY_TYPE_ONLY
from spoolscope.traces.flat import DTYPES, NONE
from spoolscope.traces.trace import Trace

_BESIDE = b"outside"
_RENAMES, _LINKS = of_effect("renames"), of_effect("links")
_DIRECTORY = 0o040755


class _Call(NamedTuple):
    syscall: str
    errno: int | None
    path_id: int
    path2_id: int
    flags: int | None


class Outside:
    """Names for files that lie outside.

    Attributes:
        entries: Files that must be there at the start (plan_entry).
    """

    def __init__(self, trace: Trace, strings: Strings) -> None:
        self._strings = strings
        self._times: dict[int, int] = {}
        self._known: dict[bytes, int] = {}
        self._at_start: list[int] = []
        self._names: dict[str, dict[int, int]] = {"path": {}, "path2": {}}
        if has_crossings(trace):
            self._at_start.append(strings.add(_BESIDE))
            self._read(trace)
        self.entries = np.zeros(len(self._at_start), DTYPES["plan_entry"])
        self.entries["path"], self.entries["target"] = self._at_start, NONE
        # The calls show more about files (mode 0: unknown).
        self.entries["mode"][:1], self.entries["flags"][:1] = _DIRECTORY, ENTRY_TYPE_ONLY

    def _read(self, trace: Trace) -> None:
        at = 0
        for group in trace.parts("syscalls", _Call._fields):
            for row in self._crossings(group).tolist():
                self._cross(at + row, _Call(*group.slice(row, 1).to_pylist()[0].values()))
            at += group.num_rows

    def _crossings(self, table: pa.Table) -> npt.NDArray[np.intp]:
        """Return the calls that succeeded with one name on a spool and one outside."""
        ids = [column(table, name) for name in ("path_id", "path2_id")]
        inside = [self._strings.of(some) != NONE for some in ids]
        crossing = (inside[0] != inside[1]) & (ids[0] >= 0) & (ids[1] >= 0)
        names = np.array(table["syscall"].to_pylist(), object)
        crossing &= np.isin(names, (*_RENAMES, *_LINKS)) & (column(table, "errno", 0) == 0)
        return np.flatnonzero(crossing)

    def _cross(self, row: int, call: _Call) -> None:
        comes = self._strings.of(np.array([call.path_id]))[0] == NONE
        member = "path" if comes else "path2"
        number = call.path_id if comes else call.path2_id
        renames = call.syscall in _RENAMES
        exchanges = renames and bool((call.flags or 0) & RENAME_EXCHANGE)
        if not comes and not exchanges:
            self._times[number] = self._times.get(number, 0) + 1
        name = b"%s/%d.%d" % (_BESIDE, number, self._times.get(number, 0))
        is_new = name not in self._known
        if is_new:
            self._known[name] = self._strings.add(name)
        self._names[member][row] = self._known[name]
        if is_new and (comes or exchanges):
            self._at_start.append(self._known[name])
        if comes and renames and not exchanges:
            self._times[number] = self._times.get(number, 0) + 1

    def name(self, ops: Ops) -> None:
        """Give operations the names outside that their calls used."""
        for member, names in self._names.items():
            if names:
                rows = np.fromiter(names, np.int64, len(names))
                for at in np.flatnonzero(np.isin(ops["call"].astype(np.int64), rows)).tolist():
                    ops[member][at] = names[int(ops["call"][at])]
