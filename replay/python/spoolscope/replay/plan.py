"""Trace -> plan: the flat file that spoolscope-replay maps and executes."""

from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from itertools import chain
from pathlib import Path
from stat import S_IFDIR, S_IFLNK, S_IFREG
from typing import Any, BinaryIO

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from spoolscope.replay import on_disk
from spoolscope.replay.acls import learn_modes, may_be_modes
from spoolscope.replay.attached import Attached
from spoolscope.replay.calls import Calls
from spoolscope.replay.columns import column, identity
from spoolscope.replay.held import faults, held
from spoolscope.replay.life import in_order, read_events
from spoolscope.replay.ops import Ops
from spoolscope.replay.outside import Outside
from spoolscope.replay.strings import Strings
from spoolscope.replay.symlinks import Symlinks
from spoolscope.replay.threads import Lives, late_ns, read_lives
from spoolscope.replay.unmade import Asked
from spoolscope.replay.whatif import WHOLE, WhatIf
from spoolscope.traces.abi import S_IFMT
from spoolscope.traces.errors import SpoolscopeError
from spoolscope.traces.files import replacing
from spoolscope.traces.flat import DTYPES, NONE
from spoolscope.traces.trace import Trace

VERSION = 5
DIRECTORY = 0o040755
LISTED, TYPE_ONLY = 1, 2


@dataclass(frozen=True)
class Built:
    """Contents of the plan of a whole trace, in numbers, and what it cannot have.

    Attributes:
        path: The plan file.
        syscalls: Calls since the moment that the snapshot shows, or in the part that is asked
            for.
        before_start: Calls of the trace before that: their effects are in the snapshot.
        ops: Operations in the plan, process life included.
        in_flight: Calls that never returned, left out.
        strangers: Calls of threads the trace does not know, left out.
        elsewhere: Calls on other filesystems that were mounted below the spool meanwhile, left
            out.
        followed: Calls through symlinks, planned by the names that these stood for.
        threads: Recorded threads.
        held_skipped: Locks and mappings at start that cannot be taken again.
        duration_ns: Length of the recording.
        tree_bytes: Bytes of all files in the snapshot, without holes.
    """

    path: Path
    syscalls: int
    before_start: int
    ops: int
    in_flight: int
    strangers: int
    elsewhere: int
    followed: int
    threads: int
    held_skipped: int
    duration_ns: int
    tree_bytes: int


@dataclass(frozen=True)
class PlanSummary(Built):
    """Contents of the plan that is asked for, in numbers.

    Attributes:
        faults: Page faults on mapped files.
        left_out: Calls left out on purpose, by name, the most frequent first.
        written_bytes: Bytes that calls wrote.
    """

    faults: int
    left_out: dict[str, int]
    written_bytes: int

    def as_dict(self) -> dict[str, Any]:
        """Return the summary in the form of JSON."""
        return {**asdict(self), "path": str(self.path)}


Show = Callable[[float], None]


def build(
    trace: Trace, out: Path, what_if: WhatIf = WHOLE, show: Show = lambda _share: None
) -> Built:
    """Write the plan of a whole trace.

    Args:
        trace: An opened trace.
        out: The plan file to write.
        what_if: The part in which calls are counted that no plan can have.
        show: Called with the share that is done.

    Raises:
        SpoolscopeError: the trace holds no call.
    """
    with _lean():
        return _build(trace, out, what_if, show)


def _build(trace: Trace, out: Path, what_if: WhatIf, show: Show) -> Built:
    if not trace.meta["counts"].get("syscalls"):
        raise SpoolscopeError(
            f"trace {trace.path} holds no call on a spool",
            remedy="record again while the mail server works",
        )
    place = out.parent
    lives, strings = read_lives(trace), Strings(trace, place)
    calls = Calls(trace, lives, Asked(lives, strings, what_if.since(late_ns(trace)), what_if.only))
    links = Symlinks(trace, calls, strings)
    attached = Attached(trace, lives, strings)
    outside = Outside(trace, strings)
    before_all = held(trace, lives, strings, attached)
    entries = on_disk.gathered(
        chain(_entries(trace, strings, links), [links.entries]), DTYPES["plan_entry"], place
    )
    entries_ = [_above(entries, strings), entries, attached.entries, outside.entries]
    others = chain(faults(trace, lives), read_events(trace, lives))
    pieces = in_order(_led(calls.ops(strings), outside, links), others, len(lives.tid), place)
    stream = _Stream(lambda n: show(n / trace.meta["counts"]["syscalls"]))
    sections = {
        "threads": [_threads(lives, strings)],
        "ops": chain([before_all.ops, attached.ops], stream.pieces(pieces)),
        "entries": entries_,
        "fds": [attached.fds],
        "xattrs": _xattrs(trace, strings),
    }
    counts = _write(out, trace, sections, strings)
    if stream.acls:
        learn_modes(out)
    return Built(
        path=out,
        syscalls=calls.rows - calls.before_start,
        before_start=calls.before_start,
        ops=counts["ops"],
        in_flight=calls.in_flight,
        strangers=calls.strangers,
        elsewhere=calls.elsewhere,
        followed=links.followed,
        threads=counts["threads"],
        held_skipped=before_all.skipped,
        duration_ns=int(trace.meta["duration_ns"]),
        tree_bytes=sum(int((some["size"] - some["holes"]).sum()) for some in entries_),
    )


@contextmanager
def _lean() -> Iterator[None]:
    """Let Arrow take memory from glibc: its own pool keeps several times what is in use."""
    before = pa.default_memory_pool()
    pa.set_memory_pool(pa.system_memory_pool())
    try:
        yield
    finally:
        pa.set_memory_pool(before)


class _Stream:
    """The operations of a plan on their way to the file.

    Attributes:
        acls: Calls that may set an ACL which is no more than a mode.
    """

    def __init__(self, show: Callable[[int], None]) -> None:
        self._show = show
        self.acls = 0

    def pieces(self, pieces: Iterator[Ops]) -> Iterator[Ops]:
        """Yield them, and show how many are done."""
        gone_by = 0
        for ops in pieces:
            self._show(gone_by)
            gone_by += len(ops)
            self.acls += int(may_be_modes(ops).sum())
            yield ops


def _threads(lives: Lives, strings: Strings) -> npt.NDArray[np.void]:
    threads = np.zeros(len(lives.tid), DTYPES["plan_thread"])
    for name in ("start_ns", "tid", "pid", "parent", "uid", "gid", "umask", "flags", "comm"):
        threads[name] = getattr(lives, name)
    threads["cwd"] = strings.of(lives.cwd_id)
    return threads


def _led(pieces: Iterator[Ops], outside: Outside, links: Symlinks) -> Iterator[Ops]:
    for ops in pieces:
        outside.name(ops)
        links.follow(ops)
        yield ops


def _entries(trace: Trace, strings: Strings, links: Symlinks) -> Iterator[Ops]:
    """Yield the entries of the snapshot, and the names that it missed."""
    full = trace.meta["complete"] and trace.meta.get("snapshot", {}).get("kind") == "full"
    for tree in trace.parts("tree"):
        entries = np.zeros(tree.num_rows, DTYPES["plan_entry"])
        entries["path"] = strings.of(column(tree, "path_id"))
        entries["target"] = strings.of(column(tree, "target_id"))
        entries["ino"] = identity(trace, tree)
        entries["holes"] = _holes(tree)
        for name in ("mode", "uid", "gid", "size", "mtime_ns"):
            entries[name] = column(tree, name, 0)
        if full:
            entries["flags"] = np.where(entries["mode"] & S_IFMT == S_IFDIR, LISTED, 0)
        yield entries[entries["path"] != NONE]
    for names in trace.parts("missed_names"):
        # The calls show more about files (mode 0: unknown).
        entries = np.zeros(names.num_rows, DTYPES["plan_entry"])
        entries["path"], entries["target"] = strings.of(column(names, "path_id")), NONE
        entries["ino"] = identity(trace, names)
        entries["mode"] = np.where(names["directory"].to_numpy(), DIRECTORY, 0)
        entries["flags"] = np.where(entries["mode"] > 0, TYPE_ONLY, 0)
        entries = entries[entries["path"] != NONE]
        yield entries[links.stood_at_start(entries["path"])]


def _holes(tree: pa.Table) -> npt.NDArray[np.int64]:
    """Return how many bytes of each file are in holes, where the walk found any.

    A file that has data but no block has the data in its inode.
    """
    extents, size = column(tree, "extents"), column(tree, "size", 0)
    taken = column(tree, "blocks", 0) * 512
    sparse = (extents == 0) | ((extents > 0) & (taken > 0))
    sparse &= column(tree, "mode", 0) & S_IFMT == S_IFREG
    return np.where(sparse, np.maximum(size - taken, 0), 0)


def _xattrs(trace: Trace, strings: Strings) -> Iterator[Ops]:
    for table in trace.parts("xattrs"):
        xattrs = np.zeros(table.num_rows, DTYPES["plan_xattr"])
        xattrs["path"] = strings.of(column(table, "path_id"))
        xattrs["name"] = strings.of(column(table, "name_id"))
        xattrs["length"] = column(table, "length")
        yield xattrs[(xattrs["path"] != NONE) & (xattrs["name"] != NONE)]


def _above(entries: Ops, strings: Strings) -> Ops:
    """Return directories that must have existed although the snapshot does not have them."""
    may_hold = np.flatnonzero(np.isin(entries["mode"] & S_IFMT, (S_IFDIR, S_IFLNK)))
    directories = strings.directories(entries["path"], may_hold)
    index = strings.known(list(dict.fromkeys(chain.from_iterable(map(_up, directories)))))
    there = np.zeros(len(strings), np.bool_)
    there[entries["path"]] = True
    present = {number for number in index.values() if there[number]}
    missing: dict[int, int] = {}
    for directory, at in directories.items():
        for above in _up(directory):
            if above not in index:
                index[above] = strings.add(above)
            if index[above] in present:
                break
            present.add(index[above])
            missing[index[above]] = at
    added: Ops = entries[list(missing.values())].copy()
    added["path"], added["mode"] = list(missing), DIRECTORY
    added["ino"], added["size"], added["target"] = 0, 0, NONE
    added["flags"] = TYPE_ONLY
    return added


def _up(directory: bytes) -> Iterator[bytes]:
    """Yield a directory and those above it; the target itself has no name."""
    while directory:
        yield directory
        directory = directory.rpartition(b"/")[0]


def _write(
    out: Path, trace: Trace, sections: dict[str, Iterable[npt.NDArray[Any]]], strings: Strings
) -> dict[str, int]:
    """Write sections in order, each piece by piece; return their numbers of records."""
    header = np.zeros(1, DTYPES["plan_header"])
    header["magic"], header["version"] = b"SPOOLPLN", VERSION
    header["duration_ns"] = int(trace.meta["duration_ns"]) - late_ns(trace)
    counts = {}
    with replacing(out) as file:
        file.write(header.tobytes())
        for name, pieces in sections.items():
            header[f"{name}_at"] = file.tell()
            counts[name] = header[f"n_{name}"] = _append(file, pieces)
        index, texts = strings.packed()
        header["string_index_at"] = file.tell()
        header["n_strings"] = _append(file, index) - 1
        header["string_bytes_at"] = file.tell()
        header["string_bytes"] = _append(file, texts)
        file.seek(0)
        file.write(header.tobytes())
    return counts


def _append(file: BinaryIO, pieces: Iterable[npt.NDArray[Any]]) -> int:
    """Write arrays one after the other, padded to 8 bytes; return their total length."""
    n = 0
    for values in pieces:
        file.write(np.ascontiguousarray(values).data)
        n += len(values)
    file.write(bytes(-file.tell() % 8))
    return n
