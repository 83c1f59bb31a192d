"""spoolscope compare: which candidate is faster, by how much, why, and how sure."""

import textwrap
from collections.abc import Callable, Iterable, Sequence
from itertools import takewhile
from pathlib import Path
from typing import TYPE_CHECKING

import click

from spoolscope.cli.output import (
    emit_json,
    json_option,
    progress,
    quiet_option,
    replayed_trace_option,
    warn,
)
from spoolscope.cli.printing import say
from spoolscope.traces.errors import INCOMPLETE

if TYPE_CHECKING:
    from spoolscope.analysis.compare import Candidate, Comparison
    from spoolscope.analysis.pairs import Pair
    from spoolscope.analysis.stats import Estimate


@click.command("compare", epilog="Example: spoolscope compare mail.replay --reference ext4")
@click.argument("out", nargs=-1, required=True, type=click.Path(path_type=Path))
@json_option
@quiet_option
@click.option("--reference", help="Candidate to hold the others against.")
@replayed_trace_option
def command(
    out: tuple[Path, ...], as_json: bool, quiet: bool, reference: str | None, trace: Path | None
) -> int:
    """Compare the candidates of a replay; OUT is what 'replay -o' wrote.

    The primary metric, fixed beforehand, is the time spent in calls, over the
    same calls on every candidate. The unit of the statistics is the run.
    """
    from spoolscope.analysis.compare import compare

    with progress(quiet=quiet) as show:
        found = compare(out, reference, show, trace)
    if found.replay.trace is None:
        warn(found.replay.without_trace)
    if as_json:
        emit_json(found.to_json())
    else:
        say(*text(found))
        say(f"Next: {found.verdict.next_command or _report_command(out)}")
    return INCOMPLETE if found.verdict.problems else 0


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
    """Return what candidates are called in tables, without the part that all of them replayed."""
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


def _report_command(out: tuple[Path, ...]) -> str:
    return f"spoolscope report {' '.join(map(str, out))}"


def _wrapped(line: str) -> list[str]:
    return textwrap.wrap(line, 80, subsequent_indent="  ", break_long_words=False)
