"""The verb clean, and the warnings of other verbs on what it would remove."""

import shlex
from pathlib import Path
from typing import Any

import click

from spoolscope.cli.output import emit_json, json_option, warn
from spoolscope.cli.printing import say
from spoolscope.traces.errors import ERROR, SpoolscopeError
from spoolscope.traces.unfinished import Unfinished, left

OVERWRITE = "--overwrite-signature"

# Most leftovers that other verbs name one by one.
NAMED = 3


@click.command(epilog="Example: sudo spoolscope clean --dry-run")
@click.option("-n", "--dry-run", is_flag=True, help="Only say what would be removed.")
@json_option
def command(dry_run: bool, as_json: bool) -> int:
    """Remove what killed commands of yours have left, and nothing else.

    These are captures, which hold names as they are, images with their mounts
    and loop devices, and outputs that never became whole. A capture can still
    become a trace: 'spoolscope record --recover' before. Recorded minutes of
    roll-ups stay: the next 'spoolscope record --rollup' adds them.
    """
    from spoolscope.replay.clearing import remove_left
    from spoolscope.replay.mount_points import remove_unused

    found = left()
    failed: dict[str, str] = {}
    for one in found:
        if not as_json:
            say(f"{_does(one)[not dry_run]} {one.place}: {_what(one)}")
        if dry_run or one.has_minutes:
            continue
        try:
            _put_back(one)
            wiped = remove_left(one)
            for device in one.devices:
                as_it_was = "Left as it is, being empty or of something else by now:"
                say(f"{'Wiped' if device in wiped else as_it_was} {device}", err=True)
        except SpoolscopeError as error:
            failed[str(one.place)] = f"{error.message}; {error.remedy}"
            warn(failed[str(one.place)])
    if not dry_run:
        remove_unused()
    left()  # drops the notes of leftovers that are gone
    if as_json:
        kept = [one.place for one in found if one.has_minutes]
        rows = [_row(one) for one in found]
        emit_json({"found": rows, "removed": not dry_run, "kept": kept, "failed": failed})
    elif not found:
        say("Nothing is left of killed commands.")
    return ERROR if failed else 0


def _does(one: Unfinished) -> tuple[str, str]:
    """Return the words for what would be, and is, done with it."""
    if one.has_minutes:
        return "Would leave", "Leaving"
    if _goes_back(one):
        return "Would put back", "Putting back"
    return "Would remove", "Removing"


def _put_back(one: Unfinished) -> None:
    """Rename what was to be replaced back, if its name is free."""
    if _goes_back(one):
        kept = one.place / one.output.name
        try:
            kept.rename(one.output)
        except OSError as error:
            raise SpoolscopeError(
                f"cannot put {kept} back as {one.output}: {error.strerror}",
                remedy=f"move it by hand: mv {shlex.quote(str(kept))} ELSEWHERE",
            ) from error


def _goes_back(one: Unfinished) -> bool:
    return one.kind == "replaced" and not one.output.exists() and not one.output.is_symlink()


def warn_of_left() -> None:
    """Warn on stderr of leftovers of killed commands, with what to do about them."""
    found = left()
    for one in found[:NAMED]:
        ways = [f"'{way}' {does}" for way, does in _ways(one)]
        warn(f"left behind: {one.place}, {_what(one)}; {', '.join(ways)}")
    if len(found) > NAMED:
        warn(f"left behind: {len(found) - NAMED} more; 'spoolscope clean --dry-run' lists them")


def _row(one: Unfinished) -> dict[str, Any]:
    ways = {does: way for way, does in _ways(one)}
    row = {"place": one.place, "kind": one.kind, "output": one.output, "devices": one.devices}
    return row | {"ways": ways}


def _what(one: Unfinished) -> str:
    if one.has_minutes:
        return f"recorded minutes that are not in the roll-ups {_rollups_of(one)} yet"
    match one.kind:
        case "recording" | "series":
            return f"the capture, with names as they are, of a recording to {one.output}"
        case "replay":
            made = _with_devices("the plan and images", one)
            return f"{made}, perhaps mounted, of a replay to {one.output}"
        case "lab":
            made = _with_devices("the image", one)
            return f"{made}, perhaps mounted, of an experiment of the lab"
        case "output":
            return f"the begin of {one.output}, which never became whole"
        case "replaced":
            return f"the {one.output} that was to be replaced"
        case "minutes":
            return f"notes of a recorder of roll-ups to {one.output}, without minutes"


def _rollups_of(one: Unfinished) -> Path:
    """Return the directory of roll-ups; those beside a flight recorder's capture are around it."""
    return one.output if one.kind == "minutes" else one.output.parent


def _with_devices(files: str, one: Unfinished) -> str:
    return ", ".join((files, *(f"what is on {at}" for at in one.devices)))


def _ways(one: Unfinished) -> list[tuple[str, str]]:
    """Return commands with their effects."""
    ways = []
    if one.kind in ("recording", "series"):
        capture = one.place if one.kind == "recording" else one.output
        recover = ["spoolscope", "record", "--recover", str(capture), "-o", "NEW"]
        ways.append((shlex.join(recover), "makes a trace of it"))
    if one.kind == "replay" and one.command and (one.output / "replay.json").is_file():
        ways.append((resuming(one.command), "goes on with it"))
    if one.has_minutes:
        add = ["spoolscope", "record", "--rollup", "-o", str(_rollups_of(one))]
        return [*ways, (shlex.join(add), "adds them, with your --spool")]
    back = _goes_back(one)
    return [*ways, ("spoolscope clean", "puts it back" if back else "removes it")]


def resuming(command: str) -> str:
    """Return the command that continues a replay begun by ``command``.

    It has no --overwrite-signature: the disk's old content is gone, and after a reboot its name may
    be that of another disk.
    """
    place, _, text = command.partition(" && ")
    words = shlex.split(text)
    kept = [
        word
        for before, word in zip(["", *words], words, strict=False)
        if word not in ("-f", "--force", "--resume")
        and OVERWRITE not in (before, word.partition("=")[0])
    ]
    again = shlex.join([*kept, "--resume"])
    here = shlex.split(place)[1:] == [str(Path.cwd())]
    return again if here else f"{place} && {again}"
