"""The expected content of a trace, computed from strace's log of the same run."""

import errno
import posixpath
from dataclasses import dataclass, field
from pathlib import Path

import strace_log
from strace_log import Line

from spoolscope.traces.calls import CALLS, Call

AT_EMPTY_PATH = 0x1000
LOCK_COMMANDS = {5, 6, 7, 36, 37, 38}
STAT_MEMBERS = {
    "stat": ("st_ino", "st_mode", "st_size"),
    "statx": ("stx_ino", "stx_mode", "stx_size"),
}
# After a signal (here: SIGCHLD) the kernel restarts the call; both count as calls.
RESTARTS = ("ERESTARTSYS", "ERESTARTNOINTR", "ERESTARTNOHAND", "ERESTART_RESTARTBLOCK")
PLACES = {"at": "offset", "at2": "arg"}
FICLONE, FICLONERANGE, FIONCLEX, FIOCLEX = IOCTLS = (0x40049409, 0x4020940D, 0x5450, 0x5451)
RANGE = {"fd2": "src_fd", "arg": "src_offset", "size": "src_length", "offset": "dest_offset"}
NUMBERS = {"flags", "mode", "cmd", "size", "offset", "arg"}


@dataclass
class Expected:
    """One call that a trace must hold; ``fields`` are the columns that strace's log determines."""

    line: Line
    fields: dict[str, object] = field(default_factory=dict)


@dataclass
class State:
    """State that lines change for later ones: cwd by thread, descriptors, maps, watches."""

    mount: str
    cwd: str = ""
    descriptors: dict[int, str] = field(default_factory=dict)
    maps: dict[int, int] = field(default_factory=dict)
    watches: set[tuple[int, int]] = field(default_factory=set)


def calls_on_spool(threads: dict[int, list[Line]], mount: str) -> dict[int, list[Expected]]:
    """Return, for every thread, the calls on the spool at ``mount`` with their fields.

    The program's maps and watches are only used by the process that made them, so one state is
    enough for all.
    """
    state = State(mount)
    directories = _Directories(threads)
    found = {}
    for tid, lines in threads.items():
        rows = []
        for at, line in enumerate(lines):
            state.cwd = directories.at(tid, at)
            state.descriptors |= strace_log.annotated(line.text)
            call = CALLS.get(line.name)
            if call and _on_spool(call, line, state):
                rows.append(Expected(line, _fields(call, line, state)))
        found[tid] = rows
    return found


class _Directories:
    """The working directory of every thread at every line; it is inherited from the creator."""

    def __init__(self, threads: dict[int, list[Line]]) -> None:
        self._steps: dict[int, list[str]] = {}
        first = next(tid for tid, lines in threads.items() if lines[0].name == "execve")
        self._walk(threads, first, str(Path.cwd()))

    def at(self, tid: int, line: int) -> str:
        return self._steps[tid][line]

    def _walk(self, threads: dict[int, list[Line]], tid: int, directory: str) -> None:
        steps = []
        for line in threads[tid]:
            steps.append(directory)
            if line.name in ("fork", "vfork", "clone", "clone3") and (line.ret or 0) > 0:
                self._walk(threads, line.ret, directory)
            elif line.name == "chdir" and line.ret == 0:
                path = strace_log.string(line.args[0])
                directory = posixpath.normpath(posixpath.join(directory, path or ""))
            elif line.name == "fchdir" and line.ret == 0:
                directory = strace_log.descriptor(line.args[0])[1] or directory
        self._steps[tid] = steps


def _on_spool(call: Call, line: Line, state: State) -> bool:
    if call.klass == "task" or call.name == "sync":
        return True
    if call.name == "bind" and not _names_a_socket(line):
        return False
    if call.name == "ioctl" and strace_log.number(line.args[1]) not in IOCTLS:
        return False
    if call.name in ("munmap", "msync"):
        return _mapped(state, strace_log.number(line.args[0]))
    if call.name == "inotify_rm_watch":
        return _watch(line) in state.watches
    on_spool = any(_below(path, state.mount) for path in _paths(call, line, state))
    if on_spool and call.name == "mmap" and not line.errno:
        state.maps[line.ret or 0] = strace_log.number(line.args[1])
    if on_spool and call.name == "inotify_add_watch" and not line.errno:
        state.watches.add((strace_log.descriptor(line.args[0])[0], line.ret or 0))
    return on_spool


def _names_a_socket(line: Line) -> bool:
    return line.args[1].startswith('{sa_family=0x1, sun_path="')


def _watch(line: Line) -> tuple[int, int]:
    return strace_log.descriptor(line.args[0])[0], strace_log.number(line.args[1])


def _mapped(state: State, address: int) -> bool:
    return any(start <= address < start + length for start, length in state.maps.items())


def _paths(call: Call, line: Line, state: State) -> list[str]:
    """Return every path that the call names, also by descriptors."""
    found = [_resolved(call, line, word, state) for word in ("path", "path2")]
    for word in ("fd", "fd2"):
        at = call.position(word)
        if at is not None and at < len(line.args):
            found.append(_behind(line.args[at], state))
    if line.text.startswith("syscall_"):  # strace prints an address instead of the path
        found.append(_behind(line.args[0], state))
    return [path for path in found if path]


def _behind(text: str, state: State) -> str | None:
    """Return the path of a descriptor; strace omits it for close_range."""
    number, path = strace_log.descriptor(text)
    return path or state.descriptors.get(number)


def _resolved(call: Call, line: Line, word: str, state: State) -> str | None:
    at = call.position(word)
    if at is None or at >= len(line.args):
        return None
    directory = _directory_word(call, word)
    text = strace_log.string(line.args[at].removeprefix("{sa_family=0x1, sun_path=").rstrip("}"))
    if text is None:
        # futimens(3) is utimensat(fd, NULL, ...): the descriptor itself is the object.
        if directory is None or line.args[at] != "NULL":
            return None
        text = ""
    base: str | None = state.cwd
    if directory is not None and not text.startswith("/"):
        base = strace_log.descriptor(line.args[directory])[1]
    return None if base is None else posixpath.normpath(posixpath.join(base, text))


def _names_nothing(call: Call, line: Line, word: str) -> bool:
    """Return whether the path is empty and AT_EMPTY_PATH does not permit that."""
    at, flags = call.position(word), call.position("flags")
    if at is None or strace_log.string(line.args[at]) != "":
        return False
    return flags is None or not strace_log.number(line.args[flags]) & AT_EMPTY_PATH


def _directory_word(call: Call, word: str) -> int | None:
    if word == "path2":
        return call.position("dirfd2")
    return call.position("dirfd")


def _below(path: str, mount: str) -> bool:
    return path == mount or path.startswith(mount + "/")


def _fields(call: Call, line: Line, state: State) -> dict[str, object]:
    fields: dict[str, object] = {"syscall": call.name, "errno": _errno(line)}
    if line.ret is not None:
        fields["ret"] = line.ret
    if call.name in ("clone", "clone3"):
        return fields | _clone_flags(call, line)
    if call.name == "umount2" and line.ret == 0:
        return fields | {"path": None}  # it leads to another mount, not to the spool
    for at, word in enumerate(call.args[: len(line.args)]):
        _field(fields, word, line, at)
    for word in ("path", "path2"):
        path = _resolved(call, line, word, state)
        if path is not None and _names_nothing(call, line, word):
            fields[word] = None
        elif path is not None:
            fields[word] = path.removeprefix(state.mount).lstrip("/")
    return fields


def _field(fields: dict[str, object], word: str, line: Line, at: int) -> None:
    text = line.args[at]
    if word in ("fd", "fd2", "dirfd", "dirfd2"):
        fields[word] = strace_log.descriptor(text)[0]
    elif word in ("target", "name"):
        fields["path2"] = strace_log.string(text)
    elif word in NUMBERS:
        fields[word] = strace_log.number(text)
    elif word in PLACES:
        given = text.startswith("[")
        fields[PLACES[word]] = strace_log.number(text[1 : text.index("]")]) if given else None
    elif word in ("uid", "gid"):
        shift = 0 if word == "uid" else 32
        value = (strace_log.number(text) & 0xFFFF_FFFF) << shift
        fields["arg"] = int(fields.get("arg", 0)) | value
    elif word == "iov":
        fields["size"] = sum(strace_log.members(text, "iov_len"))
    elif word == "how":
        known = {name: strace_log.member(text, name) for name in ("flags", "mode")}
        fields |= {name: value for name, value in known.items() if value is not None}
    elif word == "acl" and strace_log.string(line.args[1]) == "system.posix_acl_access":
        value = strace_log.octets(text)
        owner, group, other = (value[at] for at in (6, len(value) - 14, len(value) - 6))
        fields["mode"] = owner << 6 | group << 3 | other
    elif word == "acl":
        fields["mode"] = None
    elif word == "clone" and strace_log.number(line.args[1]) == FICLONE:
        fields["fd2"] = strace_log.descriptor(text)[0]
    elif word == "clone":
        fields |= {column: strace_log.member(text, name) for column, name in RANGE.items()}
    elif word == "flock" and strace_log.number(line.args[1]) in LOCK_COMMANDS:
        _lock_fields(fields, text)
    elif word in STAT_MEMBERS and line.ret == 0:
        columns = ("ino", "obj_mode", "obj_size")
        for column, name in zip(columns, STAT_MEMBERS[word], strict=True):
            fields[column] = strace_log.member(text, name)


def _lock_fields(fields: dict[str, object], text: str) -> None:
    kind, whence = strace_log.member(text, "l_type"), strace_log.member(text, "l_whence")
    if kind is None or whence is None:
        return
    fields["lock_type"] = kind | whence << 8
    fields["offset"] = strace_log.member(text, "l_start")
    fields["size"] = strace_log.member(text, "l_len")


def _clone_flags(call: Call, line: Line) -> dict[str, object]:
    if call.name == "clone3":
        return {}
    flags = next((a for a in line.args if a.startswith("flags=")), None)
    return {} if flags is None else {"flags": strace_log.number(flags.removeprefix("flags="))}


def _errno(line: Line) -> int:
    if line.errno in RESTARTS:
        return errno.EINTR
    return int(getattr(errno, line.errno)) if line.errno else 0
