"""The verb import."""

from inspect import cleandoc
from pathlib import Path
from shlex import quote
from typing import Any

import click

from spoolscope.cli.limits import PID
from spoolscope.cli.names import warn_of_book
from spoolscope.cli.output import (
    claim_output,
    emit_json,
    force_option,
    hide_programs_option,
    json_option,
    key_file_option,
    new_trace_option,
    progress,
    quiet_option,
    warn,
    wrote,
)
from spoolscope.cli.printing import say
from spoolscope.traces.errors import INCOMPLETE

EPILOG = """\b
Examples:
  strace -f -ff -ttt -T -s 0 -y -o log -p "$(pidof lmtp imap)"
  spoolscope import strace log.* --root /var/mail -o monday.trace
  spoolscope import strace log --pid 2144 --cwd /var/mail/a --root /var/mail
"""


@click.group()
def command() -> None:
    """Make a trace of what another program recorded."""


@command.command(epilog=EPILOG)
@click.argument(
    "files", nargs=-1, required=True, type=click.Path(path_type=Path, exists=True, dir_okay=False)
)
@click.option(
    "--root",
    type=click.Path(path_type=Path),
    required=True,
    help="The mail spool, as strace saw it.",
)
@click.option(
    "--cwd",
    type=click.Path(path_type=Path),
    help="Where the processes worked that strace found running; -y tells it, too.",
)
@click.option("--pid", type=PID, help="The process, if the lines do not name it.")
@new_trace_option
@click.option("--keep-names", is_flag=True, help="Keep file names instead of hiding them.")
@hide_programs_option
@key_file_option
@force_option
@quiet_option
@json_option
def strace(
    files: tuple[Path, ...],
    root: Path,
    cwd: Path | None,
    pid: int | None,
    output: Path,
    key_file: Path | None,
    *,
    keep_names: bool,
    hide_programs: bool,
    force: bool,
    quiet: bool,
    as_json: bool,
) -> int:
    """Make a trace of what strace wrote, for machines where BPF cannot be had.

    FILES is what 'strace -f -ff -ttt -T -s 0 -y -o PREFIX' wrote, or the one
    file of -f without -ff. What other options leave out is worked out where it
    can be (-t, -tt, -r, no times, no -y), and said. The trace can be replayed and
    compared; it does not tell why a call took long. Content of mail in FILES is
    not copied.
    """
    from spoolscope.tracers.strace.importer import Begun, import_strace
    from spoolscope.traces.private import Hiding

    hiding = (
        None if keep_names else Hiding.by_key_file(key_file, outside=output, programs=hide_programs)
    )
    with claim_output(output, force=force, inputs=files), progress(quiet=quiet) as show:
        meta = import_strace(files, root, output, hiding, show, Begun(pid, cwd))
    facts = meta["imported"]
    for sentence in _doubts(facts):
        warn(sentence)
    warn_of_book(meta)
    if as_json:
        emit_json({"trace": str(output), "complete": meta["complete"], **facts, **_sums(meta)})
    else:
        n, seconds = meta["counts"]["syscalls"], meta["duration_ns"] / 1e9
        say(f"{n:,} calls in {seconds:.1f} s, of {facts['lines']:,} lines of strace")
        wrote(output, f"sudo spoolscope replay {quote(str(output))} --on ext4 --on xfs -o OUT")
    return 0 if meta["complete"] else INCOMPLETE


def _blocks(form: str, epilog: str) -> click.Command:
    """Return the command that imports block traces of a form."""

    @click.command(form, epilog=epilog, help=cleandoc(_BLOCK_HELP[form]))
    @click.argument(
        "files",
        nargs=-1,
        required=True,
        type=click.Path(path_type=Path, exists=True, dir_okay=False),
    )
    @new_trace_option
    @click.option("--keep-names", is_flag=True, help="Keep names of programs that may be private.")
    @hide_programs_option
    @key_file_option
    @force_option
    @quiet_option
    @json_option
    def imported(
        files: tuple[Path, ...],
        output: Path,
        key_file: Path | None,
        *,
        keep_names: bool,
        hide_programs: bool,
        force: bool,
        quiet: bool,
        as_json: bool,
    ) -> int:
        from spoolscope.tracers.blktrace.importer import import_blocks
        from spoolscope.traces.private import Hiding

        hiding = (
            None
            if keep_names
            else Hiding.by_key_file(key_file, outside=output, programs=hide_programs)
        )
        with claim_output(output, force=force, inputs=files), progress(quiet=quiet) as show:
            meta = import_blocks(files, form, output, hiding, show)
        return _imported_blocks(meta, output, as_json=as_json)

    return imported


def _imported_blocks(meta: dict[str, Any], output: Path, *, as_json: bool) -> int:
    facts, counts = meta["imported"], meta["counts"]
    for name, what in _BLOCK_DOUBTS.items():
        if facts.get(name):
            warn(f"{facts[name]:,} {what}")
    warn_of_book(meta)
    sums = {"requests": counts["block_ios"], "stages": counts["block_stages"]}
    if as_json:
        basics = {"complete": meta["complete"], "duration_ns": meta["duration_ns"]}
        emit_json({"trace": str(output), **basics, **facts, **sums})
    else:
        seconds = meta["duration_ns"] / 1e9
        say(
            f"{sums['stages']:,} block requests in {seconds:.1f} s, {sums['requests']:,} of them "
            f"from issue to completion, of {facts['events']:,} events"
        )
        wrote(output, f"spoolscope explain {quote(str(output))}")
    return 0 if meta["complete"] else INCOMPLETE


_BLOCK_DOUBTS = {
    "lost": "events are missing in the middle: requests of that time are not whole",
    "foreign_bytes": "bytes are no events: the files are damaged, or cut at their end",
    "not_understood": "lines were not understood",
}
_ALONE = """
    The trace holds block requests alone: info, explain and report show queue
    and device time, sizes, order and flushes, but not which call waited.
"""
_NO_DAY = """
    The times tell no day: the last change of the file counts as its end.
"""
_BLOCK_HELP = {
    "blktrace": f"""
    Make a trace of what blktrace wrote.

    FILES are those of all CPUs.
    {_ALONE}""",
    "blkparse": f"""
    Make a trace of what blkparse printed.

    FILES hold its default format, as 'blkparse -i sda' prints it.
    {_NO_DAY}{_ALONE}""",
    "ftrace": f"""
    Make a trace of ftrace's text.

    FILES are what 'trace' or 'trace_pipe' held with the tracer blk, or with
    the events block:*; other events in it are left out, and counted.
    {_NO_DAY}{_ALONE}""",
}
_BLOCK_EPILOGS = {
    "blktrace": "Example: spoolscope import blktrace sda.blktrace.* -o sda.trace",
    "blkparse": "Example: spoolscope import blkparse sda.txt -o sda.trace",
    "ftrace": "Example: spoolscope import ftrace trace.txt -o sda.trace",
}
for _form, _epilog in _BLOCK_EPILOGS.items():
    command.add_command(_blocks(_form, _epilog))


_TIMES = {
    "day": "the times tell no day: that of the file's last change was taken",
    "relative": "the times tell no beginning (-r): the file's last change was taken for it",
    "none": "the lines tell no times: calls are in the order of their lines, without the pauses "
    "between them; replay with --pace afap",
}


def _sums(meta: dict[str, Any]) -> dict[str, Any]:
    return {"syscalls": meta["counts"]["syscalls"], "duration_ns": meta["duration_ns"]}


def _doubts(facts: dict[str, Any]) -> list[str]:
    """Return what the files left open, with the option of strace that records it."""
    sayings = (
        ("not_understood", "lines were not understood; 'spoolscope info' tells of which threads"),
        ("unfinished", "calls had not returned at the end"),
        (
            "unplaced",
            "calls have a descriptor or directory that nothing tells of: use strace -y, or give "
            "the working directory with --cwd",
        ),
        (
            "without_parent",
            "threads came later, but no line shows what made them: for a container use strace "
            "--decode-pids=pidns, and -e trace= must not leave out the calls that make threads",
        ),
        (
            "names_cut",
            "names of extended attributes were cut: strace -s 64 tells them, and the first bytes "
            "of what is read and written, too",
        ),
        ("without_duration", "calls without a duration count as 0: use strace -T"),
    )
    said = [_TIMES[facts["times"]]] if facts["times"] in _TIMES else []
    if facts["in_order"] and facts["times"] in ("unix", "day"):
        said.append(
            "the times are whole seconds: calls of a file stay in its order, and how far apart "
            "they were within a second is not known"
        )
    if facts["set_back"]:
        said.append(
            "the clock was set back while strace ran: calls stay in the order of lines; if these "
            "were put in another order since, sort them by time"
        )
    said += [f"{facts[name]:,} {what}" for name, what in sayings if facts[name]]
    if others := facts["other_calls"]:
        names = ", ".join(f"{name} {n:,}" for name, n in others.items())
        said.append(
            "calls that name the spool, or may read and write there, and that no trace holds were "
            f"left out: {names}"
        )
    return said
