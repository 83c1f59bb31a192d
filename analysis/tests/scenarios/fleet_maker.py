"""Maker of fleets with a known truth: one recorded day, multiplied with noise and planted faults.

The calls are those of a real Postfix and Dovecot, explained and summed; a host has them more or
less often, and slower or faster by factors that are drawn. So sums, shares of causes and shapes of
distributions are real, and what differs between hosts is known.
"""

import json
import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import date, timedelta
from functools import cache
from pathlib import Path

import numpy as np
import pyarrow as pa

from spoolscope.analysis.fleet.day_files import MARKER
from spoolscope.analysis.fleet.day_sums import put_day
from spoolscope.analysis.fleet.day_tables import DAY_TABLES
from spoolscope.analysis.fleet.measures import DAY_NS, DISK
from spoolscope.analysis.latency import SYSCALL_CLASSES
from spoolscope.analysis.query import query
from spoolscope.traces.rollups.buckets import bucket_of
from spoolscope.traces.rollups.places import place
from spoolscope.traces.rollups.schema import CALL
from spoolscope.traces.trace import Trace

SAMPLE = Path(__file__).resolve().parents[3] / "traces/samples/postfix-dovecot"
BUCKETS_A_DOUBLING = 32
CALLS_A_DAY = 400 * 86_400
"""400 calls a second, a busy mail server's mean over a day."""
DEV = 8 << 20 | 1
OLD_KERNEL, NEW_KERNEL = "6.12.48", "6.12.57"

SQL = """
SELECT c.comm, c.syscall, c.cause, c.ns, s.dur_ns
FROM call_causes c JOIN syscalls s USING (tid, seq) WHERE c.ns > 0
"""


@dataclass(frozen=True)
class Template:
    """One day of one host: rows of ``sums`` and ``spread``, without host, date and device."""

    sums: pa.Table
    spread: pa.Table
    calls: int


@cache
def template() -> Template:
    """Return the calls of the sample, as many as there are in a day."""
    with query(Trace.open(SAMPLE), SQL, 100_000) as reader:
        parts = reader.read_all()
    by = ["comm", "syscall", "cause"]
    sums = parts.group_by(by).aggregate([("ns", "sum"), ("ns", "count")])
    sums = sums.rename_columns([*by, "sum_ns", "n"])
    # Every call has some time on a CPU: its rows of that cause are the whole calls.
    whole = parts.filter(pa.compute.equal(parts["cause"], "cpu"))
    calls = whole.group_by(["comm", "syscall"]).aggregate([("dur_ns", "sum"), ("dur_ns", "count")])
    calls = calls.rename_columns(["comm", "syscall", "sum_ns", "n"])
    calls = calls.add_column(2, "cause", pa.array([CALL] * len(calls)))
    names = ["comm", "syscall", "cause", "sum_ns", "n"]
    sums = pa.concat_tables([_plain(sums.select(names)), _plain(calls.select(names))])
    buckets = pa.table(
        {
            "syscall": whole["syscall"].cast(pa.string()),
            "bucket": bucket_of(whole["dur_ns"].to_numpy()),
        }
    )
    spread = buckets.group_by(["syscall", "bucket"]).aggregate([([], "count_all")])
    spread = spread.rename_columns(["syscall", "bucket", "n"])
    return Template(sums, spread, len(whole))


def _plain(table: pa.Table) -> pa.Table:
    texts = {"comm", "syscall", "cause"}
    return table.cast(
        pa.schema([(n, pa.string() if n in texts else pa.int64()) for n in table.schema.names])
    )


@dataclass
class FleetMaker:
    """Maker of the day sums of a fleet; equal arguments give equal rows.

    Attributes:
        hosts: Number of hosts.
        days: Number of days.
        seed: Seed of all noise.
        first: The first day.
        filesystems: Types that hosts have in turn.
        host_sd: Spread of hosts, on a log scale; day_sd of days, noise of days of a host likewise.
        slow: Factor for the time of all waits for the disk, by number of the host.
        failing: Growth of these waits over all days, by number of the host.
        upgraded_from: Day from which every second host has the new kernel; None: no host.
        upgrade: Factor of the new kernel for the time of calls that sync.
        minutes: Values for columns of ``days``, in place of the usual ones.
    """

    hosts: int = 24
    days: int = 14
    seed: int = 1
    first: date = date(2026, 11, 1)
    filesystems: tuple[str, ...] = ("ext4",)
    host_sd: float = 0.12
    day_sd: float = 0.05
    noise: float = 0.08
    slow: Mapping[int, float] = field(default_factory=dict)
    failing: Mapping[int, float] = field(default_factory=dict)
    upgraded_from: int | None = None
    upgrade: float = 1.0
    minutes: Mapping[str, int] = field(default_factory=dict)

    def __post_init__(self) -> None:
        random = np.random.default_rng(self.seed)
        self._host = random.normal(0, self.host_sd, self.hosts)
        self._load = random.normal(0, 0.4, self.hosts)
        self._day = random.normal(0, self.day_sd, self.days)
        self._noise = random.normal(0, self.noise, (self.hosts, self.days))
        self._disk_noise = random.normal(0, self.noise, (self.hosts, self.days))
        self._load_noise = random.normal(0, 0.1, (self.hosts, self.days))

    def write(self, root: Path) -> int:
        """Write the day sums below a directory; return their bytes."""
        at = place(root)
        facts = json.dumps({"sources": "made", "problems": []})
        written = 0
        for day in range(self.days):
            tables = self.tables(day)
            for name in sorted(DAY_TABLES, key=lambda name: name == MARKER):
                written += put_day(at, name, self.date(day), tables[name], facts)
        return written

    def date(self, day: int) -> str:
        """Return a day by its number."""
        return (self.first + timedelta(days=day)).isoformat()

    def tables(self, day: int) -> dict[str, pa.Table]:
        """Return the rows of all hosts on one day."""
        parts = [self._of_host(host, day) for host in range(self.hosts)]
        return {name: pa.concat_tables([part[name] for part in parts]) for name in DAY_TABLES}

    def _of_host(self, host: int, day: int) -> dict[str, pa.Table]:
        base = template()
        load = math.exp(self._load[host] + self._load_noise[host, day])
        times = load * CALLS_A_DAY / base.calls
        level = math.exp(self._host[host] + self._day[day] + self._noise[host, day])
        disk = self.slow.get(host, 1.0) * self.failing.get(host, 1.0) ** (
            day / max(self.days - 1, 1)
        )
        disk *= math.exp(self._disk_noise[host, day])
        sync = self.upgrade if self._upgraded(host, day) else 1.0
        sums = self._sums(base.sums, times, level, disk, sync)
        spread = self._spread(base.spread, times, level * disk * sync, level)
        keys = {"host": f"mail{host:03d}", "date": self.date(day), "dev": DEV}
        n_commits = int(0.01 * times * base.calls)
        ns = int(n_commits * 3e6 * level * disk)
        journal = {"comm": ["cleanup", "lmtp"], "n": [n_commits] * 2, "sum_ns": [ns] * 2,
                   "max_ns": [int(4e8 * level)] * 2}  # fmt: skip
        places = {"directory": [f"/var/mail/{host % 7}/new"], "n": [1000], "sum_ns": [int(1e9)]}
        return {
            "sums": _table("sums", keys, sums),
            "spread": _table("spread", keys, spread),
            "journal": _table("journal", keys, journal),
            "places": _table("places", keys, places),
            "runs": _table("runs", keys, self._run(day)),
            "days": _table("days", keys, self._facts(host, day, int(times * base.calls))),
        }

    def _upgraded(self, host: int, day: int) -> bool:
        return self.upgraded_from is not None and host % 2 == 1 and day >= self.upgraded_from

    def _sums(
        self, base: pa.Table, times: float, level: float, disk: float, sync: float
    ) -> dict[str, object]:
        """Scale the parts of calls, and sum them up to whole calls again."""
        comm, syscall, cause = (
            base[name].to_numpy(zero_copy_only=False) for name in ("comm", "syscall", "cause")
        )
        factor = np.full(len(base), level)
        factor[np.isin(cause, DISK)] *= disk
        factor[np.isin(syscall, SYSCALL_CLASSES["sync"])] *= sync
        ns = (base["sum_ns"].to_numpy() * times * factor).astype(np.int64)
        keys = np.array([f"{a}\n{b}" for a, b in zip(comm, syscall, strict=True)])
        _, group = np.unique(keys, return_inverse=True)
        whole = cause == CALL
        totals = np.bincount(group[~whole], ns[~whole])
        ns[whole] = totals[group[whole]].astype(np.int64)
        n = np.maximum((base["n"].to_numpy() * times).astype(np.int64), 1)
        return {"comm": comm, "syscall": syscall, "cause": cause, "n": n, "sum_ns": ns}

    def _spread(self, base: pa.Table, times: float, sync: float, other: float) -> dict[str, object]:
        syscall = base["syscall"].to_numpy(zero_copy_only=False)
        syncs = np.isin(syscall, SYSCALL_CLASSES["sync"])
        moves = [round(BUCKETS_A_DOUBLING * math.log2(factor)) for factor in (sync, other)]
        bucket = base["bucket"].to_numpy() + np.where(syncs, *moves)
        n = np.maximum((base["n"].to_numpy() * times).astype(np.int64), 1)
        return {"syscall": syscall, "bucket": np.maximum(bucket, 0), "n": n}

    def _facts(self, host: int, day: int, calls: int) -> dict[str, object]:
        fs = self.filesystems[host % len(self.filesystems)]
        kernel = NEW_KERNEL if self._upgraded(host, day) else OLD_KERNEL
        usual = {
            "minutes": 1440, "holes": 0, "twice": 0, "covered_ns": DAY_NS, "steps": 0,
            "calls": calls, "lost": 0, "recorder_ns": 6 * 10**11, "cpus": 8, "changes": 0,
            "fs": fs, "options": "rw,relatime", "device": "TEST DISK", "kernel": kernel,
            "tool": "0.2.0",
        }  # fmt: skip
        return {name: [value] for name, value in {**usual, **self.minutes}.items()}

    def _run(self, day: int) -> dict[str, object]:
        """Return what one recorder saw, which runs all the time."""
        run = {
            "recorder_id": "r1", "first_seq": 1440 * day, "last_seq": 1440 * day + 1439,
            "minutes": 1440 - self.minutes.get("holes", 0),
            "covered_ns": self.minutes.get("covered_ns", DAY_NS),
            "steps": self.minutes.get("steps", 0),
        }  # fmt: skip
        return {name: [value] for name, value in run.items()}


def _table(name: str, keys: Mapping[str, object], columns: Mapping[str, object]) -> pa.Table:
    n = len(next(iter(columns.values())))  # type: ignore[arg-type]
    own = {key: pa.repeat(pa.scalar(value), n) for key, value in keys.items()}
    table = pa.table({**own, **{key: pa.array(value) for key, value in columns.items()}})
    schema = DAY_TABLES[name].schema
    return table.select(schema.names).cast(schema)
