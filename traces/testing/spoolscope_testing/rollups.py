"""Maker of small roll-ups that obey the contract, for tests: of one host and one recorder."""

from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from spoolscope.traces.rollups.buckets import bucket_of
from spoolscope.traces.rollups.files import write
from spoolscope.traces.rollups.names import Flush
from spoolscope.traces.rollups.schema import CALL, ROLLUPS

START_S = int(datetime(2026, 3, 1, 23, 50, tzinfo=UTC).timestamp())
"""Ten minutes before the end of a UTC day."""

DEV = 8 << 20 | 1
KINDS = (
    ("lmtp", "dovecot.service", "openat", -1, ("cpu", "directory_lookup")),
    ("lmtp", "dovecot.service", "write", 12, ("cpu", "device_io")),
    ("lmtp", "dovecot.service", "fsync", -1, ("cpu", "journal_commit", "device_io")),
    ("imap", "dovecot.service", "fsync", -1, ("cpu", "journal_commit")),
    ("imap", "dovecot.service", "unlink", -1, ("cpu", "lock")),
)
"""Calls that a minute has: comm, unit, syscall, size_class and the causes of their time."""

Columns = dict[str, list[Any]]


@dataclass
class RollupMaker:
    """Maker of the minutes of one recorder; equal arguments give equal rows.

    Attributes:
        host: Name of the host.
        recorder_id: Identity of the run of the recorder.
        start_s: Its first minute, in seconds since the epoch.
        calls: Calls of each kind in a minute.
        slower: Factor for the time of calls that sync.
        minute_columns: Values for columns of ``minutes``, in place of the usual ones.
        dev: Device of the spool.
    """

    host: str = "mail1"
    recorder_id: str = "5ec0de"
    start_s: int = START_S
    calls: int = 20
    slower: float = 1.0
    minute_columns: dict[str, Any] = field(default_factory=dict)
    dev: int = DEV

    def tables(self, first: int, minutes: int) -> dict[str, Columns]:
        """Return the columns of all tables for some minutes, from number ``first`` on."""
        tables: dict[str, Columns] = {
            name: {column.name: [] for column in spec.columns} for name, spec in ROLLUPS.items()
        }
        for seq in range(first, first + minutes):
            self._minute(tables, seq)
        return tables

    def write(self, root: Path, minutes: int = 20, in_flush: int = 5) -> list[Flush]:
        """Write minutes below a roll-up directory in flushes of ``in_flush`` minutes."""
        flushes = []
        for first in range(0, minutes, in_flush):
            tables = self.tables(first, min(in_flush, minutes - first))
            flushes += write(root, self.host, tables)
        return flushes

    def _minute(self, tables: dict[str, Columns], seq: int) -> None:
        minute: dict[str, Any] = {"minute_s": self.start_s + 60 * seq, "dev": self.dev}
        seed = [seq, *self.host.encode(), *self.recorder_id.encode()]
        random = np.random.default_rng(seed)
        for comm, unit, syscall, size_class, causes in KINDS:
            dur = random.lognormal(12, 2, self.calls).astype(np.int64) + 1
            if syscall == "fsync":
                dur = (dur * 10 * self.slower).astype(np.int64)
            kind = {"comm": comm, "unit": unit, "syscall": syscall, "size_class": size_class}
            failed = (np.arange(self.calls) % 7 == 6).astype(np.int64)
            parts = {CALL: dur, **_parts(dur, causes, random)}
            for cause, part in parts.items():
                _add_sums(tables["calls"], {**minute, **kind, "cause": cause}, failed, dur, part)
            if syscall == "fsync":
                own = {"comm": comm, "unit": unit, "n": 3, "sum_ns": int(dur[:3].sum())}
                _add(tables["commits"], {**minute, **own, "max_ns": int(dur[:3].max())})
        own = {"directory": f"/var/mail/{seq % 3}/new", "n": 4, "sum_ns": 1_000_000 + seq}
        _add(tables["directories"], {**minute, **own})
        _add(tables["minutes"], {**minute, **self._conditions(seq)})

    def _conditions(self, seq: int) -> dict[str, Any]:
        return {
            "seq": seq,
            "boot_id": "b001d",
            "recorder_id": self.recorder_id,
            "covered_ns": 60_000_000_000,
            "clock_step_ns": 0,
            "calls": self.calls * len(KINDS),
            "lost": 0,
            "recorder_ns": 50_000_000,
            "cpus": 4,
            "fs": "ext4",
            "options": "rw,relatime",
            "device": "TEST DISK",
            "kernel": "6.12.0",
            "tool": "0.7.0",
            **self.minute_columns,
        }


def _parts(
    dur: npt.NDArray[np.int64], causes: tuple[str, ...], random: np.random.Generator
) -> dict[str, npt.NDArray[np.int64]]:
    """Split times into causes that add up to them; not every call meets the later ones."""
    left, parts = dur.copy(), {}
    for cause in causes[1:]:
        met = random.random(len(dur)) < 0.8
        parts[cause] = np.where(met, left * random.random(len(dur)), 0).astype(np.int64)
        left = left - parts[cause]
    return {causes[0]: left, **parts}


def _add_sums(
    columns: Columns,
    keys: dict[str, Any],
    failed: npt.NDArray[np.int64],
    dur: npt.NDArray[np.int64],
    part: npt.NDArray[np.int64],
) -> None:
    met = (part > 0) | (keys["cause"] == CALL)
    kinds = np.stack([failed[met], bucket_of(dur)[met]])
    found, of, n = np.unique(kinds, axis=1, return_inverse=True, return_counts=True)
    sum_ns = np.zeros(len(n), np.int64)
    np.add.at(sum_ns, of.reshape(-1), part[met])
    sums = {"failed": found[0], "bucket": found[1], "n": n, "sum_ns": sum_ns}
    for name, values in columns.items():
        values += sums[name].tolist() if name in sums else [keys[name]] * len(n)


def _add(columns: Columns, row: dict[str, Any]) -> None:
    for name, values in columns.items():
        values.append(row[name])
