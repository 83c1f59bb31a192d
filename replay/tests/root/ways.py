"""Makes every call that takes a name with names that end in slashes and dots, or lead through them.

``ways.py ROOT SEEN`` works below ROOT and writes what each call returned to SEEN.
"""

# Names must reach the kernel as they are: a Path would tidy them up.
# ruff: noqa: PTH102, PTH123, PTH211

import ctypes
import errno
import json
import os
import stat
import sys
from collections.abc import Callable
from itertools import product

OF_TWO = {"link", "linkto", "rename", "renameto", "movedir", "noreplace", "exchange"}
ENDS = (
    "",
    "/",
    "/.",
    "/..",
    "//./",
    "/../",
    "/../f",
    "/../d/",
    "/../d/..",
    "/in",
    "/in/.",
    "/../new",
)
LINKS = {"lf": "f", "ld": "d", "gone": "nowhere", "loop": "loop"}
NAMES = ("f", "d", "e", "new", *LINKS)
RENAME_NOREPLACE, RENAME_EXCHANGE = 1, 2
libc = ctypes.CDLL(None, use_errno=True)
Call = Callable[[str, int], object]


def _checked(result: int) -> int:
    if result < 0:
        raise OSError(ctypes.get_errno(), os.strerror(ctypes.get_errno()))
    return result


def _open(flags: int) -> Call:
    return lambda name, at: os.close(os.open(name, flags, 0o640, dir_fd=at))


def _rename2(flags: int, *, old: bool) -> Call:
    def call(name: str, at: int) -> int:
        names = [(at, name.encode()), (at, beside(name, "o").encode())]
        (one, first), (other, second) = names if old else names[::-1]
        return _checked(libc.renameat2(one, first, other, second, flags))

    return call


def _watch(name: str, _at: int) -> None:
    fd = _checked(libc.inotify_init1(0))
    try:
        _checked(libc.inotify_add_watch(fd, os.fsencode(name), 1))
    finally:
        os.close(fd)


def _chdir(name: str, _at: int) -> None:
    before = os.open(".", os.O_RDONLY)
    try:
        os.chdir(name)
        os.mkdir("made")
    finally:
        os.fchdir(before)
        os.close(before)


def beside(name: str, other: str) -> str:
    """Return a plain name in the directory of a case."""
    start, _, rest = name.partition("/c")
    return f"{start}/c{rest.partition('/')[0]}/{other}"


X = "user.spoolscope"
CALLS: dict[str, Call] = {
    "open": _open(os.O_RDONLY),
    "write": _open(os.O_WRONLY),
    "creat": _open(os.O_CREAT | os.O_WRONLY | os.O_TRUNC),
    "creatx": _open(os.O_CREAT | os.O_EXCL | os.O_RDWR),
    "opendir": _open(os.O_DIRECTORY),
    "nofollow": _open(os.O_NOFOLLOW),
    "path": _open(os.O_PATH | os.O_NOFOLLOW),
    "tmpfile": _open(os.O_TMPFILE | os.O_RDWR),
    "stat": lambda name, at: os.stat(name, dir_fd=at).st_mode,
    "lstat": lambda name, at: os.lstat(name, dir_fd=at).st_mode,
    "access": lambda name, _at: _checked(libc.access(os.fsencode(name), os.R_OK)),
    "readlink": lambda name, at: os.readlink(name, dir_fd=at),
    "truncate": lambda name, _at: os.truncate(name, 5),
    "chmod": lambda name, at: os.chmod(name, 0o700, dir_fd=at),
    "chown": lambda name, at: os.chown(name, 5, 6, dir_fd=at),
    "lchown": lambda name, at: os.chown(name, 7, 8, dir_fd=at, follow_symlinks=False),
    "utime": lambda name, at: os.utime(name, (1, 2), dir_fd=at),
    "lutime": lambda name, at: os.utime(name, (1, 2), dir_fd=at, follow_symlinks=False),
    "statfs": lambda name, _at: os.statvfs(name).f_bsize,
    "mkdir": lambda name, at: os.mkdir(name, dir_fd=at),
    "mknod": lambda name, at: os.mknod(name, stat.S_IFIFO | 0o600, dir_fd=at),
    "symlink": lambda name, at: os.symlink("d", name, dir_fd=at),
    "unlink": lambda name, at: os.unlink(name, dir_fd=at),
    "rmdir": lambda name, at: os.rmdir(name, dir_fd=at),
    "chdir": _chdir,
    "setxattr": lambda name, _at: os.setxattr(name, X, b"abc"),
    "lsetxattr": lambda name, _at: os.setxattr(name, X, b"ab", follow_symlinks=False),
    "getxattr": lambda name, _at: len(os.getxattr(name, X)),
    "lgetxattr": lambda name, _at: len(os.getxattr(name, X, follow_symlinks=False)),
    "listxattr": lambda name, _at: len(os.listxattr(name)),
    "removexattr": lambda name, _at: os.removexattr(name, X),
    "watch": _watch,
    "link": lambda name, at: os.link(name, beside(name, "o"), src_dir_fd=at, dst_dir_fd=at),
    "linkto": lambda name, at: os.link(beside(name, "f"), name, src_dir_fd=at, dst_dir_fd=at),
    "rename": lambda name, at: os.rename(name, beside(name, "o"), src_dir_fd=at, dst_dir_fd=at),
    "renameto": lambda name, at: os.rename(beside(name, "f"), name, src_dir_fd=at, dst_dir_fd=at),
    "movedir": lambda name, at: os.rename(beside(name, "d"), name, src_dir_fd=at, dst_dir_fd=at),
    "noreplace": _rename2(RENAME_NOREPLACE, old=True),
    "exchange": _rename2(RENAME_EXCHANGE, old=False),
}  # fmt: skip


def made(case: str, name: str) -> None:
    """Make the directories and files to lead through, and the file or link with this name."""
    for directory in ("", "/d", "/e") if name == "e" else ("", "/d"):
        os.mkdir(f"{case}{directory}")
    for file in ("f", "o", "d/in"):
        os.close(os.open(f"{case}/{file}", os.O_CREAT | os.O_WRONLY, 0o644))
    if name in LINKS:
        os.symlink(LINKS[name], f"{case}/{name}")


def tried(call: Call, name: str, at: int) -> object:
    """Return the result of a call, or the error that it ended with."""
    try:
        return call(name, at)
    except OSError as error:
        return errno.errorcode[error.errno or 0]


def main(root: str, seen: str) -> None:
    """Make all calls, each in a directory of its own, with kinds of names in turn."""
    results = []
    os.chdir(root)
    os.mkdir("beside")
    at = os.open(root, os.O_RDONLY)
    for number, (call, name, end) in enumerate(product(CALLS, NAMES, ENDS)):
        case = f"c{number}"
        made(case, name)
        base, directory = ((root + "/", at), ("./", at), (f"{case}/../", at))[number % 3]
        given = f"{base}{case}/{name}{end}"
        results.append((case, call, given, tried(CALLS[call], given, directory)))
    # The root of a replay has no directory above it, so it has no name that a slash can follow:
    # what only such a name shows is left out.
    for call, end in product(CALLS.keys() - OF_TWO, ("", "/", "/.", "/./beside/..")):
        tried(CALLS[call], f"{root}{end}", at)
    inside = os.open("beside", os.O_RDONLY)
    for call in CALLS.keys() - OF_TWO:
        tried(CALLS[call], "", inside)
    with open(seen, "w") as file:
        json.dump(results, file)


if __name__ == "__main__":
    main(*sys.argv[1:])
