"""The verb validate: a test whether replays rank filesystems as the real service does."""

import math
import textwrap
from collections.abc import Iterable, Sequence
from contextlib import nullcontext
from functools import partial
from pathlib import Path
from shlex import quote
from typing import TYPE_CHECKING, Any

import click

from spoolscope.cli import limits
from spoolscope.cli.output import (
    claim_output,
    emit_json,
    force_option,
    json_option,
    progress,
    quiet_option,
    warn,
    wrote,
)
from spoolscope.cli.printing import say, unsaid
from spoolscope.traces.errors import USAGE, SpoolscopeError
from spoolscope.traces.trace import Trace

if TYPE_CHECKING:
    from spoolscope.analysis.stats import Estimate
    from spoolscope.analysis.validation import Validation

EPILOG = """\b
Examples:
  sudo spoolscope validate a.trace --against xfs.trace --against btrfs.trace
  sudo spoolscope validate a.trace --against xfs.trace --rounds 5 -o validated
  spoolscope validate a.trace --against ext4-journal=b.trace --replays out
"""
Recordings = dict[str, list[Trace]]


@click.command("validate", epilog=EPILOG)
@click.argument("trace", type=click.Path(path_type=Path))
@click.option(
    "--against",
    multiple=True,
    required=True,
    metavar="[CANDIDATE=]TRACE",
    help="Recording of the same service on another filesystem, or again on the same one.",
)
@click.option(
    "--replays",
    multiple=True,
    type=click.Path(path_type=Path),
    help="Replays of TRACE on these filesystems [they are made].",
)
@click.option(
    "--rounds",
    type=limits.Number(1, 100),
    default=3,
    show_default=True,
    help="Of the replays that are made.",
)
@click.option("--seed", type=limits.SEED, default=0, show_default=True, help="Of their order.")
@click.option("--work", type=click.Path(path_type=Path), help="Directory for images [output].")
@click.option(
    "-o", "--output", type=click.Path(path_type=Path), help="Replays to write [TRACE.validate]."
)
@force_option
@quiet_option
@json_option
def command(trace: Path, against: tuple[str, ...], **options: Any) -> int:
    """Hold recordings on several filesystems against replays of one.

    TRACE is replayed at its own pace on every filesystem that was recorded. For
    each metric both ratios to TRACE's filesystem are shown, and Kendall's tau:
    1 is the same order. Several recordings of one filesystem give an interval
    over these, one alone an interval from within it.
    """
    from spoolscope.analysis.compare import compare
    from spoolscope.analysis.validation import validate

    recordings = _recordings(trace, against)
    output: Path = options["output"] or _beside(trace)
    places: Sequence[Path] = options["replays"]
    claimed = (
        nullcontext() if places else claim_output(output, force=options["force"], inputs=[trace])
    )
    with claimed, progress(quiet=options["quiet"]) as show:
        if not places:
            _replay(trace, list(recordings), output, show, options)
            places = [output]
        found = validate(recordings, compare(places, progress=show, trace=trace))
    if options["as_json"]:
        emit_json(found.to_json())
    else:
        say(*text(found))
        if not options["replays"]:
            wrote(output, f"spoolscope compare {quote(str(output))}")
    for sentence in found.warnings:
        warn(sentence)
    return 0


def _beside(trace: Path) -> Path:
    return Path(f"{trace.resolve().name.removesuffix('.trace')}.validate")


def _recordings(trace: Path, against: Sequence[str]) -> Recordings:
    """Return recordings by filesystem, that of ``trace`` first."""
    found: Recordings = {}
    for given in (str(trace), *against):
        name, equals, path = given.partition("=")
        if not equals or Path(given).exists() or "/" in name:
            name, path = "", given
        opened = Trace.open(Path(path))
        types = {str(spool.get("fstype", "")) for spool in opened.meta.get("spools", [])}
        if not name and len(types) != 1:
            raise SpoolscopeError(
                f"{path} is of several filesystems, or of none that is known",
                remedy=f"say which candidate it stands for: --against CANDIDATE={path}",
                exit_code=USAGE,
            )
        found.setdefault(name or types.pop(), []).append(opened)
    return found


def _replay(
    trace: Path, names: list[str], output: Path, show: Any, options: dict[str, Any]
) -> None:
    from spoolscope.cli.replay_recorder import replay_recorder
    from spoolscope.replay.expected import Expected
    from spoolscope.replay.run import replay

    replay(
        trace,
        names,
        output,
        rounds=options["rounds"],
        seed=options["seed"],
        recorder=replay_recorder(),
        progress=show,
        work=options["work"],
        reference=names[0],
        whole_life=False,
        timing=Expected(unsaid if options["quiet"] else partial(say, err=True)),
        repeats=1,
    )


def text(found: "Validation") -> Iterable[str]:
    """Yield the lines of the tables, at most 80 columns."""
    from spoolscope.analysis.causes import CAUSES
    from spoolscope.analysis.wording import count, duration

    first = found.metrics[0]
    yield from textwrap.wrap(f"{found.verdict} {_of(found)}", 80, subsequent_indent="  ")
    yield ""
    yield f"{'against ' + found.reference:<22}{'recorded':>26}{'replayed':>24}{'apart':>8}"
    for metric in found.metrics:
        known = [ratio for ratio in metric.ratios if not math.isnan(ratio.apart)]
        if not known:
            continue
        tau = "-" if math.isnan(metric.tau) else f"{metric.tau:.2f}"
        yield f"{metric.label} (tau {tau})"
        for ratio in known:
            yield (
                f"  {ratio.filesystem:<18}{_shown(ratio.recorded):>28}{_shown(ratio.replayed):>24}"
                f"{f'{100 * ratio.apart:+.0f} %':>8}"
            )
    if found.causes is None:
        yield "The replays were not recorded: causes are not compared."
    elif found.causes:
        yield ""
        yield "Causes that differ by 5 % or more, time of a call: recorded, replayed"
        for one in found.causes:
            times = f"{duration(one.recorded_ns):>12}{duration(one.replayed_ns):>12}"
            yield f"  {one.filesystem:<14}{CAUSES[one.cause].label:<30}{times}"
    else:
        yield "No cause differs by 5 % or more of the time of a call."
    calls = ", ".join(f"{name} {count(round(n))}" for name, n in found.calls.items())
    yield from textwrap.wrap(
        f"{first.label}: of all calls but file locking; calls of a recording: {calls}", 80
    )


def _of(found: "Validation") -> str:
    recorded, runs = sum(found.recordings.values()), sum(found.runs.values())
    return f"{recorded} recordings of {len(found.recordings)} filesystems, {runs} replays."


def _shown(e: "Estimate") -> str:
    if e.low is None or e.high is None:
        return f"{e.ratio:.2f} x" + " " * 15
    return f"{e.ratio:.2f} x {f'({e.low:.2f} to {e.high:.2f})':>14}"
