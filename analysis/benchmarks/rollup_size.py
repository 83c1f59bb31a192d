"""Sizes of a day of roll-ups: as recorded, merged by the hour, and summed up by hour.

One hour is drawn from the calls of the sample, minute by minute, at several rates; a day has 24.
"""

import argparse
import json
import os
import sys
import tempfile
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa

from spoolscope.analysis.query import query
from spoolscope.traces.rollups.buckets import bucket_of
from spoolscope.traces.rollups.compaction import compact
from spoolscope.traces.rollups.files import write
from spoolscope.traces.rollups.schema import CALL
from spoolscope.traces.trace import Trace

SAMPLE = Path(__file__).resolve().parents[2] / "traces/samples/postfix-dovecot"
START = datetime(2026, 11, 1, tzinfo=UTC)
DEV = 8 << 20 | 1
DIRECTORIES = 50
SQL = f"""
WITH named AS (SELECT *, row_number() OVER () AS call FROM syscalls)
SELECT s.call, s.comm, s.syscall, c.cause, CAST(s.errno != 0 AS BIGINT) AS failed, c.ns,
    CASE WHEN s.size > 0 AND regexp_matches(s.syscall, '^p?(read|write)(v|64)?$')
        THEN CAST(floor(log2(s.size)) AS BIGINT) ELSE -1 END AS size_class
FROM named s JOIN (
    SELECT tid, seq, ts_ns, cause, ns FROM call_causes WHERE ns > 0
    UNION ALL SELECT tid, seq, ts_ns, '{CALL}', dur_ns FROM syscalls
) c USING (tid, seq, ts_ns)
"""


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("rates", nargs="*", type=int, default=[20, 400], help="calls a second")
    with query(Trace.open(SAMPLE), SQL, 1 << 20) as reader:
        parts = reader.read_all()
    found = [{"calls_per_s": rate, **sizes(parts, rate)} for rate in parser.parse_args().rates]
    json.dump({"kernel": os.uname().release, "cpus": os.cpu_count(), "days": found}, sys.stdout)
    print()


def sizes(parts: pa.Table, rate: int) -> dict[str, float]:
    """Return MB a day by what was done, and rows of calls a minute."""
    random = np.random.default_rng(1)
    with tempfile.TemporaryDirectory() as place:
        root, rows = Path(place), 0
        for seq in range(60):
            calls = drawn(parts, rate * 60, random)
            rows += len(calls)
            write(root, "mail1", tables(calls, seq, rate * 60))
        found = {"rows_a_minute": rows / 60, "recorded_mb": megabytes(root)}
        for name, by_hour in (("merged_mb", False), ("by_hour_mb", True)):
            compact(root, until=START.date(), by_hour=by_hour)
            found[name] = megabytes(root)
    return found


def drawn(parts: pa.Table, n: int, random: np.random.Generator) -> pa.Table:
    """Return the sums of so many calls."""
    call = parts["call"].to_numpy()
    of_all = np.zeros(call.max() + 1, bool)
    of_all[random.choice(call.max(), n, replace=False) + 1] = True
    chosen = parts.filter(pa.array(of_all[call]))
    chosen = chosen.append_column("bucket", pa.array(bucket_of(chosen["ns"].to_numpy())))
    by = ["comm", "syscall", "cause", "size_class", "failed", "bucket"]
    return chosen.group_by(by).aggregate([("ns", "sum"), ("ns", "count")])


def tables(calls: pa.Table, seq: int, n: int) -> dict[str, dict[str, Any]]:
    """Return the columns of one minute."""

    def same(rows: int, **columns: object) -> dict[str, Any]:
        minute = {"minute_s": int(START.timestamp()) + 60 * seq, "dev": DEV, **columns}
        return {name: np.full(rows, value) for name, value in minute.items()}

    text = {name: calls[name].cast(pa.string()).to_pylist() for name in ("comm", "syscall")}
    numbers = {name: calls[name].to_numpy() for name in ("size_class", "failed", "bucket")}
    random = np.random.default_rng(seq)
    return {
        "calls": same(len(calls), unit="dovecot.service")
        | text
        | numbers
        | {"cause": calls["cause"].cast(pa.string()).to_pylist()}
        | {"n": calls["ns_count"].to_numpy(), "sum_ns": calls["ns_sum"].to_numpy()},
        "commits": same(2, unit="dovecot.service")
        | {"comm": ["imap", "lmtp"], "n": [20, 30]}
        | {name: random.integers(10**6, 10**8, 2) for name in ("sum_ns", "max_ns")},
        "directories": same(DIRECTORIES)
        | {"directory": [f"/var/mail/{i:032x}/new" for i in range(DIRECTORIES)]}
        | {name: random.integers(1, 10**7, DIRECTORIES) for name in ("n", "sum_ns")},
        "minutes": same(
            1, seq=seq, boot_id="b" * 36, recorder_id="a" * 32, covered_ns=60 * 10**9,
            clock_step_ns=0, calls=n, lost=0, recorder_ns=10**8, cpus=np.int32(2), fs="ext4",
            options="rw,relatime", device="DISK", kernel="6.12.48", tool="0.2.0",
        ),
    }  # fmt: skip


def megabytes(root: Path) -> float:
    return round(24 * sum(file.stat().st_size for file in root.rglob("*.parquet")) / 1e6, 2)


if __name__ == "__main__":
    main()
