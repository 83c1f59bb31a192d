"""The parameters of a recording."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal

Snapshot = Literal["full", "touched", "none"]


@dataclass(frozen=True)
class Limit:
    """A size or an age; both None: no limit."""

    size_bytes: int | None = None
    age_s: float | None = None

    def __bool__(self) -> bool:
        """Return whether there is a limit."""
        return self.size_bytes is not None or self.age_s is not None


CauseRules = Sequence[Mapping[str, Any]]
"""Rules for causes of stacks: cause, frames (each with next and names), around, last_resort."""


@dataclass(frozen=True)
class FreezeRule:
    """A rule that freezes a flight recorder.

    Attributes:
        words: The rule as a user writes it.
        limit: One of: slow_ns; errno; in_flight_ns; lock_held_ns; cause and ns; commits and
            window_ns.
    """

    words: str
    limit: Mapping[str, int | str]


@dataclass(frozen=True)
class Request:
    """The parameters of a recording; see ``spoolscope record --help``.

    Attributes:
        hide_programs: Hide the names of all programs, not only private ones.
        keep_book: Write the names that are hidden into the operator's book.
        snapshot: The whole tree, the directories that calls use, or nothing of it.
        rotate: Limit at which the next trace of a divided recording begins.
        keep: Number of its traces, or frozen windows, that are kept; None: all.
        yields: Convert them at a low priority as long as the recording goes on.
        last: The window of a flight recorder.
        freeze_on: Rules that freeze it; ``spoolscope freeze`` does so, too.
        cause_rules: Rules that name causes, for freeze rules on causes.
        on_freeze: Command that is run with the path of each frozen trace but the last one.
        blktrace: Add the stages of block requests; not for a series.
        ring_mib: Memory between kernel and recorder; None: the recorder's default.
        user_stacks: Record the code that made calls: those that sync, or all.
        rollup_s: Sum calls over so many seconds of the wall clock; None: do not. Without ``last``
            there are no records then.
        sample_hz: Samples per second of each CPU; 0: none, None: the recorder's default.
    """

    spools: list[Path]
    output: Path
    command: list[str] | None = None
    duration_s: float | None = None
    pids: list[int] = field(default_factory=list)
    cgroups: list[str] = field(default_factory=list)
    units: list[str] = field(default_factory=list)
    exes: list[Path] = field(default_factory=list)
    comms: list[str] = field(default_factory=list)
    max_overhead_percent: float | None = None
    keep_names: bool = False
    hide_programs: bool = False
    keep_book: bool = True
    snapshot: Snapshot = "full"
    blktrace: bool = False
    snapshot_rate: int | None = None
    key_file: Path | None = None
    stdout_to_stderr: bool = False
    ring_mib: int | None = None
    sample_hz: int | None = None
    user_stacks: Literal["sync", "all"] | None = None
    rotate: Limit = Limit()
    keep: int | None = None
    yields: bool = True
    last: Limit = Limit()
    freeze_on: Sequence[FreezeRule] = ()
    cause_rules: CauseRules = ()
    on_freeze: Sequence[str] = ()
    rollup_s: float | None = None

    @property
    def is_series(self) -> bool:
        """Return whether the output is a directory of several traces."""
        return bool(self.rotate or self.last)
