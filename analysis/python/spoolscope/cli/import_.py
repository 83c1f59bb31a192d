"""The verb import."""

from pathlib import Path
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
        wrote(output, f"spoolscope replay {output} --on ext4 --on xfs")
    return 0 if meta["complete"] else INCOMPLETE


_TIMES = {
    "day": "the times tell no day: that of the file's last change was taken",
    "relative": "the times tell no beginning (-r): the file's last change was taken for it",
    "none": "the lines tell no times: calls are in the order of their lines, without the pauses "
    "between them; replay with --pace afap",
}


def _sums(meta: dict[str, Any]) -> dict[str, Any]:
    return {"syscalls": meta["counts"]["syscalls"], "duration_ns": meta["duration_ns"]}


def _doubts(facts: dict[str, Any]) -> list[str]:
    """Say what the files left open, and which option of strace tells it."""
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
    said += [f"{facts[name]:,} {what}" for name, what in sayings if facts[name]]
    if others := facts["other_calls"]:
        names = ", ".join(f"{name} {n:,}" for name, n in others.items())
        said.append(f"calls that name the spool and that no trace holds were left out: {names}")
    return said
