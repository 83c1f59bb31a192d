"""fio's iolog, version 3, of the calls on files: one log for each job, threads one after the other.

fio opens, reads, writes, syncs and closes files, and nothing else: other calls are counted. Its job
has a file open once: it is opened before its first use in a thread, and closed when all descriptors
of that thread are, or when the thread's calls end.
"""

import re
from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from itertools import groupby
from pathlib import Path, PurePosixPath
from typing import Any

import numpy as np

from spoolscope.analysis.overlay import insert
from spoolscope.export.content import Content
from spoolscope.export.fio import HEADER
from spoolscope.export.lanes import Lanes
from spoolscope.export.rows import csv_line
from spoolscope.traces.abi import O_APPEND
from spoolscope.traces.calls import of_kind
from spoolscope.traces.errors import SpoolscopeError

HERE = "files"
"""The link to the directory of the files, beside the logs: of logs fio knows no other directory."""
JOBS, FILES, UNSAID = "replay.fio", "prepare.sh", "unsaid.csv"
MOST_JOBS = 2000
"""Most threads at a time; fio has 4,096 jobs at most, each a process."""
LONGEST = 200
"""Most characters of a name: fio cuts a path after 256."""
_NUMBERED = "file-"
"""Begin of the names of files whose own names cannot be used; no other name begins so."""
_OTHERS = re.compile(r"[^A-Za-z0-9._,:+=@/-]|\.\.")
_SYNCS = {"fsync": "sync", "fdatasync": "datasync"}
_DATA = dict.fromkeys(of_kind("read"), "read") | dict.fromkeys(of_kind("write"), "write")
_OPENS, _WRITES = of_kind("open"), of_kind("write")
_SAID = (*of_kind("open", "read", "write", "close"), *_SYNCS)

_THREADS = """
SELECT pid, tid, min(ts_ns), max(ts_ns + dur_ns) FROM shown_calls GROUP BY ALL ORDER BY 3, tid, pid
"""
_FILES = f"""
SELECT DISTINCT path_id, path FROM shown_calls JOIN paths USING (path_id)
WHERE syscall IN {_SAID} ORDER BY path_id
"""
# strace does not say of every call what its object is. Where it never does, what gives or takes
# bytes at an offset is a file. What is written by appending alone gets each write at its end,
# wherever the position of the descriptor was.
_CALLS = f"""
WITH used AS (
    SELECT DISTINCT path_id FROM shown_calls
    WHERE syscall IN {_SAID} AND CASE WHEN obj_mode IS NOT NULL THEN obj_mode & 61440 = 32768
        ELSE syscall IN {tuple(_DATA)} AND ret > 0 AND "offset" IS NOT NULL END
), appended AS (
    SELECT path_id FROM syscalls WHERE syscall IN {_OPENS} AND flags & 3 != 0 AND ret >= 0
    GROUP BY path_id HAVING bool_and(flags & {O_APPEND} != 0)
)
SELECT lane, s.pid, s.tid, ts_ns, syscall, path_id,
    CASE WHEN syscall IN {_WRITES} AND path_id IN (FROM appended)
        THEN CASE WHEN obj_size >= ret THEN obj_size - ret END ELSE "offset" END AS place,
    ret, errno, coalesce(obj_mode & 61440 = 32768, path_id IN (FROM used)) AS is_file
FROM shown_calls s JOIN fio_lanes l USING (pid, tid)
WHERE syscall IN {_SAID} ORDER BY lane, first_ns, s.tid, ts_ns, seq
"""
_OTHER_CALLS = f"""
SELECT syscall, count(*) FROM shown_calls WHERE syscall NOT IN {_SAID} GROUP BY ALL ORDER BY ALL
"""
_WHY_CALL, _WHY_FAILED = "fio has no such action", "it failed, or met the end of the file"
_WHY_PLACE = "where it went is not known"
_WHY_OBJECT, _WHY_JOB = "not on a regular file with a name", "its job neither reads nor writes"


@dataclass
class Job:
    """A log under way.

    Attributes:
        lines: Its actions, without their head.
        files: Names of its files, in order of first use.
        actions: Number of reads, writes and syncs by call.
        open: Number of descriptors of each file that its thread has open.
    """

    lines: list[str] = field(default_factory=list)
    files: dict[str, None] = field(default_factory=dict)
    actions: Counter[str] = field(default_factory=Counter)
    open: Counter[str] = field(default_factory=Counter)

    def do(self, at_us: int, name: str, call: str, words: str) -> None:
        """Append an action; open the file first if it is not open."""
        if not self.open[name]:
            self.opened(at_us, name)
        self.lines.append(f"{at_us} {HERE}/{name} {words}")
        self.actions[call] += 1

    def opened(self, at_us: int, name: str) -> None:
        """Count a descriptor; the first one opens the file."""
        self.files.setdefault(name)
        self.open[name] += 1
        if self.open[name] == 1:
            self.lines.append(f"{at_us} {HERE}/{name} open")

    def closed(self, at_us: int, name: str) -> None:
        """Leave a descriptor; the last one closes the file."""
        if self.open[name]:
            self.open[name] -= 1
            if not self.open[name]:
                self.lines.append(f"{at_us} {HERE}/{name} close")

    def end(self, at_us: int) -> None:
        """Close what the thread has open."""
        self.lines += [f"{at_us} {HERE}/{name} close" for name, n in self.open.items() if n]
        self.open.clear()

    @property
    def does_io(self) -> bool:
        """Return True if it reads or writes: fio refuses a log that does neither."""
        return any(call not in _SYNCS for call in self.actions)

    def text(self) -> str:
        """Return the log."""
        head = [HEADER, *(f"0 {HERE}/{name} add" for name in self.files)]
        return "\n".join([*head, *self.lines, ""])


class FioFiles:
    """Calls on files, for fio to replay in a directory."""

    sentence = (
        "The opens, reads, writes, syncs and closes of files as a job of fio, with an iolog "
        "(version 3) for each thread at a time."
    )
    opens = (
        "mkdir SCRATCH; sh {output}/prepare.sh SCRATCH; cd {output}; fio replay.fio; unsaid.csv "
        "there counts the calls that fio cannot make"
    )
    call_by_call = True

    def write(self, content: Content, output: Path) -> None:
        """Write the logs, with times in µs since the recording began.

        Raises:
            SpoolscopeError: no call reads or writes a file, or more threads run at a time than fio
                has jobs for.
        """
        n_jobs = _lay_out(content)
        if n_jobs > MOST_JOBS:
            raise SpoolscopeError(
                f"{n_jobs:,} threads at a time are too many jobs for fio",
                remedy="export a part: --slice or --only",
            )
        names = _names(dict(content.con.execute(_FILES).fetchall()))
        others = content.con.execute(_OTHER_CALLS).fetchall()
        unsaid = Counter({(call, _WHY_CALL): n for call, n in others})
        sizes: dict[str, int] = {}
        output.mkdir()
        jobs = []
        for lane, rows in groupby(content.rows(_CALLS), key=lambda row: int(row[0])):
            job = _job(rows, names, content.start_ns, sizes, unsaid)
            if job.does_io:
                jobs.append(log := f"job-{lane + 1:04}.log")
                _write(output / log, job.text())
            else:
                unsaid.update({(call, _WHY_JOB): n for call, n in job.actions.items()})
        if not jobs:
            raise SpoolscopeError(
                f"no call of trace {content.trace.path} reads or writes a file",
                remedy="--to fio has the block requests; or select more calls",
            )
        _write(output / JOBS, "\n".join(_job_file(jobs)))
        _write(output / FILES, "\n".join(_script(sizes)))
        counted = ((call, why, n) for (call, why), n in sorted(unsaid.items()))
        lines = [csv_line(row) for row in (("call", "why", "n"), *counted)]
        _write(output / UNSAID, "\n".join([*lines, ""]))


def _write(file: Path, text: str) -> None:
    with file.open("x", encoding="utf-8") as made:
        made.write(text)


def _lay_out(content: Content) -> int:
    """Create ``fio_lanes``, the job of each thread; return their number."""
    lanes = Lanes()
    rows = [
        (pid, tid, lanes.of(first_ns, last_ns), first_ns)
        for pid, tid, first_ns, last_ns in content.con.execute(_THREADS).fetchall()
    ]
    columns = ("pid", "tid", "lane", "first_ns")
    made = np.array(rows, np.int64).reshape(-1, len(columns))
    insert(
        content.con,
        "CREATE OR REPLACE TEMP TABLE fio_lanes AS SELECT * FROM rows",
        dict(zip(columns, made.T, strict=True)),
    )
    return 1 + max((lane for _, _, lane, _ in rows), default=-1)


def _names(paths: Mapping[int, str]) -> dict[int, str]:
    """Return a name for each path that fio and a shell read as it is, no two the same."""
    plain = {key: _OTHERS.sub("_", path).strip("/") for key, path in paths.items()}
    folders = {str(parent) for name in plain.values() for parent in PurePosixPath(name).parents}
    names: dict[int, str] = {}
    taken: set[str] = set()
    for key, name in plain.items():
        usable = (
            0 < len(name) <= LONGEST
            and not name.startswith(("-", _NUMBERED))
            and name not in taken
            and name not in folders
        )
        names[key] = name if usable else f"{_NUMBERED}{key}"
        taken.add(names[key])
    return names


def _job(
    rows: Iterator[tuple[Any, ...]],
    names: Mapping[int, str],
    start_ns: int,
    sizes: dict[str, int],
    unsaid: Counter[tuple[str, str]],
) -> Job:
    """Return the log of one job's calls; note sizes of files, and calls that are not in it."""
    job, thread, at_us = Job(), None, 0
    for _, pid, tid, ts_ns, call, path_id, offset, ret, errno, is_file in rows:
        if thread != (pid, tid):
            job.end(at_us)
            thread = (pid, tid)
        at_us = max(0, int(ts_ns) - start_ns) // 1000
        name = names.get(path_id) if is_file else None
        if name is None:
            unsaid[call, _WHY_OBJECT] += 1
        elif errno or (call in _DATA and ret <= 0):
            unsaid[call, _WHY_FAILED] += 1
        elif call in _DATA and offset is None:
            unsaid[call, _WHY_PLACE] += 1
        elif call in _DATA:
            job.do(at_us, name, call, f"{_DATA[call]} {offset} {ret}")
            sizes[name] = max(sizes.get(name, 0), offset + ret)
        elif call in _SYNCS:
            job.do(at_us, name, call, f"{_SYNCS[call]} 0 0")
            sizes.setdefault(name, 0)
        elif call in _OPENS:
            job.opened(at_us, name)
            sizes.setdefault(name, 0)
        else:
            job.closed(at_us, name)
    job.end(at_us)
    return job


def _job_file(logs: list[str]) -> Iterator[str]:
    yield from ("[global]", "ioengine=psync", "")
    for log in logs:
        yield from (f"[{log.removesuffix('.log')}]", f"read_iolog={log}", "")


def _script(sizes: Mapping[str, int]) -> Iterator[str]:
    yield "#!/bin/sh"
    yield "# Make the files in the directory $1, as large as they are read and written."
    yield from ("set -e", 'scratch=$(cd "$1" && pwd)', 'cd "$(dirname "$0")"')
    yield from (f'ln -sfn "$scratch" {HERE}', f"cd {HERE}")
    # The sizes are the trace's word.
    yield f"need={sum(sizes.values()) // 1024 + len(sizes)}"
    yield "have=$(df -Pk . | awk 'NR == 2 {print $4}')"
    yield 'if [ "$have" -le "$need" ]; then'
    yield '    echo "$scratch has $have KiB free, and $need are needed" >&2; exit 1'
    yield "fi"
    folders = {str(PurePosixPath(name).parent) for name in sizes}
    yield from (f"mkdir -p {folder}" for folder in sorted(folders - {"."}))
    yield from (f"head -c {size} /dev/zero > {name}" for name, size in sorted(sizes.items()))
    yield ""
