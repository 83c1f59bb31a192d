"""Files that were open when the recording attached, also those that had lost their name."""

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from spoolscope.replay.columns import Int, column, identity, numbers
from spoolscope.replay.ops import BASE_ROOT, Ops, pseudo
from spoolscope.replay.strings import Strings
from spoolscope.replay.threads import Lives
from spoolscope.traces.abi import S_IFDIR, S_IFMT, S_IFREG
from spoolscope.traces.calls import CALLS
from spoolscope.traces.flat import DTYPES, NONE
from spoolscope.traces.trace import Trace

NEW_FILE = S_IFREG | 0o600


class Attached:
    """Descriptors at start, and the names and operations that are needed to open them.

    A file that is open but deleted gets a name for the moment in which it is opened.

    Attributes:
        fds: Descriptors (plan_fd).
        inos: Inode number of the file of each descriptor.
        entries: Names to make besides the tree (plan_entry).
        nameless: Inode number of the file of each entry.
        ops: Operations that remove these names; of no recorded call, before all others.
    """

    def __init__(self, trace: Trace, lives: Lives, strings: Strings) -> None:
        self._trace, self._lives, self._strings = trace, lives, strings
        table = trace.table("open_files")
        fds = np.zeros(table.num_rows, DTYPES["plan_fd"])
        pid = column(table, "pid")
        thread = lives.find(pid, np.zeros(len(pid), np.int64))
        fds["thread"] = np.where(thread >= 0, thread, NONE)
        fds["fd"], fds["pos"] = column(table, "fd"), column(table, "offset", 0)
        fds["flags"] = column(table, "flags", 0).astype(np.uint32)
        fds["mode"] = column(table, "obj_mode", 0)
        fds["path"] = strings.of(column(table, "path_id"))
        fds["file"] = _numbered(column(table, "description"))
        deleted = table["deleted"].fill_null(False).to_numpy()  # noqa: FBT003
        self.entries, paths = self._nameless(table, deleted)
        fds["path"][deleted] = paths
        kept = (fds["thread"] != NONE) & (fds["path"] != NONE)
        self.fds: npt.NDArray[np.void] = fds[kept]
        self.inos = numbers(trace, table)[kept]
        self.ops = self._unlinks(fds[kept & deleted])

    def pids_of(self, fds: npt.NDArray[np.void]) -> Int:
        """Return the processes that some of the descriptors belong to."""
        pids: Int = self._lives.pid[fds["thread"]]
        return pids

    def _nameless(self, table: pa.Table, deleted: npt.NDArray[np.bool_]) -> tuple[Ops, Int]:
        """Return one entry for each deleted file, and the path of each row."""
        self.nameless, first, which = np.unique(
            numbers(self._trace, table)[deleted], return_index=True, return_inverse=True
        )
        entries = np.zeros(len(first), DTYPES["plan_entry"])
        spools = self._strings.spool_of(column(table, "path_id")[deleted][first])
        names = [
            self._strings.below(b".spoolscope-deleted.%d" % i, spool)
            for i, spool in enumerate(spools)
        ]
        known = self._strings.known(names)
        entries["path"] = [
            known[name] if name in known else self._strings.add(name) for name in names
        ]
        entries["ino"], entries["target"] = identity(self._trace, table)[deleted][first], NONE
        modes = column(table, "obj_mode", 0)[deleted][first]
        entries["mode"] = np.where(modes > 0, modes, NEW_FILE)
        entries["size"] = np.maximum(column(table, "size", 0)[deleted][first], 0)
        return entries, entries["path"].astype(np.int64)[which]

    def _unlinks(self, fds: npt.NDArray[np.void]) -> Ops:
        _, first = np.unique(fds["path"], return_index=True)
        is_directory = fds["mode"][first] & S_IFMT == S_IFDIR
        ops = pseudo(0, fds["thread"][first].astype(np.int64), first * 0)
        ops["op"] = np.where(is_directory, CALLS["rmdir"].id, CALLS["unlink"].id)
        ops["path"], ops["base"] = fds["path"][first], BASE_ROOT
        return ops


def _numbered(descriptions: Int) -> Int:
    """Return numbers from 0 for open file descriptions; NONE where these are unknown."""
    _, number = np.unique(descriptions, return_inverse=True)
    return np.where(descriptions >= 0, number, NONE)
