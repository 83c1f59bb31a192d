"""Output directories: private while they are filled, renamed when they are complete.

Rules for their places, as commands often run as root:

* nothing that spoolscope creates or opens for writing may be a symbolic link;
* a link on the path is followed if root or the running user owns it and its directory is not
  writable by all: ``/var/spool -> /data/spool`` is an operator's, one in ``/tmp`` may be anybody's;
* no directory on the path may be writable by all, unless it is sticky.
"""

import os
import re
import shutil
import stat
import tempfile
from pathlib import Path

from spoolscope.traces import unfinished
from spoolscope.traces.errors import USAGE, SpoolscopeError

MOST_LINKS = 40  # the kernel's limit


def check_output(output: Path) -> None:
    """Check that a directory can be made under this name.

    Raises:
        SpoolscopeError: it exists, or its parent is missing or cannot be trusted.
    """
    if output.exists() or output.is_symlink():
        raise SpoolscopeError(
            f"output {output} exists", remedy="give another -o, or --force", exit_code=USAGE
        )
    place_of(output)


def place_of(output: Path) -> Path:
    """Return the real path of an output, after checking every directory on it.

    Raises:
        SpoolscopeError: the parent is missing, or another user could redirect the path.
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
    """Make ``.NAME.xxxx`` of mode 0700 beside the output, locked and noted while it is in use.

    Raises:
        SpoolscopeError: another command is writing the same output.
    """
    place = place_of(output)
    try:
        work = Path(tempfile.mkdtemp(prefix=f".{place.name}.", dir=place.parent))
    except OSError as error:  # it names a directory that nobody gave
        raise OSError(error.errno, error.strerror, str(place.parent)) from error
    # At least one of two concurrent commands sees the lock of the other, so not both go on.
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
    """Rename a filled work directory to the output that it was made for; its files are private."""
    for file in work.iterdir():
        file.chmod(0o600)
    work.rename(work.parent / output.name)
    unfinished.end(work)
