"""A command of the lab that runs in a machine, which is booted for it."""

import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import nullcontext
from pathlib import Path
from typing import Any

import click

from spoolscope.cli.machines import refuse_icount, refuse_outside, refuse_unbooted
from spoolscope.cli.output import claim_output, form_asked, progress
from spoolscope.cli.vm import (
    end_if_interrupted,
    environment,
    icount_option,
    machine_of,
    memory_option,
    tell_of_accelerator,
)
from spoolscope.lab.vm.running import SCRATCH, run
from spoolscope.replay.candidate import Candidate

_MAIN = [sys.executable, "-m", "spoolscope.cli.main"]
_OUTSIDE = {"vm", "icount", "memory_mib", "force"}
"""Options for the machine, and for what is written outside of it."""


def machine_options(command: Callable[..., Any]) -> Callable[..., Any]:
    """Add the options that choose the machine of a command."""
    vm = click.option(
        "--vm",
        metavar="KERNEL",
        help="Do all of it in a machine with this Debian kernel: 6.1 has jfs and reiserfs.",
    )
    return vm(icount_option(memory_option(command)))


def is_elsewhere(candidates: Sequence[Candidate], options: Mapping[str, Any]) -> bool:
    """Return True if a command is to run in a machine.

    Raises:
        SpoolscopeError: a candidate, a device or an option is not for a machine, or only for one.
    """
    if not options["vm"]:
        refuse_icount(options)
        return False
    refuse_outside([one.name for one in candidates if one.directory], options)
    refuse_unbooted(candidates, [options["vm"]])
    return True


def run_elsewhere(options: Mapping[str, Any], output: Path | None) -> int:
    """Run the current command in a machine, fetch what it writes, and return its exit status.

    Args:
        options: Its options.
        output: Path that it writes; None if it writes nothing.

    Raises:
        SpoolscopeError: the kernel cannot be had, or the machine died.
        KeyboardInterrupt: it was interrupted; what it wrote before is here.
    """
    with progress(quiet=options["quiet"]) as show:
        machine = machine_of(options["vm"], options["memory_mib"], show, icount=options["icount"])
    tell_of_accelerator(machine, quiet=options["quiet"])
    with claim_output(output, force=options["force"]) if output else nullcontext():
        # A key that is there already is the machine's, too.
        written = (output, options.get("key_file"))
        back = [path for path in written if path and not path.is_file()]
        with run(
            machine,
            [*_MAIN, *words_of(click.get_current_context(), options, output)],
            back=[path.absolute() for path in back],
            work=options["work"],
            environment=environment(machine),
        ) as ended:
            for path in back:
                ended.bring(path.absolute(), path)
    end_if_interrupted(ended)
    return ended.status


def words_of(context: click.Context, options: Mapping[str, Any], output: Path | None) -> list[str]:
    """Return the words of a command with these options, for a machine.

    Args:
        context: The command's context; it is one of ``lab``.
        options: The values of its options.
        output: Path that it writes; None if it writes nothing.
    """
    inside = dict(options) | {"work": SCRATCH, "output": output and output.absolute()}
    words = ["lab", str(context.info_name)]
    for parameter in context.command.params:
        name = str(parameter.name)
        if name not in _OUTSIDE and name != "as_json":
            words += _words(parameter, inside[name])
    return [*words, *([f"--{form_asked()}"] if options["as_json"] else [])]


def _words(parameter: click.Parameter, value: Any) -> Iterator[str]:
    if isinstance(parameter, click.Argument):
        yield str(value)
        return
    name = max(parameter.opts, key=len)
    if value is True:
        yield name
    elif not isinstance(value, bool) and value is not None:
        for one in value if isinstance(value, tuple) else [value]:
            # Numbers are read without an exponent.
            yield from (name, f"{one:.9f}" if isinstance(one, float) else str(one))
