"""What replays were made under: only those made alike are compared."""

from collections.abc import Sequence
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Self

from spoolscope.analysis.guests import accelerator
from spoolscope.analysis.wording import size
from spoolscope.traces.errors import USAGE, SpoolscopeError
from spoolscope.traces.results import ReplayResult, RunResult

ORIGINAL = "original"
# No option of replay by their own names.
_UNASKED = ("recorded", "accelerator")
_SAID = {"accelerator": "machine booted for it"}
AS_IT_WAS, COLD, RECORDED = "as it was", "cold", "recorded"


@dataclass(frozen=True)
class Conditions:
    """What one replay was asked for, the same for all its runs; defaults are the replayer's.

    Attributes:
        pace: How calls are timed; order what they wait for; cache what is in memory at the start.
        age: How many times the room of an image was written before; None if it was not aged.
        seed: Of that and of the times that copies of users begin at; None where there is neither.
        compressible: Per cent of the data; duplicate: per cent of the files.
        realtime: Whether tasks had real-time priority.
        recorded: Whether runs are recorded, which slows them down; None if that is not told.
        workers: Whether jobs are kept for the recorded process, or go to a pool.
        accelerator: What ran the instructions of a machine booted for it; empty if none was.
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
        """Return those of a replay.json."""
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
        """Return the words that ask the verb replay for them, defaults left out."""
        words = []
        for condition in fields(self):
            value = getattr(self, condition.name)
            if condition.name not in _UNASKED and value and value != condition.default:
                words += [f"--{condition.name}", *([] if value is True else [_word(value)])]
        return [*words, "--no-record"] if self.recorded is False else words


def _cache(header: ReplayResult, run: RunResult) -> str:
    """Return what was asked for; a directory, whose caches nothing empties, is as it was."""
    if run.cache != AS_IT_WAS:
        return run.cache
    return header.asked.cache if header.asked else COLD


def caches_at_begin(header: ReplayResult) -> str:
    """Say in a sentence what was in memory when the runs of a replay.json began."""
    run = header.runs[0]
    asked, cached = _cache(header, run), run.cached
    if run.cache == AS_IT_WAS:
        return "Caches: a directory's are as its filling left them, and never emptied."
    if asked == RECORDED and cached:
        held = f"{cached.names:,} names"
        if cached.files:
            held += f" and {size(cached.data_bytes)} of {cached.files:,} files"
        return f"Caches: as in the recording, {held} in memory ({cached.why})."
    told = {COLD: "cold: nothing was in memory", RECORDED: "as in the recording"}
    return f"Caches: {told.get(asked, 'warm: all was in memory')}."


def _is_scaled(header: ReplayResult) -> bool:
    return any(run.what_if and run.what_if.scale for run in header.runs)


def _word(value: object) -> str:
    return f"{value:g}" if isinstance(value, float) else str(value)


def check_alike(outputs: Sequence[Path], headers: Sequence[ReplayResult]) -> None:
    """Refuse replays made under different conditions: their runs must not be pooled.

    What was left out on purpose may differ: that is another candidate.

    Raises:
        SpoolscopeError: they differ.
    """
    made = [Conditions.of(header) for header in headers]
    differing = []
    for condition in fields(Conditions):
        values = [getattr(one, condition.name) for one in made]
        known = {value for value in values if value is not None or condition.name == "age"}
        if len(known) > 1:
            told = zip(values, outputs, strict=True)
            said = ", ".join(f"{_shown(value)} in {output}" for value, output in told)
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
