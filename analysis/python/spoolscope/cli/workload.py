"""The verb lab workload."""

from functools import partial
from pathlib import Path
from shlex import quote
from typing import Any

import click

from spoolscope.cli import limits
from spoolscope.cli.candidates import candidates_option, names_beginning
from spoolscope.cli.devices import asked_devices, device_options
from spoolscope.cli.elsewhere import is_elsewhere, machine_options, run_elsewhere
from spoolscope.cli.output import (
    claim_output,
    emit_json,
    force_option,
    json_option,
    progress,
    quiet_option,
    wrote,
)
from spoolscope.cli.printing import say
from spoolscope.cli.replay_recorder import replay_recorder
from spoolscope.lab.slowdisk import SlowDisk
from spoolscope.lab.workloads import results as files
from spoolscope.lab.workloads.catalog import FORMATS, WORKLOADS, Workload, workload
from spoolscope.lab.workloads.daemons import fetched
from spoolscope.lab.workloads.judging import Results
from spoolscope.lab.workloads.running import Asked, run_all
from spoolscope.lab.workloads.text import lines
from spoolscope.replay.candidates import parse
from spoolscope.replay.modelled import on_model
from spoolscope.replay.presets import known
from spoolscope.traces.devices import device_model, device_models
from spoolscope.traces.errors import USAGE, SpoolscopeError

EPILOG = """\b
Examples:
  sudo spoolscope lab workload maildir-io --on ext4 --on xfs --scale 0.01
  sudo spoolscope lab workload maildir-io --scale 0.1 --rounds 5 \\
    --on c2004-ext2 --on c2004-ext3 --on c2004-ext3-dir-index
  sudo spoolscope lab workload varmail --on ext4@hdd10k --scale 0.01 --record
  sudo spoolscope lab workload fsbench --scale 0.005 --rounds 3 --vm 6.1 \\
    --on c2008-xfs --on c2008-reiserfs --on c2008-jfs
  sudo spoolscope lab workload qmail --on ext4 --on xfs --scale 0.1 \\
    --device /dev/sdX --format-device /dev/sdX
  spoolscope lab workload maildir-io --on dir:/tmp/empty --scale 0.001 --json

\b
Workloads:
""" + "\n".join(f"  {one.name:<17}{one.about}" for one in WORKLOADS.values())


def _beginning(_ctx: click.Context, _param: click.Parameter, begin: str) -> list[str]:
    return [name for name in WORKLOADS if name.startswith(begin)]


SCALE = limits.Number(0.0001, 100, whole=False)
MOST_ROUNDS = 1000


@click.command("workload", epilog=EPILOG)
@click.argument("name", shell_complete=_beginning)
@click.option(
    "--on",
    "candidates",
    multiple=True,
    metavar="CANDIDATE",
    shell_complete=names_beginning,
    help="As of replay: a name, NAME[mkfs words; mount options], dir:PATH; NAME@MODEL is on a "
    "device model.",
)
@candidates_option
@click.option(
    "--scale",
    type=SCALE,
    required=True,
    help="Of the published size, which is 1; 0.01 takes seconds.",
)
@click.option(
    "--rounds",
    type=limits.Number(1, MOST_ROUNDS),
    default=1,
    show_default=True,
    help="Repetitions; a verdict on a claim needs 3.",
)
@click.option("--reference", help="Candidate that ratios are to [the first].")
@click.option("--format", "format_", type=click.Choice(FORMATS), help="How mailboxes are kept.")
@click.option(
    "--seed",
    type=limits.SEED,
    default=0,
    show_default=True,
    help="Of the load, and of the order of candidates within a round.",
)
@click.option(
    "--device-model",
    type=click.Choice(list(device_models())),
    help="Play the times of a kind of disk, from the first step on.",
)
@click.option("--record", is_flag=True, help="Record each step: explain gives the causes.")
@device_options
@machine_options
@click.option("--work", type=click.Path(path_type=Path), help="Directory for images [output].")
@click.option(
    "-o", "--output", type=click.Path(path_type=Path), help="Directory to write [NAME.workload]."
)
@force_option
@quiet_option
@json_option
def command(**options: Any) -> int:
    """Repeat the load of a published comparison on candidates.

    Its table is printed with today's figures beside the published ones, as they
    are and as ratios to a candidate: hardware differs by twenty years, so only
    ratios can be compared. Then what became of its claims.

    Each candidate has a fresh filesystem in each round, in random order; caches
    are emptied between steps by a new mount.
    """
    chosen = workload(options["name"])
    asked = _asked(chosen, options)
    if is_elsewhere(asked.candidates, options):
        if chosen.server:  # a machine has no network
            with progress(quiet=options["quiet"]) as show:
                fetched(chosen.server, asked.format, show)
        return run_elsewhere(options, asked.out)
    names = [on_model(one, asked.device_model).name for one in asked.candidates]
    reference = options["reference"] or names[0]
    if reference not in names:
        raise SpoolscopeError(
            f"the reference {reference!r} is no candidate of this workload",
            remedy=f"use --reference with one of: {', '.join(names)}",
            exit_code=USAGE,
        )
    quiet = options["quiet"]
    with claim_output(asked.out, force=options["force"]), progress(quiet=quiet) as show:

        def keep(rows: list[dict[str, Any]]) -> None:
            found = Results(chosen.comparison, rows, reference)
            files.write(asked.out, files.to_json(asked, found, rows), rows)

        rows = run_all(asked, show, _unsaid if quiet else partial(say, err=True), keep)
    found = Results(chosen.comparison, rows, reference)
    value = files.to_json(asked, found, rows)
    if options["as_json"]:
        emit_json({"output": str(asked.out), **value})
    else:
        say(*lines(asked, found, str(value["kernel"])))
        first = asked.out / rows[0]["run"]
        trace = next(iter(sorted(first.glob("*.trace"))), None)
        wrote(asked.out, f"spoolscope explain {quote(str(trace))}" if trace else None)
    return 0


def _asked(chosen: Workload, options: dict[str, Any]) -> Asked:
    if not options["candidates"]:
        raise SpoolscopeError(
            "no candidate given", remedy="add --on ext4, or --on dir:PATH", exit_code=USAGE
        )
    format_ = options["format_"] or ""
    if format_ and format_ not in chosen.formats:
        raise SpoolscopeError(
            f"{chosen.name} has no mailboxes of format {format_}",
            remedy="leave out --format",
            exit_code=USAGE,
        )
    every = known(options["candidate_files"])
    recorded = options["record"] and not options["vm"]
    return Asked(
        workload=chosen,
        candidates=[parse(name, every) for name in options["candidates"]],
        out=options["output"] or Path(f"{chosen.name}.workload"),
        scale=options["scale"],
        rounds=options["rounds"],
        seed=options["seed"],
        format=format_,
        work=options["work"],
        device_model=options["device_model"] or "",
        recorder=replay_recorder(servers=bool(chosen.server)) if recorded else None,
        player=_play,
        devices=asked_devices(options),
    )


def _play(image: Path, place: Path, model: str) -> SlowDisk:
    return SlowDisk(image, place, device_model(model))


def _unsaid(_line: str) -> None:
    """Print nothing."""
