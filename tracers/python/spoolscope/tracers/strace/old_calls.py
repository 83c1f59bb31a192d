"""Calls of 32-bit programs and of old straces, as the equivalent calls of x86-64."""

from spoolscope.tracers.strace.lines import Called
from spoolscope.tracers.strace.words import number

NAMES = {
    **dict.fromkeys(("oldstat", "stat64"), "stat"),
    **dict.fromkeys(("oldlstat", "lstat64"), "lstat"),
    **dict.fromkeys(("oldfstat", "fstat64"), "fstat"),
    "fstatat64": "newfstatat",
    "statfs64": "statfs",
    "fstatfs64": "fstatfs",
    "_llseek": "lseek",
    "llseek": "lseek",
    "pread": "pread64",
    "pwrite": "pwrite64",
    "fcntl64": "fcntl",
    "truncate64": "truncate",
    "ftruncate64": "ftruncate",
    "sendfile64": "sendfile",
    "fadvise64_64": "fadvise64",
    "posix_fadvise": "fadvise64",
    "sync_file_range2": "sync_file_range",
    "mmap2": "mmap",
    "old_mmap": "mmap",
    "utimensat_time64": "utimensat",
    "_exit": "exit",
    **{
        f"{name}32": name
        for name in (
            *("chown", "lchown", "fchown", "setuid", "setgid", "setreuid", "setregid"),
            *("setresuid", "setresgid", "setfsuid", "setfsgid"),
        )
    },
}
_PAGE = 4096
_LOCKS = {"F_GETLK64": "F_GETLK", "F_SETLK64": "F_SETLK", "F_SETLKW64": "F_SETLKW"}


def name_today(name: str) -> str:
    """Return the name of a call in calls.txt; an unknown name is returned as it is."""
    return NAMES.get(name, name)


def today(line: Called) -> Called:
    """Return a call as strace prints the equivalent one on x86-64.

    Raises:
        NotUnderstoodError: it has an unknown form.
    """
    args, ret = line.args, line.ret
    if line.name in ("_llseek", "llseek") and len(args) == 4:  # fd, offset, [result], whence
        if ret == 0:
            ret = number(args[2].strip("[]"))
        args = [args[0], args[1], args[3]]
    elif line.name == "sync_file_range2" and len(args) == 4:
        args = [args[0], args[2], args[3], args[1]]
    elif line.name == "mmap2" and len(args) == 6:
        # Old straces print the number of the page as the kernel gets it, later ones bytes.
        offset = number(args[5])
        args = [*args[:5], str(offset * _PAGE if offset % _PAGE else offset)]
    elif line.name == "fcntl64" and len(args) > 1:
        args = [args[0], _LOCKS.get(args[1], args[1]), *args[2:]]
    return line._replace(name=name_today(line.name), args=args, ret=ret)
