"""Roll-ups with known content: so many calls of a kind in each minute, each of one length."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa

from spoolscope.traces.parquet import arrow_table
from spoolscope.traces.rollups.buckets import bucket_of
from spoolscope.traces.rollups.files import write
from spoolscope.traces.rollups.schema import CALL, ROLLUPS

MS = 1_000_000
DEV = 8 << 20 | 1


@dataclass(frozen=True)
class Calls:
    """Calls of one minute that are alike; the rest of their time is CPU."""

    n: int
    ns: int
    syscall: str = "fsync"
    comm: str = "lmtp"
    waits: Mapping[str, int] = field(default_factory=dict)
    failed: int = 0


@dataclass(frozen=True)
class Commits:
    n: int
    ns: int = 2 * MS
    comm: str = "lmtp"


@dataclass(frozen=True)
class Minute:
    """The events of a minute, and columns of its row in ``minutes``."""

    calls: tuple[Calls, ...] = ()
    commits: tuple[Commits, ...] = ()
    columns: Mapping[str, Any] = field(default_factory=dict)
    dev: int = DEV

    def tables(self, minute_s: int, seq: int) -> dict[str, pa.Table]:
        """Return the rows of this minute at a time."""
        when = {"minute_s": minute_s, "dev": self.dev}
        rows: dict[str, list[dict[str, Any]]] = {name: [] for name in ROLLUPS}
        for one in self.calls:
            cpu = one.ns - sum(one.waits.values())
            for cause, ns in {CALL: one.ns, "cpu": cpu, **one.waits}.items():
                kind = {"comm": one.comm, "unit": "", "syscall": one.syscall, "cause": cause}
                kind |= {"size_class": -1, "failed": one.failed, "bucket": bucket(ns)}
                rows["calls"].append({**when, **kind, "n": one.n, "sum_ns": one.n * ns})
        for one in self.commits:
            sums = {"n": one.n, "sum_ns": one.n * one.ns, "max_ns": one.ns}
            rows["commits"].append({**when, "comm": one.comm, "unit": "", **sums})
        own = {"seq": seq, "boot_id": "b", "recorder_id": "r1", "covered_ns": 60_000 * MS}
        own |= {"clock_step_ns": 0, "calls": sum(c.n for c in self.calls), "lost": 0}
        own |= {"recorder_ns": 50 * MS, "cpus": 4, "fs": "ext4", "options": "rw"}
        own |= {"device": "TEST DISK", "kernel": "6.12.0", "tool": "0.7.0"}
        rows["minutes"].append({**when, **own, **self.columns})
        return {
            name: arrow_table(spec, {c.name: pa.array([row[c.name] for row in rows[name]], c.type)
                                     for c in spec.columns})
            for name, spec in ROLLUPS.items()
        }  # fmt: skip

    def write(self, root: Path, minute_s: int, seq: int, host: str = "mail1") -> Path:
        """Write this minute as a flush; return its last file."""
        columns = {
            name: dict(zip(table.schema.names, table.columns, strict=True))
            for name, table in self.tables(minute_s, seq).items()
        }
        (flush,) = write(root, host, columns)
        return root / flush.path("minutes")


def bucket(ns: int) -> int:
    return int(bucket_of(np.array([ns]))[0])
