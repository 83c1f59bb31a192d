"""fio's iolog, version 3: the requests that filesystems made of a disk, at their times.

Requests of a device that lies on another are recorded twice: those of the upper one are used. Of
several disks the one with most requests is used: fio replays them on the one that
``replay_redirect`` names.
"""

from pathlib import Path

from spoolscope.export.content import Content
from spoolscope.traces.errors import USAGE, SpoolscopeError

HEADER = "fio version 3 iolog"
ACTIONS = {"read": "read", "write": "write", "discard": "trim", "flush": "sync"}

# Flushes by the driver are left out: the requests that ask for them are in the log. A block trace
# has stages alone: blktrace's letters tell a flush before (F first) and FUA (F after the action).
_TOP = """
CREATE OR REPLACE TEMP VIEW of_filesystems AS
SELECT ts_ns, dev, op, sector, bytes, preflush, fua FROM block_ios
WHERE coalesce(parent_dev, -1) NOT IN (SELECT dev FROM block_ios)
    AND op IN ('read', 'write', 'discard')
UNION ALL
SELECT ts_ns, dev, op, sector, bytes, starts_with(rwbs, 'F'), regexp_matches(rwbs, '^F?[RWD]F')
FROM block_stages
WHERE op IN ('read', 'write', 'discard') AND NOT EXISTS (SELECT 1 FROM block_ios)
"""
_BUSIEST = "SELECT dev FROM of_filesystems GROUP BY dev ORDER BY count(*) DESC, dev LIMIT 1"
_REQUESTS = """
SELECT ts_ns, CASE WHEN op = 'write' AND bytes = 0 THEN 'flush' ELSE op END AS op,
    sector * 512 AS offset, bytes, op = 'write' AND bytes > 0 AND preflush AS before,
    op = 'write' AND bytes > 0 AND fua AS after
FROM of_filesystems WHERE dev = {dev} ORDER BY ts_ns, sector, op, bytes
"""


class Fio:
    """Requests of disks, for fio to replay."""

    sentence = (
        "The block requests of the busiest disk as fio's iolog (version 3), with their times."
    )
    opens = (
        "fio --name=replay --read_iolog={output} --replay_redirect=/dev/DISK --direct=1 "
        "--ioengine=libaio --iodepth=64; it overwrites DISK, which must be as large as the recorded"
    )
    call_by_call = False

    def write(self, content: Content, output: Path) -> None:
        """Write the log: times in µs since the first request; a FUA or a flush is a sync.

        Raises:
            SpoolscopeError: the trace has no block requests, or calls are left out other than by
                time.
        """
        if content.selection.is_of_some:
            raise SpoolscopeError(
                "--only and --except choose calls, and fio gets requests of a disk",
                remedy="choose a --slice, or use --to fio-files",
                exit_code=USAGE,
            )
        content.con.execute(_TOP)
        busiest = content.con.execute(_BUSIEST).fetchall()
        if not busiest:
            raise SpoolscopeError(
                f"trace {content.trace.path} has no block requests",
                remedy="record with root on a disk, or import a block trace",
            )
        ((dev,),) = busiest
        name, first_ns, at_us = _name(int(dev)), None, 0
        with output.open("x", encoding="ascii") as file:
            file.write(f"{HEADER}\n0 {name} add\n0 {name} open\n")
            for ts_ns, op, offset, length, before, after in content.rows(_REQUESTS.format(dev=dev)):
                first_ns = ts_ns if first_ns is None else first_ns
                at_us = (ts_ns - first_ns) // 1000
                sync = f"{at_us} {name} sync 0 0\n"
                own = f"{at_us} {name} {ACTIONS[op]} {offset} {length}\n"
                file.write((sync if before else "") + own + (sync if after else ""))
            file.write(f"{at_us} {name} close\n")


def _name(dev: int) -> str:
    """Return the name of a disk in the log, without ':', which separates names there."""
    return f"disk-{dev >> 20}-{dev & 0xFFFFF}"
