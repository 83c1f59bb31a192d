"""The conditions of replays: only replays made under the same conditions are compared."""

from collections.abc import Sequence
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Self

from spoolscope.analysis.guests import accelerator
from spoolscope.analysis.wording import size
from spoolscope.traces.errors import USAGE, SpoolscopeError
from spoolscope.traces.results import ReplayResult, RunResult

ORIGINAL = "original"
# These fields are not options of replay under the same names.
_UNASKED = ("recorded", "accelerator")
_SAID = {"accelerator": "machine booted for it"}
AS_IT_WAS, COLD, RECORDED = "as it was", "cold", "recorded"


@dataclass(frozen=True)
class Conditions:
    """The settings of one replay, the same for all its runs; defaults are the replayer's.

    Attributes:
        pace: Timing of calls; order: the calls that each waits for; cache: content of memory at the
            start.
        age: Data written before the fixture, in multiples of the image's room; None if not aged.
        seed: Seed of the ageing and of the start times of user copies; None without both.
        compressible: Per cent of the data; duplicate: per cent of the files.
        realtime: True if tasks had real-time priority.
        recorded: True if runs are recorded, which slows them down; None if unknown.
        workers: Assignment of jobs: to the recorded process ("own"), or to a pool.
        accelerator: Executor of the booted machine's instructions; empty if none was booted.
    """

    pace: str = ORIGINAL
    order: str = "resource"
    cache: str = RECORDED
    age: float | None = None
    seed: int | None = None
    compressible: int = 0
    duplicate: int = 0
    realtime: bool = False
    recorded: bool | None = None
    accelerator: str = ""
    workers: str = "own"

    @classmethod
    def of(cls, header: ReplayResult) -> Self:
        """Return the conditions of a replay.json."""
        run = header.runs[0]
        age = run.age
        # The order of candidates follows from it too, but changes no run.
        seed = age.seed if age else header.seed if _is_scaled(header) else None
        return cls(
            pace=header.pace,
            order=run.order,
            cache=_cache(header, run),
            age=float(age.factor) if age else None,
            seed=seed,
            compressible=run.compressible,
            duplicate=run.duplicate,
            realtime=run.realtime,
            recorded=run.recorded,
            accelerator=accelerator(run),
            workers="pool" if run.workers else "own",
        )

    def options(self) -> list[str]:
        """Return the options of the verb replay that set these conditions, defaults left out."""
        words = []
        for condition in fields(self):
            value = getattr(self, condition.name)
            if condition.name not in _UNASKED and value and value != condition.default:
                words += [f"--{condition.name}", *([] if value is True else [_word(value)])]
        return [*words, "--no-record"] if self.recorded is False else words


def _cache(header: ReplayResult, run: RunResult) -> str:
    """Return the requested cache setting, also for a directory, whose caches are not emptied."""
    if run.cache != AS_IT_WAS:
        return run.cache
    return header.asked.cache if header.asked else COLD


def caches_at_begin(header: ReplayResult) -> str:
    """Return a sentence on what was in memory when the runs of a replay.json began."""
    run = header.runs[0]
    asked, cached = _cache(header, run), run.cached
    if run.cache == AS_IT_WAS:
        return "Caches: a directory's are as its filling left them, and never emptied."
    if asked == RECORDED and cached:
        held = f"{cached.names:,} names"
        if cached.files:
            held += f" and {size(cached.data_bytes)} of {cached.files:,} files"
        return f"Caches: as in the recording, {held} in memory ({cached.why})."
    words = {COLD: "cold: nothing was in memory", RECORDED: "as in the recording"}
    return f"Caches: {words.get(asked, 'warm: all was in memory')}."


def _is_scaled(header: ReplayResult) -> bool:
    return any(run.what_if and run.what_if.scale for run in header.runs)


def _word(value: object) -> str:
    return f"{value:g}" if isinstance(value, float) else str(value)


def check_alike(outputs: Sequence[Path], headers: Sequence[ReplayResult]) -> None:
    """Refuse replays made under different conditions: their runs must not be pooled.

    Calls left out on purpose may differ: each choice is another candidate.

    Raises:
        SpoolscopeError: they differ.
    """
    made = [Conditions.of(header) for header in headers]
    differing = []
    for condition in fields(Conditions):
        values = [getattr(one, condition.name) for one in made]
        known = {value for value in values if value is not None or condition.name == "age"}
        if len(known) > 1:
            pairs = zip(values, outputs, strict=True)
            said = ", ".join(f"{_shown(value)} in {output}" for value, output in pairs)
            differing.append(f"{_SAID.get(condition.name, condition.name)} ({said})")
    if differing:
        raise SpoolscopeError(
            f"the replays were not made alike: {'; '.join(differing)}",
            remedy="compare replays made with the same options, or each by itself",
            exit_code=USAGE,
        )


def _shown(value: object) -> str:
    if value in (None, ""):
        return "none"
    return ("no", "yes")[value] if isinstance(value, bool) else _word(value)
