"""CPU time of calls by class, estimated from samples, beside the exact total.

The recorder looks at every CPU ``sample_hz`` times a second and keeps the kernel stack if the
thread is in a call. The exact time on the CPU comes from switches; samples only divide it.
"""

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from functools import cache
from importlib.resources import files
from math import sqrt
from typing import Any

import duckdb
import pyarrow as pa

from spoolscope.analysis.causes import MACHINE, Cause
from spoolscope.analysis.stack_rules import Rule, classify, parse_rules
from spoolscope.analysis.stacks import read_stacks
from spoolscope.analysis.stage import Work

CPU_CLASSES: dict[str, Cause] = {
    "lookup": Cause("lookup", "cpu", "Finding a name in a directory."),
    "readdir": Cause("listing", "cpu", "Listing a directory."),
    "dir_change": Cause("directory change", "cpu", "Adding, removing or replacing a name."),
    "path_walk": Cause("path walk", "cpu", "Following a path, checking rights, other VFS work."),
    "alloc": Cause("allocation", "cpu", "Finding or freeing blocks and inodes; mapping blocks."),
    "inode": Cause("inode", "cpu", "Reading, changing or dropping an inode."),
    "journal": Cause("journal", "cpu", "Preparing, reserving or writing the journal or log."),
    "checksum": Cause("checksum", "cpu", "Checksums and hashes of blocks."),
    "copy": Cause("copy", "cpu", "Copying data from or to the program."),
    "page_cache": Cause("page cache", "cpu", "Finding, adding or dropping cached pages."),
    "block": Cause("block layer", "cpu", "Making and submitting requests."),
    "scheduler": Cause("scheduler", "cpu", "Going to sleep, waking others, handing work over."),
    "interrupt": Cause("interrupt", "cpu", "An interrupt that came meanwhile, and its aftermath."),
    "entry": Cause("system call", "cpu", "Entering and leaving the kernel."),
    "tracing": Cause("tracing", "cpu", "This recording, and other tracing."),
    "other": Cause("other", "cpu", "No rule knows the stack."),
}
"""Classes of work that a call does on the CPU, exclusive, in the order in which tables show
them."""

_Z95 = 1.959963984540054


@dataclass(frozen=True)
class CpuClass:
    """A class of CPU time, estimated from its share of the samples.

    Attributes:
        name: A key of CPU_CLASSES.
        samples: Number of samples of this class.
        share: Part of all samples.
        low: Lower end of the 95 % interval of the share (Wilson).
        high: Upper end.
        ns: The share of the exact time on the CPU.
    """

    name: str
    samples: int
    share: float
    low: float
    high: float
    ns: int


@dataclass(frozen=True)
class CpuReport:
    """Time on the CPU by class.

    Attributes:
        hz: Samples a second and CPU that were asked for.
        samples: Samples within calls.
        exact_ns: Time of all calls on the CPU, from switches, without what the host took away.
        stolen_ns: Time for which the host had taken the CPU away from calls. A sample that is due
            during that time comes at its end, once.
        sampled_ns: Time of calls on the CPU, by samples alone.
        error: Standard error of sampled_ns, as a share of it; None without samples.
        classes: By class, the largest first; their ns sum to exact_ns.
        by_syscall: {call: {class: samples}}.
        unknown: Stacks of the class "other", innermost frame first, and how often each came.
    """

    hz: int
    samples: int
    exact_ns: int
    stolen_ns: int
    sampled_ns: int
    error: float | None
    classes: list[CpuClass]
    by_syscall: dict[str, dict[str, int]]
    unknown: list[tuple[tuple[str, ...], int]]

    @property
    def deviation(self) -> float:
        """The sampled time less the exact time, as a part of the exact time; 0 if that is 0."""
        return self.sampled_ns / self.exact_ns - 1 if self.exact_ns else 0.0

    @property
    def agrees(self) -> bool:
        """True if samples and switches agree within four standard errors and 3 %.

        Time that the host took away may or may not be in the samples.
        """
        allowed_ns = (4 * (self.error or 1.0) + 0.03) * self.exact_ns
        beyond = self.sampled_ns - self.exact_ns
        return -allowed_ns <= beyond <= allowed_ns + self.stolen_ns

    def to_json(self) -> dict[str, Any]:
        """Return the object that ``explain --json`` has under ``cpu``."""
        return {
            **{k: v for k, v in asdict(self).items() if k != "unknown"},
            "deviation": self.deviation,
            "agrees": self.agrees,
            "unknown": [{"frames": frames, "samples": n} for frames, n in self.unknown],
        }


@cache
def cpu_rules() -> tuple[Rule, ...]:
    """Return the rules that come with the package."""
    file = files("spoolscope.analysis").joinpath("rules", "cpu", "classes.toml")
    return tuple(parse_rules(file.read_text("utf-8"), "cpu/classes.toml", CPU_CLASSES))


def label_samples(con: duckdb.DuckDBPyConnection) -> None:
    """Create the table ``cpu_stacks(stack_id, class)`` of all stacks that were sampled."""
    wanted = con.execute("SELECT DISTINCT stack_id FROM samples WHERE stack_id IS NOT NULL")
    ids = [stack for (stack,) in wanted.fetchall()]
    stacks = read_stacks(con) if ids else {}
    known: dict[tuple[str, ...], str] = {}
    for stack in ids:
        frames = stacks.get(stack, ())
        if frames not in known:
            rule = classify(frames, cpu_rules())
            known[frames] = rule.cause if rule else "other"
    classes = [known[stacks.get(stack, ())] for stack in ids]
    table = pa.table(
        {"stack_id": pa.array(ids, pa.int64()), "class": pa.array(classes, pa.string())}
    )
    con.register("cpu_stacks_arrow", table)
    con.execute("CREATE OR REPLACE TEMP TABLE cpu_stacks AS SELECT * FROM cpu_stacks_arrow")
    con.unregister("cpu_stacks_arrow")


_SAMPLES = """
SELECT c.syscall, coalesce(k.class, 'other'), count(*) FROM samples s
JOIN waited c ON c.tid = s.tid AND c.seq = s.seq LEFT JOIN cpu_stacks k ON k.stack_id = s.stack_id
WHERE c.shown GROUP BY ALL ORDER BY ALL
"""

_UNKNOWN = """
SELECT s.stack_id, count(*) FROM samples s LEFT JOIN cpu_stacks k USING (stack_id)
WHERE coalesce(k.class, 'other') = 'other' AND s.stack_id IS NOT NULL
GROUP BY ALL ORDER BY 2 DESC LIMIT 20
"""


def study_cpu(work: Work) -> CpuReport | None:
    """Divide the time on the CPU by class; None for a trace that was recorded without samples."""
    hz = int(work.meta.get("sample_hz") or 0)
    if not hz:
        return None
    work.make("waited", "call_totals", "cpu_stacks")
    con = work.con
    by_syscall: dict[str, dict[str, int]] = {}
    for syscall, name, n in con.execute(_SAMPLES).fetchall():
        by_syscall.setdefault(syscall, {})[name] = n
    sums = (f"CAST(coalesce(sum({MACHINE[cause]}), 0) AS BIGINT)" for cause in ("cpu", "steal"))
    exact, stolen = con.execute(f"SELECT {', '.join(sums)} FROM call_totals").fetchone() or (0, 0)
    counts = Counter[str]()
    for classes in by_syscall.values():
        counts.update(classes)
    n = counts.total()
    rows = con.execute(_UNKNOWN).fetchall()
    stacks = read_stacks(con) if rows else {}
    return CpuReport(
        hz=hz,
        samples=n,
        exact_ns=exact,
        stolen_ns=stolen,
        sampled_ns=n * 1_000_000_000 // hz,
        error=1 / sqrt(n) if n else None,
        classes=_classes(counts, exact),
        by_syscall=by_syscall,
        unknown=[(stacks.get(stack, ()), times) for stack, times in rows],
    )


def _classes(counts: Mapping[str, int], exact_ns: int) -> list[CpuClass]:
    """Share out the exact time; what rounding leaves goes to the largest class."""
    n = sum(counts.values())
    order: Sequence[str] = sorted(counts, key=lambda name: (-counts[name], name))
    shares = [exact_ns * counts[name] // n for name in order]
    if shares:
        shares[0] += exact_ns - sum(shares)
    return [
        CpuClass(name, counts[name], counts[name] / n, *wilson(counts[name], n), ns)
        for name, ns in zip(order, shares, strict=True)
    ]


def wilson(k: int, n: int) -> tuple[float, float]:
    """Return the 95 % interval of a share of ``k`` in ``n`` (Wilson 1927)."""
    p, z2 = k / n, _Z95**2
    middle = (p + z2 / (2 * n)) / (1 + z2 / n)
    half = _Z95 / (1 + z2 / n) * sqrt(p * (1 - p) / n + z2 / (4 * n * n))
    return max(0.0, middle - half), min(1.0, middle + half)
