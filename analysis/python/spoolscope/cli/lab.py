"""The verb lab."""

from contextlib import ExitStack, nullcontext
from pathlib import Path
from shlex import quote

import click

from spoolscope.cli import mailserver, vm, workload
from spoolscope.cli.limits import Number
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
from spoolscope.cli.printing import say
from spoolscope.lab.faults import FAULTS
from spoolscope.lab.kjournald import VARIANTS
from spoolscope.lab.troubles import TROUBLES
from spoolscope.traces.errors import INCOMPLETE, SpoolscopeError
from spoolscope.traces.files import write_file
from spoolscope.traces.output import place_of

FILESYSTEMS = tuple(
    dict.fromkeys(on for fault in FAULTS.values() for on in (*fault.filesystems, *fault.elsewhere))
)

USUAL_SECONDS = 8.0
seconds_option = click.option(
    "--seconds",
    type=Number(1.0, 3600.0, whole=False),
    default=USUAL_SECONDS,
    show_default=True,
    help="Length of each load.",
)


@click.group("lab")
def command() -> None:
    """Try known troubles and published loads on this machine.

    Everything happens on filesystems made for it, in a mount namespace of
    their own: nothing is left of them, whatever happens. Needs root.
    """


command.add_command(vm.command, "vm")
command.add_command(vm.zfs_command, "zfs")
command.add_command(mailserver.command, "mailserver")
command.add_command(workload.command, "workload")


@command.command(epilog="Example: sudo spoolscope lab faults slow-flush --on xfs")
@click.argument("names", nargs=-1, type=click.Choice(list(FAULTS)), metavar="[FAULT]...")
@click.option("--on", "fstypes", multiple=True, type=click.Choice(FILESYSTEMS), help="Only there.")
@seconds_option
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

    Without --on on ext4, xfs and btrfs; jfs, reiserfs, f2fs and nilfs2 need a
    kernel that has them, such as that of lab vm.

    Exit code 3: some fault was not explained as well as it should be.
    """
    from spoolscope.lab import table
    from spoolscope.lab.private import enter
    from spoolscope.lab.suite import run_all

    wanted = [
        (FAULTS[name], fstype)
        for name in names or FAULTS
        for fstype in (*FAULTS[name].filesystems, *FAULTS[name].elsewhere)
        if fstype in (fstypes or FAULTS[name].filesystems)
    ]
    with claim_output(output, force=force) if output else nullcontext():
        enter(output)
        with progress(quiet=quiet) as show:
            outcomes, left_out = run_all(wanted, seconds, show)
        for sentence in left_out:
            warn(sentence)
        if not outcomes:
            raise SpoolscopeError("no fault was injected", remedy="see the warnings above")
        if as_json:
            emit_json({"seconds": seconds, "faults": [table.to_json(one) for one in outcomes]})
        else:
            say(*table.text(outcomes))
        if output is not None:
            words = [*names, *(word for on in fstypes for word in ("--on", on))]
            words += [] if seconds == USUAL_SECONDS else ["--seconds", f"{seconds:g}"]
            words += ["-o", output.name]
            write_file(place_of(output), table.markdown(outcomes, seconds, words))
            wrote(output)
    return 0 if all(map(table.passes, outcomes)) and not left_out else INCOMPLETE


@command.command(epilog="Example: sudo spoolscope lab troubles frozen_filesystem")
@click.argument("names", nargs=-1, type=click.Choice(list(TROUBLES)), metavar="[RULE]...")
@quiet_option
@json_option
def troubles(names: tuple[str, ...], quiet: bool, as_json: bool) -> int:
    """Make each trouble that a rule of insights is for, and something that only looks like it.

    RULE is the kind of a rule, such as frozen_filesystem; without one all are
    tried, some ten seconds each. Each is a short recording on a filesystem
    made for it.

    Exit code 3: a rule did not fire in its trouble, or fired in what looks like it.
    """
    from spoolscope.lab.private import enter
    from spoolscope.lab.trouble_runs import run_all, text, to_json

    enter(None)
    with progress(quiet=quiet) as show:
        found, left_out = run_all(names or tuple(TROUBLES), show)
    for sentence in left_out:
        warn(sentence)
    if not found:
        raise SpoolscopeError("no trouble was made", remedy="see the warnings above")
    if as_json:
        emit_json({"scenes": [to_json(one) for one in found]})
    else:
        say(*text(found))
    return 0 if all(one.right for one in found) and not left_out else INCOMPLETE


@command.command(epilog="Example: sudo spoolscope lab kjournald --variant fsync")
@click.option(
    "--variant", "names", multiple=True, type=click.Choice(list(VARIANTS)), help="Only this one."
)
@click.option(
    "--data",
    type=click.Choice(["ordered", "journal"]),
    default="ordered",
    show_default=True,
    help="Mode of the journal.",
)
@seconds_option
@click.option(
    "-o", "--output", type=click.Path(path_type=Path), help="Directory to keep the traces in."
)
@force_option
@quiet_option
@json_option
def kjournald(
    names: tuple[str, ...],
    data: str,
    seconds: float,
    output: Path | None,
    force: bool,
    quiet: bool,
    as_json: bool,
) -> int:
    """Make "kjournald hogs the machine" happen, and name the culprit.

    An ext3 filesystem under deliveries, made slow in four ways: a hidden
    process that syncs without end, a full journal, a directory without an
    index, a slow disk. Exit code 3: a verdict does not name what was set up.
    """
    from spoolscope.lab.kjournald import run_all, trace_name
    from spoolscope.lab.private import enter

    variants = [VARIANTS[name] for name in names or VARIANTS]
    with ExitStack() as claims:
        kept = [output / trace_name(variant, data) for variant in variants] if output else []
        for trace in kept:
            claims.enter_context(claim_output(trace, force=force))
        enter(output)
        show = claims.enter_context(progress(quiet=quiet))
        cases = run_all(variants, data, seconds, output, show)
    if as_json:
        found = [case.to_json() for case in cases]
        emit_json(found[0] if len(found) == 1 else {"cases": found})
    else:
        for case in cases:
            say(*case.text())
        if output is not None:
            wrote(output, f"spoolscope explain {quote(str(kept[-1]))} --blame")
    return 0 if all(case.as_expected for case in cases) else INCOMPLETE
