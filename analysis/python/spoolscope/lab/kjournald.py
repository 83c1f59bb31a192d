"""The case "kjournald hogs the machine", without a culprit in iotop, caused in four ways."""

from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from textwrap import wrap
from typing import Any

from spoolscope.analysis.explain import Explanation, explain
from spoolscope.analysis.insights import Insight
from spoolscope.lab.faults import MIB, MS, Delay, Role
from spoolscope.lab.fill import fill_directory
from spoolscope.lab.place import format_image, journal_places, mounted, set_features
from spoolscope.lab.private import memory_directory
from spoolscope.lab.slowdisk import SlowDisk
from spoolscope.lab.suite import Progress, delayed, record_load
from spoolscope.replay.interrupts import ending_on_signals

SIZE_BYTES = 512 * MIB
NAMES = 60_000
"""Number of names in the large directory, like a neglected mailbox or a stuck queue."""


_CIRCUMSTANCES = (
    "busy_cpu", "host_steal", "too_few_cpus", "commit_without_cpu", "recorder_cost",
)  # fmt: skip
"""Kinds of insights on this machine's CPUs."""


@dataclass(frozen=True)
class Variant:
    """One way in which the journal's thread gets busy.

    Attributes:
        name: Name on the command line.
        story: One sentence on what is wrong.
        expected: The right kinds of insight; ``culprit`` is a word of their culprit.
        roles: Processes that run (see ``lab.load``).
        delays: Delays of the disk.
        mkfs: Further options of mkfs.ext3.
        unindexed: Fill a directory with names, then remove its index.
    """

    name: str
    story: str
    expected: tuple[str, ...]
    culprit: str
    roles: tuple[Role, ...]
    delays: tuple[Delay, ...]
    mkfs: tuple[str, ...] = ("-J", "size=8")
    unindexed: bool = False


@dataclass(frozen=True)
class Case:
    """The result of a variant.

    Attributes:
        variant: The variant.
        data: The journal's mode, ordered or journal.
        insights: All insights, the longest time at stake first.
        explanation: The explanation behind it.
    """

    variant: Variant
    data: str
    insights: list[Insight]
    explanation: Explanation = field(repr=False)

    @property
    def verdict(self) -> Insight | None:
        """The first insight that is not about circumstances common to all variants."""
        about = (
            insight
            for insight in self.insights
            if not insight.circumstance and insight.kind not in _CIRCUMSTANCES
        )
        return next(about, None)

    @property
    def as_expected(self) -> bool:
        """Return True if the verdict is the expected one."""
        said, wanted = self.verdict, self.variant
        return said is not None and said.kind in wanted.expected and wanted.culprit in said.culprit

    def to_json(self) -> dict[str, Any]:
        """Return the object that ``lab kjournald --json`` prints."""
        verdict = asdict(self.verdict) if self.verdict else None
        wanted = ("culprit", "mechanism", "remedy", "share")
        return {
            "variant": self.variant.name,
            "data": self.data,
            "story": self.variant.story,
            "verdict": verdict and {key: verdict[key] for key in wanted},
            "as_expected": self.as_expected,
            "insights": [asdict(insight) for insight in self.insights],
            "causes": self.explanation.causes,
            "sum_error_ns": self.explanation.split.sum_error_ns,
        }

    def text(self) -> Iterator[str]:
        """Yield what a terminal shows."""
        yield f"{self.variant.name}, data={self.data}: {self.variant.story}"
        for insight in self.insights:
            yield from wrap(f"* {insight.text}", 78, initial_indent="  ", subsequent_indent="    ")
        if not self.as_expected:
            yield f"  NOT the expected verdict: {' or '.join(self.variant.expected)}"


_LMTP: Role = {"role": "deliver", "n": 6, "think_ms": 100, "comm": "lmtp"}
_HEALTHY = (Delay("write", MS // 5), Delay("flush", 2 * MS))

VARIANTS = {
    v.name: v
    for v in (
        Variant(
            "fsync",
            "a small daemon syncs a file of eight bytes without end",
            ("forced_commits", "small_appends"),
            "statsd",
            ({"role": "sync_loop", "n": 1, "comm": "statsd"}, _LMTP),
            _HEALTHY,
        ),
        Variant(
            "checkpoint",
            "an indexer changes more names than the small journal holds",
            ("full_journal", "data_journal"),
            "journal",
            ({"role": "rename", "n": 2, "comm": "indexer"}, _LMTP),
            (Delay("write", 2 * MS, "data"), Delay("flush", 2 * MS)),
            mkfs=("-b", "1024", "-J", "size=1"),
        ),
        Variant(
            "dirindex",
            "a directory of 60,000 names has no index",
            ("linear_directory",),
            "shared",
            ({"role": "drop", "n": 4, "think_ms": 1, "comm": "lmtp"},),
            _HEALTHY,
            unindexed=True,
        ),
        Variant(
            "slowdisk",
            "the disk takes 25 ms to flush its cache",
            ("slow_disk",),
            "disk",
            (_LMTP,),
            (Delay("write", MS // 5), Delay("flush", 25 * MS)),
        ),
    )
}


def trace_name(variant: Variant, data: str) -> str:
    """Return the name of a variant's trace."""
    return f"{variant.name}-{data}.trace"


def run_all(
    variants: Sequence[Variant],
    data: str,
    seconds: float,
    output: Path | None,
    progress: Progress,
) -> list[Case]:
    """Run variants one after the other; keep their traces in ``output`` if given.

    Raises:
        SpoolscopeError: something that it takes is missing.
    """
    cases = []
    with ending_on_signals():
        if output is not None:
            output.mkdir(exist_ok=True)
        for variant in variants:
            with memory_directory() as place:
                cases.append(run(variant, data, place, seconds, output, progress))
    return cases


def run(
    variant: Variant,
    data: str,
    place: Path,
    seconds: float,
    output: Path | None,
    progress: Progress,
) -> Case:
    """Run a variant, record it and explain it.

    Args:
        variant: The variant.
        data: The journal's mode: ordered or journal.
        place: An empty directory.
        seconds: Duration of the load.
        output: Directory for its trace; None if it is not kept.
        progress: Called with the current phase.

    Raises:
        SpoolscopeError: something that it takes is missing.
    """
    image, mount, log = place / "image", place / "mnt", place / "deeds.log"
    progress(f"making the filesystem: {variant.story}", None)
    format_image(image, "ext3", SIZE_BYTES, ("-N", str(2 * NAMES), *variant.mkfs))
    if variant.unindexed:
        with mounted(image, mount, "ext3"):
            fill_directory(mount / "shared", NAMES)
        set_features(image, "^dir_index")
    options = f"noatime,data={data}"
    with SlowDisk(image, place) as disk, mounted(disk.path, mount, "ext3", options):
        plan = {"mount": str(mount), "seconds": seconds, "log": str(log), "roles": variant.roles}
        progress("recording", None)
        with delayed(disk, variant.delays, journal_places(image)):
            kept = (output or place) / trace_name(variant, data)
            trace = record_load(plan, mount, kept, snapshot="full")
    progress("explaining", None)
    explanation = explain(trace)
    return Case(variant, data, explanation.insights, explanation)
