"""A trace directory on its way: private while it is filled, named when it is whole.

Rules for where it may lie, as what runs is often root:

* nothing that spoolscope creates or opens for writing may be a symbolic link;
* a link on the way to it counts if root or we ourselves own it and its directory is not writable
  by all: ``/var/spool -> /data/spool`` is an operator's, a link in ``/tmp`` may be anybody's;
* no directory on the way may be writable by all, unless it is sticky.
"""

import os
import re
import shutil
import stat
import tempfile
from pathlib import Path

from spoolscope.traces import unfinished
from spoolscope.traces.errors import USAGE, SpoolscopeError

MOST_LINKS = 40  # as the kernel


def check_output(output: Path) -> None:
    """Make sure that a directory can appear under this name.

    Raises:
        SpoolscopeError: something is there, or its parent is not or cannot be trusted.
    """
    if output.exists() or output.is_symlink():
        raise SpoolscopeError(
            f"output {output} exists", remedy="give another -o, or --force", exit_code=USAGE
        )
    place_of(output)


def place_of(output: Path) -> Path:
    """Return where an output really lies, after checking every directory on the way.

    Raises:
        SpoolscopeError: the parent is missing, or somebody else could lead us astray.
    """
    here = Path("/")
    left = list(reversed(Path.cwd().joinpath(output).parent.parts[1:]))
    links = 0
    while left:
        part = left.pop()
        if part == "..":
            here = here.parent
            continue
        found = _lstat(here / part, output)
        if stat.S_ISLNK(found.st_mode):
            _check_link(here, part, found)
            links += 1
            target = (here / part).readlink()
            if links > MOST_LINKS:
                raise _refused(here / part, "is one of too many symbolic links")
            here = Path("/") if target.is_absolute() else here
            left += [word for word in reversed(target.parts) if word != "/"]
            continue
        here = here / part
        if not stat.S_ISDIR(found.st_mode):
            raise _missing(output)
        if _anybody_writes(found) and not found.st_mode & stat.S_ISVTX:
            raise _refused(here, "is writable by everybody")
    return here / output.name


def _lstat(path: Path, output: Path) -> os.stat_result:
    try:
        return path.lstat()
    except OSError as error:
        raise _missing(output) from error


def _check_link(directory: Path, name: str, link: os.stat_result) -> None:
    if link.st_uid not in (0, os.geteuid()):
        raise _refused(directory / name, f"is a symbolic link of user {link.st_uid}")
    if _anybody_writes(directory.stat()):
        raise _refused(directory / name, "is a symbolic link where everybody may make one")


def _anybody_writes(found: os.stat_result) -> bool:
    return bool(found.st_mode & stat.S_IWOTH)


def _refused(path: Path, why: str) -> SpoolscopeError:
    return SpoolscopeError(
        f"{path}, on the way to the output, {why}",
        remedy="give another -o, in a directory of your own",
        exit_code=USAGE,
    )


def _missing(output: Path) -> SpoolscopeError:
    return SpoolscopeError(
        f"no such directory: {output.parent}",
        remedy=f"mkdir -p {output.parent}",
        exit_code=USAGE,
    )


def work_directory(output: Path, kind: unfinished.Kind = "output") -> Path:
    """Make ``.NAME.xxxx`` of mode 0700 beside the output, locked and noted while we work there.

    Raises:
        SpoolscopeError: another command is writing the same output.
    """
    place = place_of(output)
    work = Path(tempfile.mkdtemp(prefix=f".{place.name}.", dir=place.parent))
    # One of two commands at once sees the lock of the other, if not both: none goes on unseen.
    unfinished.begin(work, kind, place)
    others = re.compile(rf"\.{re.escape(place.name)}\.[a-z0-9_]{{8}}")
    for found in place.parent.iterdir():
        if others.fullmatch(found.name) and found != work and unfinished.in_use(found):
            discard(work)
            raise SpoolscopeError(
                f"another command is writing {output} now, in {found}",
                remedy="give another -o, or wait for it",
                exit_code=USAGE,
            )
    return work


def discard(work: Path) -> None:
    """Remove a work directory."""
    shutil.rmtree(work, ignore_errors=True)
    unfinished.end(work)


def publish(work: Path, output: Path) -> None:
    """Give a filled work directory, made for this output, its name; its files are private."""
    for file in work.iterdir():
        file.chmod(0o600)
    work.rename(work.parent / output.name)
    unfinished.end(work)
