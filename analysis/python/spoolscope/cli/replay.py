"""The verb replay."""

from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from functools import partial
from pathlib import Path
from shlex import quote
from typing import Any

import click

from spoolscope.analysis.beyond import beyond_calls
from spoolscope.analysis.wording import fitting
from spoolscope.cli import limits
from spoolscope.cli.candidates import candidates_option, names_beginning
from spoolscope.cli.clean import resuming
from spoolscope.cli.devices import asked_devices, device_options
from spoolscope.cli.machines import (
    of_kernels,
    reference_of,
    refuse_unbooted,
    replay_in_machines,
    vm_options,
)
from spoolscope.cli.matrix import with_matrix
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
from spoolscope.cli.planning import planning_options, what_if
from spoolscope.cli.printing import say, unsaid
from spoolscope.cli.replay_recorder import replay_recorder
from spoolscope.lab.slowdisk import SlowDisk
from spoolscope.replay.age import HELP as AGES
from spoolscope.replay.age import LEAST, MOST, Age
from spoolscope.replay.artifacts import finished_runs
from spoolscope.replay.candidates import parse
from spoolscope.replay.clearing import remove_left
from spoolscope.replay.divergences import sentence
from spoolscope.replay.engine import Content
from spoolscope.replay.expected import Expected
from spoolscope.replay.job import CACHES, Begin, slots
from spoolscope.replay.modelled import on_model
from spoolscope.replay.one_run import is_true
from spoolscope.replay.pace import HELP as PACES
from spoolscope.replay.pace import REALTIME_HELP, parse_pace
from spoolscope.replay.presets import known
from spoolscope.replay.run import check_asked, replay
from spoolscope.replay.workers import OWN, WORKERS
from spoolscope.traces.devices import device_model, device_models
from spoolscope.traces.errors import INCOMPLETE, USAGE, SpoolscopeError
from spoolscope.traces.results import REPLAY_FILE
from spoolscope.traces.trace import Trace
from spoolscope.traces.unfinished import command_line, left

EPILOG = """\b
Examples:
  sudo spoolscope replay monday.trace --on ext4 --on xfs --on btrfs
  sudo spoolscope replay monday.trace --on ext4 --on xfs --rounds 10
  sudo spoolscope replay monday.trace --matrix candidates.toml -o candidates
  sudo spoolscope replay monday.trace --on jfs --on reiserfs --vm 6.1
  sudo spoolscope replay monday.trace --on ext4 --vm 6.1 --vm 6.12
  sudo spoolscope replay monday.trace --on ext4 --skip fsync -o without
  sudo spoolscope replay monday.trace --on ext4 --scale-users 4 -o four-times
  sudo spoolscope replay monday.trace --on ext4 --on xfs --rounds 5 \\
    --device /dev/sdX --format-device /dev/sdX
  spoolscope replay monday.trace --on dir:/tmp/empty --no-record
"""

# Most first causes of each run that are printed on stderr.
CAUSES_SHOWN = 5

MOST_ROUNDS = 10_000
# Characters of a run's name that fit before its figures.
NAMED_WITHIN = 13
PERCENT: dict[str, Any] = {
    "type": limits.PERCENT,
    "default": 0,
    "show_default": True,
    "metavar": "PERCENT",
}


@click.command(epilog=EPILOG)
@click.argument("trace", type=click.Path(path_type=Path))
@click.option(
    "--on",
    "candidates",
    multiple=True,
    metavar="CANDIDATE",
    shell_complete=names_beginning,
    help="A name ('spoolscope candidates' lists them), NAME[mkfs words; mount options], or "
    "dir:PATH; may be repeated.",
)
@candidates_option
@click.option(
    "--matrix",
    type=click.Path(path_type=Path),
    metavar="FILE",
    help="TOML file of candidates, rounds, pace, cache, age, seed, reference; options override it.",
)
@click.option("--reference", help="Candidate to compare the others with.")
@click.option(
    "--rounds",
    type=limits.Number(1, MOST_ROUNDS),
    default=1,
    show_default=True,
    help="How often each candidate is replayed.",
)
@click.option("--pace", default="original", show_default=True, help=PACES)
@click.option("--realtime", is_flag=True, help=REALTIME_HELP)
@click.option(
    "--seed",
    type=limits.SEED,
    default=0,
    show_default=True,
    help="Seed for the order of candidates, for --age, and for when the copies of users begin.",
)
@click.option(
    "--cache",
    type=click.Choice(CACHES),
    default=CACHES[0],
    show_default=True,
    help="What the page cache holds at first: what it held when recording, nothing, or everything.",
)
@click.option("--age", type=limits.Number(LEAST, MOST, whole=False), help=AGES)
@click.option("--compressible", **PERCENT, help="Share of the data that compresses to nothing.")
@click.option("--duplicate", **PERCENT, help="Share of the files that hold the same data.")
@click.option(
    "--device-model",
    type=click.Choice(list(device_models())),
    help="Slow the image down to this kind of disk, once the fixture is filled in.",
)
@click.option(
    "--workers",
    type=click.Choice(WORKERS),
    default=OWN,
    show_default=True,
    help="own: jobs wait for the process that did them when recorded; pool: each has a worker.",
)
@planning_options
@device_options
@click.option(
    "--repeats",
    type=limits.Number(0, 10),
    default=1,
    show_default=True,
    help="How often to repeat a run that other programs or the host disturbed.",
)
@click.option(
    "--no-life", is_flag=True, help="Do not check and empty each filesystem after its run."
)
@click.option(
    "--no-record", is_flag=True, help="Do not record the replays; compare then shows no causes."
)
@vm_options
@click.option("--work", type=click.Path(path_type=Path), help="Directory for images [the output].")
@click.option(
    "-o", "--output", type=click.Path(path_type=Path), help="Directory to write [TRACE.replay]."
)
@click.option(
    "--resume",
    is_flag=True,
    help="Continue the interrupted replay in -o; its finished runs are kept.",
)
@force_option
@quiet_option
@json_option
def command(**options: Any) -> int:
    """Re-execute a trace on candidate filesystems.

    Every recorded process becomes a process again and makes its calls at the
    recorded pace, in the recorded order, on a fresh filesystem; every result
    is compared with the recorded one.
    """
    trace = Trace.open(options["trace"])
    options = with_matrix(options)
    if not options["candidates"]:
        raise SpoolscopeError(
            "no candidate given",
            remedy="add --on ext4, --on dir:PATH or --matrix FILE",
            exit_code=USAGE,
        )
    output = options["output"] or Path(f"{trace.path.resolve().name.removesuffix('.trace')}.replay")
    names = of_kernels(options)
    every = known(options["candidate_files"])
    chosen = [parse(name, every) for name in names]
    asked = what_if(options)
    reference = reference_of(options["reference"], names)
    if options["vm"]:
        refuse_unbooted(chosen, options["vm"])
        parse_pace(options["pace"], realtime=options["realtime"])
        check_asked(trace, chosen, reference, asked, options["workers"])
    begin = Begin(
        options["cache"],
        Content(options["compressible"], options["duplicate"]),
        None if options["age"] is None else Age(options["seed"], options["age"]),
    )
    if not trace.meta.get("complete"):
        warn(f"trace {trace.path} is incomplete: results after a loss may differ")
    for note in beyond_calls(trace):
        warn(note)
    if options["resume"]:
        claimed = _taken_up(output, force=options["force"])
    else:
        claimed = claim_output(output, force=options["force"], inputs=[trace.path])
    with _telling_how_to_go_on(output), claimed, progress(quiet=options["quiet"]) as show:
        asked_for = partial(
            replay,
            trace.path,
            chosen,
            output,
            rounds=options["rounds"],
            pace=options["pace"],
            seed=options["seed"],
            what_if=asked,
            order=options["order"],
            begin=begin,
            realtime=options["realtime"],
            reference=reference,
            whole_life=not options["no_life"],
            timing=Expected(unsaid if options["quiet"] else partial(say, err=True)),
            device_model=options["device_model"] or "",
            player=_play,
            devices=asked_devices(options),
            repeats=options["repeats"],
            workers=options["workers"],
        )
        if options["vm"]:
            modelled = [on_model(one, options["device_model"] or "") for one in chosen]
            order = slots(modelled, options["rounds"], options["seed"])
            rows = replay_in_machines(asked_for, output, order, options, show)
        else:
            rows = asked_for(
                recorder=None if options["no_record"] else replay_recorder(),
                progress=show,
                work=options["work"],
                resume=options["resume"],
            )
    if (note := rows[0]["what_if"]) is not None:
        warn(note["sentence"])
    complete = bool(trace.meta.get("complete"))
    if options["as_json"]:
        emit_json({"output": str(output), "complete": complete, "runs": rows})
    else:
        _print_runs(rows)
        _print_causes(rows)
        _print_reasons(rows)
        wrote(output, f"spoolscope compare {quote(str(output))}")
    return 0 if complete and all(is_true(row) for row in rows) else INCOMPLETE


def _taken_up(output: Path, *, force: bool) -> AbstractContextManager[None]:
    """Make sure that there is a replay to continue; remove its work files if it was killed."""
    if force:
        raise SpoolscopeError(
            "--resume keeps the runs that --force would replace",
            remedy="give one of them",
            exit_code=USAGE,
        )
    if not (output / REPLAY_FILE).is_file():
        raise SpoolscopeError(
            f"there is no interrupted replay in {output}",
            remedy="give the -o it was begun with, or leave out --resume",
            exit_code=USAGE,
        )
    for one in left():
        if one.kind == "replay" and one.output == output.absolute():
            remove_left(one)
    return nullcontext()


@contextmanager
def _telling_how_to_go_on(output: Path) -> Iterator[None]:
    """Print the command that continues a replay if it ends early."""
    try:
        yield
    except BaseException as error:
        misused = isinstance(error, SpoolscopeError) and error.exit_code == USAGE
        if not misused and (runs := finished_runs(output)):
            command = command_line()
            how = f"'{resuming(command)}'" if command else "the same options and --resume"
            warn(f"{runs[0]} of {runs[1]} runs are finished and kept; continue with {how}")
        raise


def _play(image: Path, place: Path, model: str) -> SlowDisk:
    return SlowDisk(image, place, device_model(model))


def _print_runs(rows: list[dict[str, Any]]) -> None:
    heads = f"{'run':<14}{'calls':>9}{'divergent':>10}{'skipped':>8}{'makespan':>9}"
    say(f"{heads}{'late p99':>10}{'state':>8}  fidelity")
    for row in rows:
        late = row["lateness_p99_ns"]
        state = row["final_state"]
        run = f"{row['candidate']}-r{row['round']}"
        if len(run) > NAMED_WITHIN:  # cut names could be mistaken for others
            say(fitting(run, 80))
            run = ""
        say(
            f"{run:<14}{row['executed']:>9,}"
            f"{row['divergent']:>10,}{row['skipped']:>8,}{row['makespan_ns'] / 1e9:>7.2f} s"
            f"{'-' if late is None else f'{late / 1e6:.2f} ms':>10}"
            f"{'ok' if not state['mismatched'] else str(state['mismatched']) + ' bad':>8}"
            f"  {row['certificate']['verdict']}"
        )


def _print_causes(rows: list[dict[str, Any]]) -> None:
    """Print the divergences by first cause."""
    for row in rows:
        found = row["divergences"]
        for root in found["roots"][:CAUSES_SHOWN]:
            say(f"{row['candidate']}-r{row['round']}: {sentence(root)}", err=True)
        if found["kinds"] > CAUSES_SHOWN:
            more = found["kinds"] - CAUSES_SHOWN
            say(f"... {more} more kinds in {row['run']}/divergences.json", err=True)


def _print_reasons(rows: list[dict[str, Any]]) -> None:
    """Print why the first unfaithful run of each candidate is not faithful."""
    warned = set()
    for row in rows:
        candidate, reasons = row["candidate"], row["certificate"]["reasons"]
        if reasons and candidate not in warned:
            warned.add(candidate)
            run = f"{candidate}-r{row['round']}"
            say(f"{run} is {row['certificate']['verdict']}: {'; '.join(reasons)}", err=True)
