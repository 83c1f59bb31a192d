"""The verb compare: which candidate is faster, by how much, why, and how certain that is."""

import shlex
import textwrap
from collections.abc import Callable, Iterable, Sequence
from functools import partial
from itertools import takewhile
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from spoolscope.cli.names import marked, named, names_lines, names_options
from spoolscope.cli.output import (
    emit_json,
    json_option,
    progress,
    quiet_option,
    replayed_trace_option,
    warn,
)
from spoolscope.cli.printing import say
from spoolscope.traces.digests import META
from spoolscope.traces.errors import FAILED, INCOMPLETE, UNDECIDED, USAGE, SpoolscopeError
from spoolscope.traces.trace import Trace

if TYPE_CHECKING:
    from spoolscope.analysis.candidate_runs import Candidate
    from spoolscope.analysis.compare import Comparison
    from spoolscope.analysis.demands.decisions import Decision
    from spoolscope.analysis.demands.language import Demand
    from spoolscope.analysis.pairs import Pair
    from spoolscope.analysis.stats import Estimate


EXIT_CODES = {"fails": FAILED, "undecided": UNDECIDED}

EPILOG = """\b
Examples:
  spoolscope compare mail.replay --reference ext4
  spoolscope compare monday.trace tuesday.trace
  spoolscope compare monday.trace tuesday.trace --fail-if 'time > +10 %'
"""


@click.command("compare", epilog=EPILOG)
@click.argument("out", nargs=-1, required=True, type=click.Path(path_type=Path))
@json_option
@quiet_option
@click.option("--reference", help="Candidate to hold the others against.")
@replayed_trace_option
@click.option(
    "--fail-if",
    "demands",
    multiple=True,
    metavar="EXPRESSION",
    help="Exit with 4 if it is so, with 5 if the intervals do not tell: 'time > +10 %', 'p99 of "
    "fsync > 20 ms', 'calls over 10 ms > +50 %', 'commits per delivery > 1.5 x'.",
)
@names_options
def command(
    out: tuple[Path, ...],
    as_json: bool,
    quiet: bool,
    reference: str | None,
    trace: Path | None,
    demands: tuple[str, ...],
    names: bool,
    key_file: Path | None,
) -> int:
    """Compare the candidates of a replay, or two recordings.

    OUT is what 'replay -o' wrote: the primary metric, fixed beforehand, is the
    time spent in calls, over the same calls on every candidate. The unit of the
    statistics is the run.

    Or OUT is two traces, before and after a change: what moved in the time of a
    call for the first one's mix of calls, by cause, call, program and class of
    file. The unit of the statistics is a window of time.
    """
    from spoolscope.analysis.demands.language import parse_demand
    from spoolscope.analysis.outcomes import is_replay

    wanted = [parse_demand(text) for text in demands]
    recordings = [path for path in out if not is_replay(path)]
    foreign = len(out) == 1 and not (out[0] / META).exists()
    if recordings and not foreign:
        refuse_mixed(out, recordings)
        refuse_for_recordings(reference, trace)
        real = partial(named, key_file=key_file, wanted=names)
        return _recordings(out, wanted, real, key_file, as_json=as_json, quiet=quiet)
    if names:
        raise SpoolscopeError(
            "a comparison of replays shows no names",
            remedy="leave out --names; 'spoolscope report' of replays shows them",
            exit_code=USAGE,
        )
    return _replays(out, wanted, reference, trace, as_json=as_json, quiet=quiet)


def refuse_mixed(inputs: Sequence[Path], recordings: Sequence[Path]) -> None:
    """Refuse inputs that are neither exactly two recordings nor only replays.

    Raises:
        SpoolscopeError: there is another number of recordings, or replays are among them.
    """
    if len(recordings) < len(inputs):
        raise SpoolscopeError(
            f"{recordings[0]} is no replay, others are",
            remedy="give replays, or two traces; 'spoolscope validate' holds replays against "
            "recordings",
            exit_code=USAGE,
        )
    if len(recordings) != 2:
        for path in recordings:
            Trace.open(path)  # a path that is neither raises its own error
        raise SpoolscopeError(
            f"a comparison is of two traces, not of {len(recordings)}",
            remedy="give the one before and the one after, or what 'spoolscope replay -o' wrote",
            exit_code=USAGE,
        )


def refuse_for_recordings(reference: str | None, trace: Path | None) -> None:
    """Refuse the options that only replays have.

    Raises:
        SpoolscopeError: one of them is given.
    """
    if reference is not None or trace is not None:
        raise SpoolscopeError(
            f"{'--reference' if trace is None else '--trace'} is for replays",
            remedy="leave it out; the first trace is the reference",
            exit_code=USAGE,
        )


def _recordings(
    out: Sequence[Path],
    wanted: "list[Demand]",
    real: Callable[[Trace], Trace],
    key_file: Path | None,
    *,
    as_json: bool,
    quiet: bool,
) -> int:
    from spoolscope.analysis.demands.of_recordings import decide_recordings
    from spoolscope.analysis.recordings.moved import compare_recordings
    from spoolscope.analysis.recordings.sentences import to_json
    from spoolscope.cli.compare_recordings import text as text_of_recordings

    opened = [real(Trace.open(path)) for path in out]
    revealed = max(opened, key=lambda trace: trace.names is not None)  # the first one, if any
    with progress(quiet=quiet) as show:
        between = compare_recordings(opened[0], opened[1], show)
    decisions = [decide_recordings(between, demand) for demand in wanted]
    if as_json:
        emit_json(marked(to_json(between) | _decided(decisions), revealed))
    else:
        say(*text_of_recordings(between), *_decisions(decisions))
        say(*names_lines(revealed, key_file), f"Next: {_report_command(out)}")
    whole = all(trace.meta.get("complete") for trace in opened)
    return _exit_code(decisions, whole=whole)


def _replays(
    out: Sequence[Path],
    wanted: "list[Demand]",
    reference: str | None,
    trace: Path | None,
    *,
    as_json: bool,
    quiet: bool,
) -> int:
    from spoolscope.analysis.compare import compare
    from spoolscope.analysis.demands.of_replays import decide_replays

    with progress(quiet=quiet) as show:
        found = compare(out, reference, show, trace)
        decisions = [one for demand in wanted for one in decide_replays(found, demand)]
    if found.replay.trace is None:
        warn(found.replay.without_trace)
    if as_json:
        emit_json(found.to_json() | _decided(decisions))
    else:
        say(*text(found), *_decisions(decisions))
        say(f"Next: {found.verdict.next_command or _report_command(out)}")
    if wanted and not decisions:
        raise SpoolscopeError(
            "--fail-if has no candidate to hold against the reference",
            remedy="replay on two or more candidates",
            exit_code=USAGE,
        )
    return _exit_code(decisions, whole=not found.verdict.problems)


def _decided(decisions: "Sequence[Decision]") -> dict[str, Any]:
    return {"fail_if": [decision.to_json() for decision in decisions]} if decisions else {}


def _decisions(decisions: "Sequence[Decision]") -> list[str]:
    lines = [line for one in decisions for line in _wrapped(f"--fail-if {one.text}")]
    return ["", *lines] if lines else []


def _exit_code(decisions: "Sequence[Decision]", *, whole: bool) -> int:
    from spoolscope.analysis.demands.decisions import PASSES, worst

    found = worst(decisions)
    if found != PASSES:
        return EXIT_CODES[found]
    return 0 if whole else INCOMPLETE


def text(found: "Comparison") -> Iterable[str]:
    """Yield the lines of the verdict and its tables, at most 80 columns."""
    from spoolscope.analysis.conditions import caches_at_begin
    from spoolscope.analysis.own_filesystem import own_sentence

    verdict = found.verdict
    yield from _wrapped(verdict.headline)
    yield from _wrapped(verdict.sure)
    yield from _wrapped(caches_at_begin(found.replay.header))
    yield from _wrapped(own_sentence(found.replay, found.own))
    for reason in verdict.reasons:
        yield from _wrapped(f"- {reason}")
    for warning in verdict.warnings:
        yield from _wrapped(f"Warning: {warning}")
    for problem in verdict.problems:
        yield from _wrapped(f"Weak: {problem}")
    yield ""
    yield from _candidates(found)
    if found.pairs:
        yield ""
        yield from _pairs(found)
        if found.kernels:
            yield ""
            yield "Time in calls against the same filesystem on the oldest kernel"
            yield from _rows(found, found.kernels)
        yield ""
        yield from _secondary(found)
    if any(c.life for c in found.candidates.values()):
        yield ""
        yield from _lives(found)


def _labels(found: "Comparison", width: int) -> dict[str, str]:
    """Return the names of candidates in tables, without the part that is common to all."""
    from spoolscope.analysis.wording import fitting

    names = [name.split(" ") for name in found.candidates]
    ends = zip(*(words[:0:-1] for words in names), strict=False)
    shared = len(list(takewhile(lambda end: len(set(end)) == 1, ends)))
    return {
        name: fitting(" ".join(words[: len(words) - shared]), width, 4)
        for name, words in zip(found.candidates, names, strict=True)
    }


def _candidates(found: "Comparison") -> Iterable[str]:
    from spoolscope.analysis.wording import count, duration, percent

    heads = f"{'runs':>5}{'in calls':>10}{'p99 late':>10}{'diverged':>10}"
    yield f"{'candidate':<16}{heads}  mostly"
    labels = _labels(found, 15)
    for c in found.candidates.values():
        total, late = duration(c.metrics["total_ns"]), duration(c.fidelity.lateness_p99_ns)
        diverged = percent(c.fidelity.divergent_share, 2)
        yield (
            f"{labels[c.name]:<16}{count(c.rounds):>5}{total:>10}{late:>10}{diverged:>10}"
            f"  {_mostly(c.causes)}"
        )


def _mostly(causes: dict[str, float]) -> str:
    from spoolscope.analysis.causes import CAUSES, charged

    kept = charged(causes)
    cause, ns = max(kept.items(), key=lambda item: item[1], default=("", 0.0))
    return f"{CAUSES[cause].label} {100 * ns / sum(kept.values()):.0f} %" if ns else "not recorded"


def _pairs(found: "Comparison") -> Iterable[str]:
    from spoolscope.analysis.metrics import WAITING

    by_itself = " (each interval by itself)" if len(found.pairs) > 1 else ""
    yield f"Time in calls against {found.reference}{by_itself}"
    labels, other = _labels(found, 15), found.other_durability
    yield from _rows(found, found.pairs)
    if any(pair.waiting_word for pair in found.pairs):
        yield "The same from due to end: with the wait of work for its own, busy process"
        for pair in found.pairs:
            waited = pair.secondary[WAITING]
            yield _ratio(f"  {labels[pair.candidate]:<16}", waited, pair.waiting_word)
    for name, durability in other.items():
        yield from _wrapped(f"! {name} beside {found.reference}: {durability}")


def _rows(found: "Comparison", pairs: "Sequence[Pair]") -> Iterable[str]:
    labels = _labels(found, 15)
    for pair in pairs:
        mark = "!" if pair.candidate in found.other_durability else " "
        yield _ratio(f"{mark} {labels[pair.candidate]:<16}", pair.primary, pair.word)


def _ratio(label: str, e: "Estimate", word: str) -> str:
    from spoolscope.analysis.wording import interval

    method = {"paired-t": "95 %", "within-run": "in-run"}.get(e.method, "")
    bounds = f"{interval(e.low, e.high):>20} {method:<6}"
    return f"{label}{e.ratio:>6.2f} x {bounds} {f'{e.n_lower}/{e.n} lower':<12} {word}"


SECONDARY_COLUMNS = {
    "sync_mean_ns": "syncs",
    "open_p99_ns": "open",
    "rename_p99_ns": "rename",
    "link_p99_ns": "link",
    "unlink_p99_ns": "unlink",
    "over_10ms_share": ">10 ms",
    "over_100ms_share": ">100 ms",
}


def _secondary(found: "Comparison") -> Iterable[str]:
    from spoolscope.analysis.metrics import METRICS
    from spoolscope.analysis.wording import duration, percent

    yield "Secondary, no verdicts: mean of fsync and fdatasync, 99th percentiles, calls >"

    def cells(c: "Candidate") -> list[str]:
        return [
            duration(c.metrics[key]) if METRICS[key].unit == "ns" else percent(c.metrics[key], 2)
            for key in SECONDARY_COLUMNS
        ]

    yield from _table(found, SECONDARY_COLUMNS.values(), 9, cells)


LIFE_COLUMNS = {
    "mkfs": "mkfs_ns",
    "fill": "fill_ns",
    "mount": "mount_filled_ns",
    "umount": "umount_ns",
    "check": "check_ns",
    "remove": "remove_ns",
    "usable": "usable_bytes",
    "writes": "replay_writes",
    "dirty": "dirty_bytes",
}


def _lives(found: "Comparison") -> Iterable[str]:
    """Yield a row of medians for each candidate; no cell is wider than six characters."""
    from spoolscope.analysis.lives import MEASURES

    yield "Life of the filesystem, medians; writes: bytes to its device by byte of calls"

    def cells(c: "Candidate") -> list[str]:
        spreads = ((MEASURES[key], c.life.get(key)) for key in LIFE_COLUMNS.values())
        shown = (m.shown(spread.median if spread else None) for m, spread in spreads)
        return [cell.replace("iB", "").replace(" ", "") for cell in shown]

    yield from _table(found, LIFE_COLUMNS, 7, cells)


def _table(
    found: "Comparison",
    heads: Iterable[str],
    width: int,
    cells: Callable[["Candidate"], list[str]],
) -> Iterable[str]:
    """Yield the heads, and a row of cells for each candidate."""
    yield f"{'candidate':<17}" + "".join(f"{head:>{width}}" for head in heads)
    labels = _labels(found, 16)
    for c in found.candidates.values():
        yield f"{labels[c.name]:<17}" + "".join(f"{cell:>{width}}" for cell in cells(c))


def _report_command(out: Sequence[Path]) -> str:
    return f"spoolscope report {shlex.join(map(str, out))}"


def _wrapped(line: str) -> list[str]:
    return textwrap.wrap(line, 80, subsequent_indent="  ", break_long_words=False)
