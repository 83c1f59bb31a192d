"""Comparison of the recording with a replay on the recorded filesystem: a test of the replay."""

from dataclasses import dataclass
from typing import Any

import numpy as np

from spoolscope.analysis.conditions import ORIGINAL
from spoolscope.analysis.guests import counts_instructions
from spoolscope.analysis.metrics import block_sums, has_all, time_blocks
from spoolscope.analysis.outcomes import Replay
from spoolscope.analysis.stats import Estimate, paired, within_run
from spoolscope.analysis.wording import interval
from spoolscope.traces.results import RunResult


@dataclass(frozen=True)
class OwnReplay:
    """Ratio of the time in calls, replay by recording, over the same calls.

    Attributes:
        candidate: Candidate of the recorded filesystem type.
        fstype: That type. Disk and options may differ from the recorded ones.
        ratio: Replay by recording, over the rounds.
    """

    candidate: str
    fstype: str
    ratio: Estimate

    @property
    def sentence(self) -> str:
        """The ratio in words, for a user."""
        e = self.ratio
        bounds = f", {interval(e.low, e.high)}" if e.low is not None else ""
        return (
            f"Replay of its own filesystem: {self.candidate} took {e.ratio:.2f} x the time of the "
            f"recording on {self.fstype} in the same calls{bounds}."
        )


def recorded_types(replay: Replay) -> list[str]:
    """Return the types of the filesystems that were recorded; none without the trace."""
    return sorted({str(s["fstype"]) for s in _spools(replay) if s.get("fstype")})


def _spools(replay: Replay) -> list[dict[str, Any]]:
    """Return what is known of the recorded spools; nothing without the trace."""
    return replay.trace.meta.get("spools", []) if replay.trace else []


def own_replay(replay: Replay, calls: np.ndarray) -> OwnReplay | None:
    """Return the ratio of the candidate of the recorded type at the recorded pace, or None.

    Of several it is the one with the mount options that differ least from the recorded ones. Runs
    with a device model, with calls left out or with more users do not count: their times are those
    of another machine.
    """
    types = recorded_types(replay)
    runs = [
        run
        for run in replay.runs
        if run.result.fstype in types
        and not run.result.device_model
        and not run.result.what_if
        and not counts_instructions(run.result)
        and has_all(run, calls)
    ]
    if not runs or not len(calls) or replay.header.pace != ORIGINAL:
        return None
    nearest = min(runs, key=lambda run: _other_options(replay, run.result)).candidate
    runs = [run for run in runs if run.candidate == nearest]
    then = replay.recorded_ns[calls]
    totals = [float(run.latency_ns[calls].sum()) for run in runs]
    ratio = paired(totals, [float(then.sum())] * len(runs))
    if len(runs) == 1:
        blocks, seed = time_blocks(replay, calls), replay.header.seed or 0
        now = block_sums(runs[0].latency_ns[calls], blocks)
        ratio = within_run(now, block_sums(then, blocks), seed)
    return OwnReplay(runs[0].candidate, runs[0].result.fstype, ratio)


def _other_options(replay: Replay, result: RunResult) -> int:
    """Count the mount options that only one of the two has: a recorded spool, or the run."""
    given = set(result.mount_options.split(","))
    same = [spool for spool in _spools(replay) if spool.get("fstype") == result.fstype]
    return min(len(given ^ set(str(spool.get("options", "")).split(","))) for spool in same)


def own_sentence(replay: Replay, own: OwnReplay | None) -> str:
    """Return a sentence on the replay of the recorded filesystem, or why there is none."""
    if own is not None:
        return own.sentence
    types = recorded_types(replay)
    if not types:
        return "Replay of its own filesystem: not known, as the replayed trace is not at hand."
    if replay.header.pace != ORIGINAL:
        return "Replay of its own filesystem: not known, as the pace was not the recorded one."
    there = any(run.result.fstype in types for run in replay.runs)
    why = "only as a what-if" if there else f"add --on {types[0]} to a replay"
    return f"Replay of its own filesystem ({types[0]}): there is none; {why}."
