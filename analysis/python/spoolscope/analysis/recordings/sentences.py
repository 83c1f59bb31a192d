"""The comparison of two recordings in sentences, with its limits."""

from collections.abc import Iterable
from typing import Any

from spoolscope.analysis.causes import CAUSES
from spoolscope.analysis.recordings.moved import (
    LEAST_CALLS,
    LEAST_COVERED,
    LEAST_DELIVERIES,
    Between,
    plain,
)
from spoolscope.analysis.recordings.resampling import Moved, run_length
from spoolscope.analysis.recordings.surroundings import names_match
from spoolscope.analysis.recordings.windows import ANY_PROGRAM, HIDDEN_PROGRAM, Windows
from spoolscope.analysis.stats import MINIMUM_BLOCKS
from spoolscope.analysis.wording import change, count, duration, interval, percent

OTHER_LOAD = 1.25
"""Factor between the rates of calls from which the load counts as different."""
OTHER_MIX = 0.1
WELL_COVERED = 0.9
NAMED = 3


def names(between: Between) -> tuple[str, str]:
    """Return the names of both recordings: those of their directories, or if equal their paths."""
    sides = (between.reference, between.candidate)
    if sides[0].name != sides[1].name:
        return sides[0].name, sides[1].name
    return str(sides[0].trace.path), str(sides[1].trace.path)


def word(between: Between) -> str:
    """Return the verdict on a call of the same mix: slower, faster, equivalent or inconclusive."""
    if min(between.load.covered_time) < LEAST_COVERED:
        return "inconclusive"
    return between.cost.word


def headline(between: Between) -> str:
    """Return a sentence on the change of the time of a call."""
    ours, theirs = names(between)
    cost, said = between.cost, word(between)
    ends = interval(cost.low, cost.high)
    if said == "inconclusive":
        return f"Whether calls are slower in {theirs} than in {ours} is not known ({ends})."
    if said == "equivalent":
        return f"Calls take as long in {theirs} as in {ours}: within 5 % ({ends})."
    moved = change(cost.ratio)
    return f"Calls are {said} in {theirs} than in {ours}: {moved} time for the same mix ({ends})."


def load_sentences(between: Between) -> list[str]:
    """Return sentences on the difference of the loads, which come before those on times."""
    ours, theirs = names(between)
    load = between.load
    rates = (load.rate.reference, load.rate.candidate)
    said = [
        f"Load: {count(load.calls[0])} calls in {load.seconds[0]:,.1f} s ({rates[0]:,.0f}/s) in "
        f"{ours}, {count(load.calls[1])} in {load.seconds[1]:,.1f} s ({rates[1]:,.0f}/s) in "
        f"{theirs}: {_with(load.rate)}.",
        f"Mix: {percent(load.mix)} of the calls are of another kind (program, call, class of "
        f"file). Both have {percent(load.covered_time[0])} and {percent(load.covered_time[1])} of "
        "their time in kinds that the other has, too: these are compared.",
        f"Time in calls a second: {_with(between.total)} = {load.rate.ratio:.2f} (calls) x "
        f"{between.mix_effect:.2f} (mix) x {between.cost.ratio:.2f} (what a call costs).",
    ]
    if load.counted_as:
        said.append(
            f"Deliveries: {count(load.deliveries[0])} and {count(load.deliveries[1])} (messages "
            f"{load.counted_as})."
        )
    return said


def reasons(between: Between) -> list[str]:
    """Return sentences on the causes that certainly changed, those that changed most.

    All causes together are named without any change in 5 % of comparisons at most (Bonferroni).
    """
    found: list[str] = []
    parts = between.parts["cause"]
    wider = between.judge.wider(len(parts))
    for part in parts:
        moved = part.moved
        if moved.difference_high is None:
            continue
        half = wider * (moved.difference_high - moved.difference)
        if abs(moved.difference) > half and len(found) < NAMED:
            less = "less" if moved.difference < 0 else "more"
            found.append(
                f"{CAUSES[part.name].label}: {duration(abs(moved.difference))} {less} of each "
                f"call ({duration(moved.reference)}, then {duration(moved.candidate)})"
            )
    return found


def limits(between: Between) -> list[str]:
    """Return sentences on what two recordings cannot show."""
    return [*_of_load(between), *_of_sides(between), *_of_names(between), _method(between)]


def _of_load(between: Between) -> Iterable[str]:
    load = between.load
    if not 1 / OTHER_LOAD <= load.rate.ratio <= OTHER_LOAD:
        yield (
            f"The load was {load.rate.ratio:.2f} times the first one: calls wait longer under more "
            "load, and how much of the difference is the load these two do not tell."
        )
    if load.mix > OTHER_MIX:
        yield (
            f"The mix of calls differed by {percent(load.mix)}: times of a call are those of the "
            "first one's mix; sizes of messages and mailboxes may differ still."
        )
    for name, covered, left in zip(names(between), load.covered_time, load.left, strict=True):
        if covered < WELL_COVERED:
            most = "; ".join(
                f"{' '.join(kind.stratum)}, {percent(kind.share)}" for kind in left[:3]
            )
            yield (
                f"{percent(1 - covered)} of the time of {name} is in kinds of calls of which the "
                f"other has fewer than {LEAST_CALLS}: {most}."
            )
    if load.counted_as is None:
        yield "Deliveries are not seen in the file names of both: nothing is said per delivery."
    elif min(load.deliveries) < LEAST_DELIVERIES:
        yield f"Fewer than {LEAST_DELIVERIES} deliveries: nothing is said per delivery."
    if word(between) == "inconclusive" and between.cost.low is not None:
        yield "Longer recordings narrow the interval: about by half for four times the length."


def _of_sides(between: Between) -> Iterable[str]:
    for name, side in zip(names(between), (between.reference, between.candidate), strict=True):
        yield from _of_side(name, side)
    if between.differences:
        yield (
            "Besides, these differ, and each may be why: "
            + ", ".join(dict.fromkeys(difference.what for difference in between.differences))
            + "."
        )


def _of_side(name: str, side: Windows) -> Iterable[str]:
    meta = side.trace.meta
    if not meta.get("complete", False):
        yield f"{name} is not complete ({count(meta.get('lost', 0))} records lost)."
    whole, compared = int(meta["counts"]["syscalls"]), round(float(side.sums["calls"].sum()))
    if compared < whole:
        yield (
            f"{name} has {count(whole)} calls, of which {count(whole - compared)} are left out: "
            "those before its snapshot was taken, file locking, and calls that had not returned."
        )
    if meta.get("shed"):
        yield f"{name} left {count(meta['shed'])} calls out to keep to --max-overhead."
    if meta.get("imported"):
        yield f"{name} was imported: it tells no causes."
    if side.n < MINIMUM_BLOCKS:
        yield f"{name} has {side.n} windows of 1 s: fewer than {MINIMUM_BLOCKS} give no interval."


def _of_names(between: Between) -> Iterable[str]:
    sides = (between.reference, between.candidate)
    if not names_match(sides[0].trace, sides[1].trace):
        hidden = any(stratum[0] == HIDDEN_PROGRAM for stratum in between.strata)
        yield (
            "The recordings hide names with different keys, or one of them does not: mailboxes and "
            "files cannot be matched, programs and classes of files can"
            + ("; programs with hidden names count as one." if hidden else ".")
        )
    if any(stratum[0] == ANY_PROGRAM for stratum in between.strata):
        yield "Programs have other names, or other work: calls are compared without them."


def _method(between: Between) -> str:
    ours, theirs = between.reference, between.candidate
    said = " and ".join(
        f"{side.n} windows of {side.window_ns / 1e9:.3g} s, drawn {run_length(side.n)} at a time"
        for side in (ours, theirs)
    )
    return (
        f"Method of the intervals: the recordings are cut into {said}, with replacement (circular "
        "block bootstrap, Student's t on logarithms, 95 %, each by itself). They tell how much "
        "each recording varies in itself; two days without any change differ, too."
    )


def _with(moved: Moved) -> str:
    return f"{moved.ratio:.2f} times ({interval(moved.low, moved.high)})"


def to_json(between: Between) -> dict[str, Any]:
    """Return the object that ``compare --json`` prints of two recordings."""
    ours, theirs = names(between)
    return {
        "kind": "recordings",
        "reference": ours,
        "candidate": theirs,
        "traces": {
            "reference": str(between.reference.trace.path),
            "candidate": str(between.candidate.trace.path),
        },
        "verdict": {"word": word(between), "headline": headline(between)},
        "load": plain(between.load),
        "cost": plain(between.cost),
        "time_per_second": plain(between.total),
        "mix_effect": between.mix_effect,
        **{f"by_{kind}": [plain(part) for part in parts] for kind, parts in between.parts.items()},
        "by_mailbox": None if between.boxes is None else [plain(part) for part in between.boxes],
        "per_delivery": {what: plain(moved) for what, moved in between.per_delivery.items()},
        "differences": [plain(difference) for difference in between.differences],
        "reasons": reasons(between),
        "limits": limits(between),
        "windows": {
            name: {"n": side.n, "ns": side.window_ns, "drawn_in_runs_of": run_length(side.n)}
            for name, side in (("reference", between.reference), ("candidate", between.candidate))
        },
    }
