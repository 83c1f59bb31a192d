"""Calls of programs that work on mailboxes beside the server; each must have its expected result.

others.py DIRECTORY
"""

import os
import sys
from pathlib import Path

SOMEBODY, GROUP = 5000, 6000


def main() -> None:
    directory = Path(sys.argv[1])
    outside = os.open("/", os.O_RDONLY | os.O_DIRECTORY)
    box = directory / "box"
    box.mkdir()
    # rsync sets the times of its working directory by ".", and follows no symlink.
    inside = os.open(box, os.O_RDONLY | os.O_DIRECTORY)
    os.utime(".", (1, 1), dir_fd=inside, follow_symlinks=False)
    assert box.stat().st_mtime == 1
    # find and rm go into a directory, and back to where they were started.
    for _ in range(3):
        os.fchdir(inside)
        Path("mail").write_text("x")
        os.fchdir(outside)
        (box / "mail").unlink()
    # lmtpd of Cyrus calls stat with an empty (unconfigured) name, in its configuration directory.
    os.chdir(box)
    try:
        os.stat("")  # noqa: PTH116 - a Path has a name
    except FileNotFoundError:
        os.chdir("/")
    else:
        raise AssertionError("an empty name is none")
    (directory / "drop").mkdir()
    (directory / "drop").chmod(0o777)
    with_a_mask(directory)
    as_somebody(directory)
    as_member(directory)


def with_a_mask(directory: Path) -> None:
    """Begin with umask, as the delivering children of Exim do."""
    child = os.fork()
    if not child:
        before = os.umask(0o027)
        Path(directory, "masked").write_text("x")
        os._exit(os.umask(before) != 0o027)
    assert os.waitpid(child, 0)[1] == 0


def as_somebody(directory: Path) -> None:
    """Become a user as servers do, and make calls without write permission, as doveadm does."""
    child = os.fork()
    if not child:
        os.chdir(directory)  # directories above it are closed to the user
        os.setgroups([])
        os.setgid(SOMEBODY)
        os.setuid(SOMEBODY)
        Path("drop/mail").write_text("x")
        assert Path("drop/mail").stat().st_uid == SOMEBODY
        assert not os.access(".", os.W_OK)
        assert os.access("box", os.R_OK | os.X_OK)
        try:
            Path("other").mkdir()
        except PermissionError:
            os._exit(0)
        os._exit(1)
    assert os.waitpid(child, 0)[1] == 0


def as_member(directory: Path) -> None:
    """Work in a directory of a group, which is not recorded, and be denied other calls."""
    (directory / "shared").mkdir()
    os.chown(directory / "shared", 0, GROUP)
    (directory / "shared").chmod(0o770)
    child = os.fork()
    if not child:
        os.chdir(directory)
        os.setgroups([GROUP])
        os.setgid(SOMEBODY)
        os.setuid(SOMEBODY)
        Path("shared/mail").write_text("x")
        # Like Dovecot, which may not make a dotlock beside an mbox.
        denied = [lambda: Path("other").mkdir(), lambda: os.setuid(0)]
        for call in denied:
            try:
                call()
            except PermissionError:
                continue
            os._exit(1)
        assert not os.access(".", os.W_OK)
        assert os.access("shared", os.W_OK)
        with Path("shared/mail").open("a") as mail:
            mail.write("y")
        os._exit(0)
    assert os.waitpid(child, 0)[1] == 0


main()
