"""Compare the candidates of a replay: which is faster, by how much, why, how surely."""

import math
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np

from spoolscope.analysis.candidate_runs import Candidate
from spoolscope.analysis.causes import CAUSES
from spoolscope.analysis.conditions import caches_at_begin
from spoolscope.analysis.durability import beside
from spoolscope.analysis.explain import explain
from spoolscope.analysis.fidelity import fidelity
from spoolscope.analysis.guests import (
    age_of_kernel,
    counts_instructions,
    on_cpu,
    on_newer_kernels,
)
from spoolscope.analysis.lives import lives, unclean
from spoolscope.analysis.metrics import (
    METRICS,
    PRIMARY,
    WAITING,
    compared_calls,
    measure,
)
from spoolscope.analysis.outcomes import Replay, Run, read_replay
from spoolscope.analysis.own_filesystem import OwnReplay, own_replay
from spoolscope.analysis.pairs import Pair, make_pair
from spoolscope.analysis.verdict import Verdict, disturbed_runs, give_verdict, order_warnings
from spoolscope.analysis.why import (
    Table,
    by_family,
    mean_table,
    without,
)
from spoolscope.traces.errors import USAGE, SpoolscopeError
from spoolscope.traces.typed_json import encode, without_nan

Progress = Callable[[str, float | None], None]


@dataclass(frozen=True)
class Comparison:
    """The answer of ``compare``.

    Attributes:
        replay: The replays that were read.
        candidates: By name, the fastest first.
        reference: The candidate that the others are compared with: the one given to the replay,
            else the recorded filesystem, else the first.
        n_calls: Calls compared, the same on every candidate, file locking left out.
        pairs: Every other candidate against the reference.
        kernels: Candidates on newer kernels against the same ones on the oldest, if runs of several
            filesystems were made on several.
        verdict: The answer in words.
        own: The replay on the recorded filesystem, compared with the recording itself; None if no
            candidate is that filesystem, or the types are not known.
    """

    replay: Replay
    candidates: dict[str, Candidate]
    reference: str
    n_calls: int
    pairs: list[Pair]
    kernels: list[Pair]
    verdict: Verdict
    own: OwnReplay | None = None

    @property
    def other_durability(self) -> dict[str, str]:
        """Difference of each candidate's durability to the reference's, by name."""
        return beside({n: c.durability for n, c in self.candidates.items()}, self.reference)

    def to_json(self) -> dict[str, Any]:
        """Return the object that ``compare --json`` prints."""
        header = self.replay.header
        plain = {
            "trace": str(self.replay.trace.path if self.replay.trace else header.trace),
            "pace": header.pace,
            "rounds": max(c.rounds for c in self.candidates.values()),
            "seed": header.seed,
            "calls": self.n_calls,
            "caches": caches_at_begin(header),
            "primary": PRIMARY,
            "primary_with_waiting": WAITING,
            "reference": self.reference,
            "other_durability": self.other_durability,
            "ranking": list(self.candidates),
            "verdict": asdict(self.verdict),
            "own_filesystem": asdict(self.own) if self.own else None,
            "candidates": [_candidate_json(c) for c in self.candidates.values()],
            "pairs": [asdict(pair) for pair in self.pairs],
            "kernels": [asdict(pair) for pair in self.kernels],
        }
        cleaned: dict[str, Any] = without_nan(plain)
        return cleaned


def compare(
    outputs: Sequence[Path],
    reference: str | None = None,
    progress: Progress | None = None,
    trace: Path | None = None,
) -> Comparison:
    """Compare the candidates of one or more replays of one trace.

    Args:
        outputs: Directories that replays wrote.
        reference: Candidate with which the others are compared.
        progress: Called with a sentence and the fraction done.
        trace: The replayed trace, if it is no longer where it was beside the replay.

    Raises:
        SpoolscopeError: not a replay, damaged, an unknown reference, or another trace.
    """
    replay = read_replay(outputs, trace)
    calls = compared_calls(replay)
    values = {id(run): measure(replay, run, calls) for run in replay.runs}
    found = _candidates(replay, values, progress or (lambda _what, _fraction: None))
    # By geometric mean: the best then never has a ratio above 1.
    ranked = dict(sorted(found.items(), key=_time_in_calls))
    chosen = _reference(replay, ranked, reference)

    def pair(candidate: str, against: str) -> Pair:
        return make_pair(replay, values, calls, ranked[candidate], ranked[against])

    pairs = [pair(name, chosen) for name in ranked if name != chosen]
    best = next(iter(ranked))
    other = chosen if best != chosen else next((n for n in ranked if n != best), None)
    headline = pair(best, other) if other else None
    if headline is not None and headline.primary.ratio > 1:
        # All runs of both rank them, and the rounds that both have decide.
        best = headline.reference
        headline = pair(best, headline.candidate)
    beside = {name: pair(name, best) for name in ranked if name != best}
    newer = on_newer_kernels(run.result for run in replay.runs)
    kernels = [pair(*names) for names in newer] if len(ranked) > len(newer) + 1 else []
    verdict = give_verdict(replay, ranked, headline, beside, kernels, n_calls=len(calls))
    judged = [*pairs, headline] if headline is not None and headline.candidate == chosen else pairs
    verdict = replace(verdict, warnings=[*order_warnings(judged), *disturbed_runs(replay)])
    own = own_replay(replay, calls)
    return Comparison(replay, ranked, chosen, len(calls), pairs, kernels, verdict, own)


def _time_in_calls(named: tuple[str, Candidate]) -> float:
    """Return the time by which a candidate is ranked: one that was not measured is the last."""
    time = named[1].metrics[PRIMARY]
    return math.inf if time is None else time


def _reference(replay: Replay, ranked: dict[str, Candidate], wanted: str | None) -> str:
    if wanted is not None:
        if wanted not in ranked:
            raise SpoolscopeError(
                f"no candidate {wanted!r} in this replay",
                remedy=f"use --reference with one of: {', '.join(ranked)}",
                exit_code=USAGE,
            )
        return wanted
    asked = replay.header.reference
    for name in ranked:
        if asked is not None and name.split(" ")[0] == asked:  # without the left-out part
            return name
    spools = replay.trace.meta.get("spools", []) if replay.trace else []
    recorded_on = {spool.get("fstype") for spool in spools}
    # If a filesystem was replayed on several kernels, the oldest is the reference: this shows what
    # the update did.
    by_age = sorted(replay.runs, key=lambda run: age_of_kernel(run.result))
    names = [run.candidate for run in by_age]
    return next((name for name in names if ranked[name].fstype in recorded_on), names[0])


def _candidates(
    replay: Replay, values: dict[int, dict[str, float | None]], progress: Progress
) -> dict[str, Candidate]:
    found = {}
    pace = replay.header.pace
    done = 0
    for name in replay.candidates:
        runs = [run for run in replay.runs if run.candidate == name]
        tables, taken = [], []
        for run in runs:
            progress(f"Explaining {run.directory.name}", done / len(replay.runs))
            done += 1
            if run.trace is not None:
                explained = explain(run.trace)
                causes = {n: call.causes for n, call in explained.by_syscall.items()}
                strangers = explained.evidence.strangers
                if counts_instructions(run.result):
                    causes, strangers = on_cpu(causes), {}
                    values[id(run)][PRIMARY] = float(sum(of["cpu"] for of in causes.values()))
                tables.append(by_family(without(causes, strangers)))
                taken.append(sum(sum(of_call.values()) for of_call in strangers.values()))
            elif counts_instructions(run.result):
                raise SpoolscopeError(
                    f"{run.directory} has no recording, which tells the CPU times of its calls",
                    remedy="replay again",
                )
        # Times of an unfinished round have no partner: they would rank by another basis.
        whole = [run for run in runs if replay.is_whole(run.block)] or runs
        metrics = [values[id(run)] for run in whole]
        found[name] = _candidate(name, runs, metrics, tables, _mean(taken) or 0.0, pace)
    return found


def _candidate(
    name: str,
    runs: list[Run],
    metrics: list[dict[str, float | None]],
    tables: list[Table],
    strangers_ns: float,
    pace: str,
) -> Candidate:
    first = runs[0].result
    table = mean_table(tables) if tables else {}
    causes = {c: sum(ns for (_, cause), ns in table.items() if cause == c) for c in CAUSES}
    return Candidate(
        name=name,
        fstype=first.fstype,
        mkfs=first.mkfs,
        mount_options=first.mount_options,
        rounds=len(runs),
        metrics={key: _mean([values[key] for values in metrics]) for key in METRICS}
        | {key: _geometric_mean([values[key] for values in metrics]) for key in (PRIMARY, WAITING)},
        causes={cause: ns for cause, ns in causes.items() if ns},
        table=table,
        fidelity=fidelity(runs, pace),
        makespan_ns=float(np.mean([run.result.makespan_ns or 0 for run in runs])),
        strangers_ns=strangers_ns,
        directories=[run.directory for run in runs],
        life=lives(runs),
        damage=unclean(runs),
        durability=first.durability,
    )


def _mean(values: Sequence[float | None]) -> float | None:
    known = [value for value in values if value is not None]
    return sum(known) / len(known) if known else None


def _geometric_mean(values: Sequence[float | None]) -> float | None:
    known = [value for value in values if value]
    if len(known) < 2:
        return known[0] if known else None  # not rounded
    return float(np.exp(np.log(known).mean()))


def _candidate_json(candidate: Candidate) -> dict[str, Any]:
    plain = {**candidate.__dict__, "fidelity": encode(candidate.fidelity)}
    plain["life"] = {key: asdict(spread) for key, spread in candidate.life.items()}
    plain["table"] = [
        {"family": family, "cause": cause, "ns": ns}
        for (family, cause), ns in sorted(candidate.table.items(), key=lambda item: -item[1])
    ]
    return plain
