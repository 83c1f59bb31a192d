"""strace's files -> trace: calls to replay and to compare, without attribution of their time."""

import os
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from spoolscope.tracers.convert import write
from spoolscope.tracers.lives import END, EXIT, FORK, SEEN
from spoolscope.tracers.strace.files import OPTIONS, Progress, Source
from spoolscope.tracers.strace.following import Following, Parents
from spoolscope.tracers.strace.lives import Lives
from spoolscope.tracers.strace.objects import DEVICE
from spoolscope.tracers.strace.reading import EXECUTING, Reading
from spoolscope.traces.abi import O_DIRECTORY, O_RDWR, S_IFDIR
from spoolscope.traces.calls import CALLS
from spoolscope.traces.capture import ROWS, Capture, Records
from spoolscope.traces.errors import USAGE, SpoolscopeError
from spoolscope.traces.output import check_output, discard, publish, work_directory
from spoolscope.traces.private import Hiding


@dataclass(frozen=True)
class Begun:
    """Facts that may be missing in strace's files.

    Attributes:
        pid: Process of the lines that name none.
        cwd: Working directory of the processes that existed at the start.
    """

    pid: int | None = None
    cwd: Path | None = None

    def directory(self) -> bytes | None:
        """Return the working directory as bytes.

        Raises:
            SpoolscopeError: it is not an absolute path.
        """
        if self.cwd is None:
            return None
        if not self.cwd.is_absolute():
            raise SpoolscopeError(
                f"{self.cwd} cannot be the working directory",
                remedy="give --cwd an absolute path",
                exit_code=USAGE,
            )
        return os.path.normpath(os.fsencode(self.cwd))


SYSCALL = "1"  # kind of record, as in lost_records


def import_strace(
    files: Sequence[Path],
    root: Path,
    output: Path,
    hiding: Hiding | None,
    progress: Progress,
    begun: Begun = Begun(),
) -> dict[str, Any]:
    """Write the trace of the calls that strace saw below a directory, and return its meta.

    Args:
        files: Files that ``strace -f -o`` or ``strace -ff -o`` wrote.
        root: The directory that counts as the spool, as strace saw it; it need not exist here.
        output: Trace directory to write; it appears when it is complete.
        hiding: How names are hidden, or None to keep them.
        progress: Called with the phase and the share of it that is done.
        begun: Facts that may be missing in the files.

    Raises:
        SpoolscopeError: a file is not strace's, or nothing in them is below the root.
    """
    check_output(output)
    top = os.path.normpath(os.fsencode(root)).rstrip(b"/")
    if not root.is_absolute() or os.fsdecode(top).encode(errors="replace") != top:
        raise SpoolscopeError(
            f"{root} cannot be the root", remedy="give an absolute path", exit_code=USAGE
        )
    source = Source(files, begun.pid)
    read = Reading(top.decode("latin-1"), in_order=source.in_order)
    read.read(source.lines(progress))
    capture = _capture(read, top, begun.directory(), progress)
    facts = {"times": source.kind.value, "in_order": source.in_order, "set_back": source.set_back}
    capture.meta["imported"] |= facts
    work = work_directory(output)
    try:
        meta = write(capture, work, hiding, progress=progress)
        publish(work, output)
    except BaseException:
        discard(work)
        raise
    return meta


def _capture(read: Reading, root: bytes, cwd: bytes | None, progress: Progress) -> Capture:
    """Return the capture that the recorder might have written."""
    calls, beside = read.calls.arrays()
    lives = Lives(read)
    for name in ("start_ns", "end_ns"):
        calls[name] -= np.uint64(lives.zero_ns)
    calls["pid"] = lives.pids(calls["tid"], calls["start_ns"])
    capture = Capture(lives.start_ns, lives.start_ns + lives.zero_ns, closed=True)
    capture.strings = read.strings.texts
    capture.records = {name: np.zeros(0, rows) for name, rows in ROWS.items()}
    capture.records |= {"syscall": calls, "task": lives.tasks}
    unfollowed = calls.copy()
    progress("following names", None)
    began = _began(calls, lives)
    parents = _parents(lives.tasks)
    cwds = {} if cwd is None else dict.fromkeys(began, cwd)
    cwds |= {tid: path for tid, path in read.cwds.items() if tid in began}
    following = Following(capture, beside, read.strings, root, began, parents, cwds)
    following.go()
    if following.strayed or (following.unplaced and following.cwds.keys() - cwds.keys()):
        # A later call shows the working directory from the beginning: resolve earlier names again.
        # Or calls are missing that changed it: then no name may begin at it.
        capture.records["syscall"] = calls = unfollowed
        cwds, absolute = following.cwds, following.strayed
        following = Following(
            capture, beside, read.strings, root, began, parents, cwds, absolute=absolute
        )
        following.go()
    if not following.below:
        raise SpoolscopeError(
            f"no call below {os.fsdecode(root) or '/'} in these files",
            remedy="give the directory as strace saw it with --root, and where relative names "
            f"begin with --cwd, or use '{OPTIONS}'",
        )
    capture.records["syscall"] = calls[following.kept]
    capture.records["open_file"] = _open_files(following, read, lives)
    _place(capture.records["task"], following, read)
    bad = [(tid, ts_ns - lives.zero_ns) for tid, ts_ns in read.bad if tid]
    _number(capture.records["syscall"], capture.records["task"], bad)
    read.counts["without_parent"] = len(_without_parent(began, lives))
    capture.meta = _meta(read, following, lives, os.fsdecode(root) or "/")
    return capture


def _parents(tasks: Records) -> Parents:
    """Return forks by child: time and parent; several if the pid was reused."""
    parents: Parents = {}
    for fork in tasks[(tasks["event"] == FORK) & (tasks["pid"] == tasks["tid"])]:
        made = (int(fork["ts_ns"]), int(fork["parent_pid"]))
        parents.setdefault(int(fork["pid"]), []).append(made)
    return parents


def _began(calls: Records, lives: Lives) -> dict[int, bool]:
    """Return the processes at the start; true if strace began them: execve is their first call."""
    seen = lives.tasks[lives.tasks["event"] == SEEN]["tid"]
    order = np.argsort(calls["start_ns"], kind="stable")
    tids, first = np.unique(calls["tid"][order], return_index=True)
    executing = [CALLS[name].id for name in EXECUTING]
    begins = np.isin(calls["call"][order[first]], executing)
    began = dict(zip(tids.tolist(), begins.tolist(), strict=True))
    return {tid: began.get(tid, False) for tid in seen.tolist()}


def _without_parent(began: dict[int, bool], lives: Lives) -> set[int]:
    """Return threads whose parent is unknown, so that their inherited state is unknown.

    If strace began the first thread, all others count except those that strace began, too.
    """
    order = sorted(lives.there, key=lives.there.__getitem__)
    made = {tid for tid in order if not began[tid]} if order and began[order[0]] else set()
    return made | lives.strays


def _open_files(following: Following, read: Reading, lives: Lives) -> Records:
    """Return the descriptors open at the start; how they were opened is unknown: O_RDWR."""
    rows = np.zeros(len(following.files), ROWS["open_file"])
    for number, (row, file) in enumerate(zip(rows, following.files, strict=True), 1):
        directory = file.node.children is not None
        row["ts_ns"], row["pid"], row["tid"] = lives.start_ns, file.pid, file.pid
        row["fd"] = file.fd
        row["flags"] = O_DIRECTORY if directory else O_RDWR
        row["mode"] = S_IFDIR | 0o755 if directory else 0
        row["dev"], row["ino"], row["size"] = DEVICE, file.ino, -1
        row["path"], row["pos"] = read.strings.id(file.path), following.position(file)
        row["description"] = number
    return rows


def _place(tasks: Records, following: Following, read: Reading) -> None:
    """Fill in the known working directories at the start."""
    for i in np.flatnonzero(tasks["event"] == SEEN).tolist():
        tasks["path"][i] = read.strings.id(following.cwds.get(int(tasks["pid"][i])))


def _number(calls: Records, tasks: Records, bad_lines: list[tuple[int, int]]) -> None:
    """Number the calls of each life; a line that was not understood leaves a hole."""
    bad = np.array(bad_lines, np.int64).reshape(-1, 2)
    borders = np.flatnonzero(np.isin(tasks["event"], (FORK, EXIT, END)))
    ends = tasks[borders]
    tid = np.concatenate([calls["tid"], bad[:, 0], ends["tid"]]).astype(np.int64)
    times = (calls["end_ns"], bad[:, 1], ends["ts_ns"])
    ts_ns = np.concatenate([part.astype(np.int64) for part in times])
    counts = np.arange(len(tid)) < len(calls) + len(bad)
    forks = np.concatenate([counts[: len(calls) + len(bad)] & False, ends["event"] == FORK])
    order = np.lexsort((~counts & ~forks, ~forks, ts_ns, tid))
    begins = forks[order].copy()
    begins[1:] |= tid[order][1:] != tid[order][:-1]
    begins[1:] |= (~counts & ~forks)[order][:-1]
    so_far = np.cumsum(counts[order])
    before = np.maximum.accumulate(np.where(begins, so_far - counts[order], 0))
    number = np.empty(len(tid), np.int64)
    number[order] = so_far - before
    calls["seq"] = number[: len(calls)] - 1
    last = ends["event"] != FORK
    tasks["n_calls"][borders[last]] = number[len(calls) + len(bad) :][last]


def _meta(read: Reading, following: Following, lives: Lives, root: str) -> dict[str, Any]:
    """Return the meta data that a recorder would write at its end."""
    counts = read.counts
    doubts = len(read.bad) + counts["unfinished"] + following.unplaced + counts["cut"]
    doubts += counts["without_parent"]
    spool = {"mount": root, "fstype": "unknown", "options": "", "source": "", "dev": DEVICE}
    return {
        "kernel": "unknown",
        "arch": "x86_64",
        "end_mono_ns": read.last_ns - lives.zero_ns,
        "ended": None,
        "spools": [{**spool, "size_bytes": None, "features": None}],
        "tier": "T0",
        "lost_records": {SYSCALL: len(read.bad)} if read.bad else {},
        "imported": {
            "from": "strace",
            "whole": not doubts,
            "lines": counts["lines"],
            "not_understood": len(read.bad),
            "unfinished": counts["unfinished"],
            "unplaced": following.unplaced,
            "without_parent": counts["without_parent"],
            "names_cut": counts["cut"],
            "without_duration": counts["untimed"],
            "other_calls": dict(read.left_out.most_common()),
        },
    }
