"""The verdict in words: a headline, its basis, and what would make it more certain."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from spoolscope.analysis.candidate_runs import Candidate
from spoolscope.analysis.certificate import Certificate, certificates
from spoolscope.analysis.durability import SAME, WEAKER
from spoolscope.analysis.guests import counts_instructions, weaknesses
from spoolscope.analysis.lateness_effect import EXCUSED
from spoolscope.analysis.metrics import PRIMARY, WAITING
from spoolscope.analysis.outcomes import Replay
from spoolscope.analysis.pairs import Pair
from spoolscope.analysis.rerun import more_rounds
from spoolscope.analysis.stats import (
    MINIMUM_EFFECT,
    MINIMUM_ROUNDS,
    Estimate,
    interval_word,
    rounds_wanted,
)
from spoolscope.analysis.wording import change, count, duration, interval

REASONS_OF_KERNEL = 2

IDLE = "  # on an idle machine"
"""A disturbed replay needs it more than rounds; behind the command it is a comment of the shell."""

LEAST_TAKEN = 0.02
"""Least share of time taken by other programs that is worth a sentence."""


@dataclass(frozen=True)
class Verdict:
    """The answer for a user.

    Attributes:
        word: faster, equivalent, inconclusive or indicative; "alone" with one candidate.
        best: The candidate with the least time in calls; other is the one that it is compared with.
        headline: Which is faster and by how much, one sentence.
        sure: How certain that is, one or two sentences.
        reasons: Sentences on why, the most important first.
        problems: Sentences on what weakens it.
        warnings: Sentences on pairs that the two primary metrics order differently.
        next_command: Command for a more certain answer; None if there is nothing to gain.
    """

    word: str
    best: str
    other: str | None
    headline: str
    sure: str
    reasons: list[str]
    problems: list[str]
    next_command: str | None
    warnings: list[str] = field(default_factory=list)


def give_verdict(
    replay: Replay,
    candidates: Mapping[str, Candidate],
    pair: "Pair | None",
    beside: Mapping[str, Pair],
    kernels: Sequence[Pair] = (),
    *,
    n_calls: int,
) -> Verdict:
    """Return the verdict on which candidate is best.

    Args:
        replay: The compared replays.
        candidates: Candidates by name, the best first.
        pair: The best candidate against the one that it is compared with.
        beside: Each other candidate, by name, against the best.
        kernels: Candidates on newer kernels against the same ones on the oldest.
        n_calls: Number of calls compared.
    """
    best = candidates[pair.candidate] if pair else next(iter(candidates.values()))
    problems = [
        f"{name}: {problem}." for name, c in candidates.items() for problem in c.fidelity.problems
    ]
    problems += [f"{name}: {c.damage}." for name, c in candidates.items() if c.damage]
    asked = (run.result.what_if for run in replay.runs)
    problems[:0] = dict.fromkeys(what_if.sentence for what_if in asked if what_if)
    problems += weaknesses(run.result for run in replay.runs)
    if replay.unmade:
        whole = len(replay.runs) + replay.unmade
        problems.append(f"{replay.unmade} of {whole} runs were not made: --resume goes on.")
    if replay.trace is None:
        problems.append("The replayed trace is not where it was: calls have no names here.")
    if replay.trace is not None and not replay.trace.meta.get("complete", False):
        problems.append("The replayed trace is not complete.")
    counted = any(counts_instructions(run.result) for run in replay.runs)
    on_cpu = "on the CPU " if counted else ""
    if pair is None:
        spent = duration(best.metrics[PRIMARY])
        headline = f"{best.name} spent {spent} {on_cpu}in {count(n_calls)} calls."
        sure = f"One candidate alone: there is nothing to compare it with.{_modelled(replay)}"
        return Verdict("alone", best.name, None, headline, sure, [], problems, None)
    problems += _at_other_times(pair)
    unfaithful, why = _unfaithful(replay, pair, candidates)
    basis = _basis(n_calls, counted=counted)
    return Verdict(
        word=pair.word,
        best=best.name,
        other=pair.reference,
        headline=" ".join(
            [
                *_kernels(kernels, on_cpu),
                *unfaithful,
                _headline(pair, candidates, on_cpu),
                *_at_what_price(pair, candidates),
            ]
        ),
        sure=" ".join(
            [
                _sure(pair, basis) + _modelled(replay),
                *_lateness(pair, certificates(replay.runs)),
                *_beside(best.name, beside),
                *_few_rounds([pair, *beside.values()]),
            ]
        ),
        reasons=[
            *(f"{reason.text}." for one in kernels for reason in one.why[:REASONS_OF_KERNEL]),
            *(reason.text + "." for reason in pair.why),
            *_no_merit(pair, candidates),
            *why,
        ],
        problems=problems,
        next_command=_next(replay, kernels or [pair], candidates, _undecided(beside)),
    )


def order_warnings(pairs: Sequence[Pair]) -> list[str]:
    """Return a sentence on each pair that the two primary metrics order differently."""
    return [
        f"The two primary metrics order {pair.candidate} and {pair.reference} differently: "
        f"{change(pair.primary.ratio)} time in calls, {change(pair.secondary[WAITING].ratio)} from "
        "due to end. Near its limit a candidate has work wait for its own process, and a server "
        "with idle workers would hand it on: the truth lies between, or is found at a lower rate."
        for pair in pairs
        if pair.contradicts
    ]


def disturbed_runs(replay: Replay) -> list[str]:
    """Return sentences on the runs that were disturbed, and those repeated for that."""
    found = [run.result.disturbance for run in replay.runs]
    disturbed = [one.why for one in found if one and one.why]
    again = sum(len(run.result.repeated) for run in replay.runs)
    repeats = f"; {again} were made again for such a reason" if again else ""
    if not disturbed:
        return [f"{again} disturbed runs were made again."] if again else []
    worst = " and ".join(disturbed[0])
    runs = f"{len(disturbed)} of {len(found)} runs"
    return [f"{runs} were disturbed (the first: {worst}){repeats}."]


def _modelled(replay: Replay) -> str:
    """Name the device models whose times were played, "" if there are none."""
    models = sorted({run.result.device_model for run in replay.runs} - {""})
    if not models:
        return ""
    return f" Times of disks are those of the device model {' or '.join(models)}, not of a disk."


def _kernels(kernels: Sequence[Pair], on_cpu: str) -> list[str]:
    """Return sentences on the effect of each newer kernel on each candidate."""
    said = []
    for pair in kernels:
        time = f"{change(pair.primary.ratio)} time {on_cpu}in calls"
        found = {
            "equivalent": f"{pair.candidate} is equivalent to {pair.reference} ({time})",
            "inconclusive": f"{pair.candidate} against {pair.reference} is undecided ({time})",
            "indicative": f"{pair.candidate} may take {time}, by so few rounds",
        }
        decided = f"{pair.candidate} is {pair.word} than {pair.reference}: {time}"
        said.append(f"{found.get(pair.word, decided)}.")
    return said


def _headline(pair: Pair, candidates: Mapping[str, Candidate], on_cpu: str) -> str:
    spent = [duration(candidates[n].metrics[PRIMARY]) for n in (pair.candidate, pair.reference)]
    numbers = f"{spent[0]} against {spent[1]} {on_cpu}in calls"
    said = change(pair.primary.ratio)
    if pair.word == "faster":
        return f"{pair.candidate} is faster than {pair.reference}: {said} time, {numbers}."
    if pair.word == "equivalent":
        return f"{pair.candidate} and {pair.reference} are equivalent: {numbers}."
    if pair.word == "inconclusive":
        names = (pair.candidate, pair.reference)
        true = all(candidates[name].fidelity.ok for name in names)
        why = _doubt(pair, said) if true else "such runs carry no verdict"
        why += f"; {said} time" * (not true and not math.isnan(pair.primary.ratio))
        return f"Undecided between {' and '.join(names)}: {why} ({numbers})."
    looks = "looks" if _apart(pair.primary) else "may be"
    return f"{pair.candidate} {looks} faster than {pair.reference}: {said} time, {numbers}."


def _at_other_times(pair: Pair) -> list[str]:
    if pair.at_once:
        return []
    return [
        f"{pair.candidate} and {pair.reference} were not replayed in turns: what changed on the "
        "machine meanwhile counts as a difference between them."
    ]


def _at_what_price(pair: Pair, candidates: Mapping[str, Candidate]) -> list[str]:
    """Return a sentence on the durability of the two candidates, if it differs."""
    ours, theirs = (candidates[name].durability for name in (pair.candidate, pair.reference))
    if ours == theirs:
        return []
    if ours.startswith(WEAKER):
        return [f"But it is less durable: {ours.removeprefix(WEAKER)}."]
    if ours == SAME and theirs.startswith(WEAKER):
        return [f"It is more durable, too; {pair.reference}: {theirs.removeprefix(WEAKER)}."]
    return ["How durable both are is not stated."]


def _beside(best: str, beside: Mapping[str, Pair]) -> list[str]:
    """Return sentences on how the other candidates stand to the best, if there are several."""
    if len(beside) < 2:
        return []
    level = [name for name, pair in beside.items() if pair.word == "equivalent"]
    slower = [name for name, pair in beside.items() if _looks_slower(pair)]
    open_ = [name for name in _undecided(beside) if name not in slower]
    if len(slower) == len(beside):
        return [f"All {len(beside)} others look slower than {best}."]
    said = []
    if level:
        said.append(f"As good as {best}: {', '.join(level)}.")
    if open_:
        said.append(f"Not told apart from {best}: {', '.join(open_)}.")
    if slower:
        verb = "look" if len(slower) > 1 else "looks"
        said.append(f"{' and '.join(slower)} {verb} slower than {best}.")
    return said or [f"All {len(beside)} others are slower than {best}."]


def _undecided(beside: Mapping[str, Pair]) -> list[str]:
    """Return the candidates on which more rounds may give a verdict."""
    return [n for n, pair in beside.items() if pair.word in ("inconclusive", "indicative")]


def _looks_slower(pair: Pair) -> bool:
    """Return True if only rounds are missing for the verdict that a candidate is slower."""
    return pair.word == "indicative" and pair.primary.ratio > 1 and _apart(pair.primary)


def _apart(estimate: Estimate) -> bool:
    """Return True if no value of an interval counts as no difference.

    One round without an interval has its ratio alone.
    """
    low, high = estimate.low or estimate.ratio, estimate.high or estimate.ratio
    return interval_word(low, high) in ("faster", "slower")


def _few_rounds(pairs: Sequence[Pair]) -> list[str]:
    few = any(pair.word == "indicative" for pair in pairs)
    return [f"A verdict needs {MINIMUM_ROUNDS} rounds."] if few else []


def _doubt(pair: Pair, said: str) -> str:
    """Return why there is no verdict on a difference."""
    estimate = pair.primary
    if pair.chance:
        return (
            f"{said} time, but about as much of it was waiting for CPUs that programs outside the "
            "replay had"
        )
    if estimate.low is None or estimate.high is None:
        return f"{said} time"
    bounds = interval(estimate.low, estimate.high)
    if estimate.low <= 1 <= estimate.high:
        return f"anything from {bounds} is possible"
    return f"from {bounds} is possible, and {100 * MINIMUM_EFFECT:.0f} % counts as no difference"


def _unfaithful(
    replay: Replay, pair: Pair, candidates: Mapping[str, Candidate]
) -> tuple[list[str], list[str]]:
    """Return sentences on unfaithful runs: which ones, for the start; why, for later."""
    given = {one.candidate: one for one in certificates(replay.runs)}
    said, late, why = [], [], []
    for name in (pair.candidate, pair.reference):
        one, problems = given.get(name), candidates[name].fidelity.problems
        if problems:
            said.append(f"{name} is not replayed faithfully: {problems[0]}.")
        elif one is not None and one.unfaithful and not _excused(pair, one):
            late.append(f"{one.unfaithful} of {one.rounds} runs on {name}")
            why.append(f"Not faithful, {name}: {one.sentences[0]}")
    if late:
        said.append(f"Not faithful: {', '.join(late)}.")
    return said, why


def _excused(pair: Pair, one: Certificate) -> bool:
    """Return True if all goals that its runs missed have no effect on this verdict."""
    effect = pair.lateness
    return effect is not None and effect.holds and one.missed <= frozenset(EXCUSED)


def _lateness(pair: Pair, given: Sequence[Certificate]) -> list[str]:
    """Return a sentence on the effect of lateness, if a certificate missed its goal."""
    pair_of = {pair.candidate, pair.reference}
    late = any(one.missed & frozenset(EXCUSED) for one in given if one.candidate in pair_of)
    return [pair.lateness.sentence] if late and pair.lateness else []


def _no_merit(pair: Pair, candidates: Mapping[str, Candidate]) -> list[str]:
    """Return a sentence on the CPU time that other programs took from one more than the other."""
    totals = [candidates[name].metrics[PRIMARY] or 0.0 for name in (pair.candidate, pair.reference)]
    if abs(pair.strangers_ns) < LEAST_TAKEN * max(*totals, 1.0):
        return []
    less = pair.candidate if pair.strangers_ns < 0 else pair.reference
    more = pair.reference if less == pair.candidate else pair.candidate
    return [
        f"No merit of {less}: calls waited {duration(abs(pair.strangers_ns))} less on it than on "
        f"{more} for CPUs that programs outside the replay, the recorder included, had."
    ]


def _basis(n_calls: int, *, counted: bool) -> str:
    if counted:
        return "Instructions of all calls but those that make and end processes"
    return f"The same {count(n_calls)} calls on each, file locking left out"


def _sure(pair: Pair, basis: str) -> str:
    estimate = pair.primary
    if estimate.method == "paired-t":
        said = _rounds(estimate)
        rounds = f"{estimate.n} paired rounds" if pair.at_once else f"{estimate.n} rounds of each"
        rest = f"{basis}; {rounds}, lower in {said}"
        text = f"{rest}; 95 % interval {interval(estimate.low, estimate.high)}."
    elif estimate.method == "within-run":
        text = (
            f"{basis}, one round: indicative only. Within this run the interval is "
            f"{interval(estimate.low, estimate.high)}; what another run would give is not in it."
        )
    else:
        text = f"{basis}, {estimate.n} round: indicative only, without an interval."
    return text


def _rounds(estimate: Estimate) -> str:
    return f"{estimate.n_lower}/{estimate.n}"


def _next(
    replay: Replay,
    pairs: Sequence[Pair],
    candidates: Mapping[str, Candidate],
    undecided: Sequence[str],
) -> str | None:
    open_ = [pair for pair in pairs if pair.word not in {"faster", "slower", "equivalent"}]
    if not open_:
        return None
    wanted = [name for pair in open_ for name in (pair.candidate, pair.reference)]
    found = [run.result.disturbance for run in replay.runs if run.candidate in wanted]
    disturbed = any(one.why for one in found if one)
    # More rounds do not help a machine that cannot keep the recorded pace; half of it may.
    late = any(c.fidelity.late for c in candidates.values())
    late = late or (not disturbed and _misses_pace(replay, open_))
    rounds = max(rounds_wanted(pair.primary) for pair in open_)
    command = more_rounds(replay, wanted, rounds, late=late, undecided=undecided)
    return command + IDLE * disturbed if command else None


def _misses_pace(replay: Replay, pairs: Sequence[Pair]) -> bool:
    """Return True if runs missed goals of their certificates by lateness that has an effect."""
    given = {one.candidate: one for one in certificates(replay.runs)}
    return any(
        one.missed & frozenset(EXCUSED) and not _excused(pair, one)
        for pair in pairs
        for one in (given.get(pair.candidate), given.get(pair.reference))
        if one is not None
    )
