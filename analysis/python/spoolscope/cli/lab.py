"""The verb lab."""

from pathlib import Path

import click

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
from spoolscope.lab.faults import FAULTS
from spoolscope.traces.errors import INCOMPLETE, SpoolscopeError

FILESYSTEMS = ("ext4", "xfs", "btrfs")


@click.group("lab")
def command() -> None:
    """Try known troubles on this machine: what would explain say?

    Everything happens on small filesystems in memory, in a mount namespace of
    its own: nothing is left of them, whatever happens. Needs root.
    """


@command.command(epilog="Example: sudo spoolscope lab faults slow-flush --on xfs")
@click.argument("names", nargs=-1, type=click.Choice(list(FAULTS)), metavar="[FAULT]...")
@click.option("--on", "fstypes", multiple=True, type=click.Choice(FILESYSTEMS), help="Only there.")
@click.option("--seconds", default=8.0, show_default=True, help="Length of each load.")
@click.option("-o", "--output", type=click.Path(path_type=Path), help="Markdown file to write.")
@force_option
@quiet_option
@json_option
def faults(
    names: tuple[str, ...],
    fstypes: tuple[str, ...],
    seconds: float,
    output: Path | None,
    force: bool,
    quiet: bool,
    as_json: bool,
) -> int:
    """Inject known delays and see whether explain finds them.

    Exit code 3: some fault was not explained as well as it should be.
    """
    from spoolscope.lab import table
    from spoolscope.lab.private import enter_private_mounts
    from spoolscope.lab.suite import run_all

    if output is not None:
        claim_output(output, force=force)
    enter_private_mounts()
    wanted = [
        (FAULTS[name], fstype)
        for name in names or FAULTS
        for fstype in FAULTS[name].filesystems
        if not fstypes or fstype in fstypes
    ]
    with progress(quiet=quiet) as show:
        outcomes, left_out = run_all(wanted, seconds, show)
    for sentence in left_out:
        warn(sentence)
    if not outcomes:
        raise SpoolscopeError("no fault was injected", remedy="see the warnings above")
    if as_json:
        emit_json({"seconds": seconds, "faults": [table.to_json(one) for one in outcomes]})
    else:
        click.echo("\n".join(table.text(outcomes)))
    if output is not None:
        output.write_text(table.markdown(outcomes, seconds))
        wrote(output)
    return 0 if all(map(table.passes, outcomes)) and not left_out else INCOMPLETE
