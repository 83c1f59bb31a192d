"""Lines of strace: a call, its beginning or its end, a signal, the end of a thread."""

import errno
import re
import signal
from typing import NamedTuple

from spoolscope.tracers.strace.symbols import RESTARTS
from spoolscope.tracers.strace.words import NotUnderstoodError, number, signed, split

_CALL = re.compile(r"(\w+)\(")
_RESUMED = re.compile(r"<\.\.\. (\w+) resumed> ?")
_TAIL = re.compile(
    r"\s*= (\?|-?[0-9]\w*)(<(?:->|[^<>]|<[^<>]*>)*>)?(?:\(deleted\))?"
    r"(?: (E[A-Z0-9_]+))?( \(errno \d+\))?"
    r"(?: /\* (\d{1,9}) in strace's PID NS \*/)?(?:[^\n]*?)(?:<(\d{1,9})\.(\d{1,9})>)?\s*$"
)
_END = re.compile(
    r"\+\+\+ (?:exited with (\d+)|killed by (\w+)|superseded by execve in pid (\d{1,9}))"
)
# Calls that are kept only with these arguments: as words, and as numbers (-X raw).
_RECORDED_IF = {
    "ioctl": re.compile(
        r", (?:\w+ or )?(?:FICLONE(?:RANGE)?|FION?CLEX|0x40049409|0x4020940d|0x545[01])[,)]"
    ),
    "bind": re.compile(r', \{sa_family=(?:AF_UNIX|AF_FILE|AF_LOCAL|0x1), (?:sun_)?path="'),
}
RESUMED = "<... "
UNFINISHED, DETACHED = "<unfinished ...>", "<detached ...>"
CHANGED = re.compile(r"<pid changed to \d{1,9} \.\.\.>$")
"""At the end of an execve that goes on under the number of the first thread of its process."""
CORE_DUMPED = 0x80  # in exit_code, see wait(2)


class Called(NamedTuple):
    """A call that returned, or never did.

    Attributes:
        name: As strace calls it.
        args: Its arguments as text.
        ret: Result, -errno on failure; None if it never returned.
        behind: The path of a descriptor that it returned, as <path>.
        dur_ns: Duration, None if not printed.
        outside: A process id that it returned, in strace's own PID namespace, as in the lines; None
            if strace did not print that it differs (--decode-pids=pidns).
    """

    name: str
    args: list[str]
    ret: int | None
    behind: str
    dur_ns: int | None
    outside: int | None = None


def name_of(text: str) -> str:
    """Return the name of the call with which a line begins, "" if there is none."""
    found = _CALL.match(text)
    return found[1] if found else ""


def is_recorded(name: str, text: str) -> bool:
    """Return whether traces hold the call: they hold only some of ioctl and bind."""
    return name not in _RECORDED_IF or _RECORDED_IF[name].search(text) is not None


def resumed(text: str) -> tuple[str, str]:
    """Parse ``<... read resumed>"", 5) = 5``: return the name and the rest."""
    found = _RESUMED.match(text)
    if not found:
        raise NotUnderstoodError
    return found[1], text[found.end() :]


def called(text: str) -> Called:
    """Read a whole call.

    Raises:
        NotUnderstoodError: it is not a call.
    """
    found = _CALL.match(text)
    if not found:
        raise NotUnderstoodError
    args, end = split(text, found.end())
    tail = _TAIL.match(text, end)
    if not tail:
        raise NotUnderstoodError
    if args and args[-1].endswith(UNFINISHED):
        args[-1] = args[-1].removesuffix(UNFINISHED).strip()
        args = args if args[-1] else args[:-1]
    ret, behind, error, unknown, outside, whole, part = tail.groups()
    dur = int(whole) * 10**9 + int(part.ljust(9, "0")) if whole else None
    pid = int(outside) if outside else None
    return Called(found[1], args, _result(ret, error, unknown), behind or "", dur, pid)


def _result(text: str, error: str | None, unknown: str | None) -> int | None:
    if error is not None:
        code = RESTARTS.get(error) or getattr(errno, error, None)
        if code is None:
            raise NotUnderstoodError
        return -int(code)
    if text == "?":
        return None
    if unknown and text == "-1":
        return -int(unknown.split()[1].rstrip(")"))
    return signed(number(text))


def ended(text: str) -> int | None:
    """Parse ``+++ exited with 1 +++``: return the code as in wait(2), None if it goes on."""
    found = _ended(text)
    if found[1]:
        return int(found[1]) << 8
    if found[2]:
        core = CORE_DUMPED if "core dumped" in text else 0
        number = getattr(signal, found[2], 0)
        return int(number) | core
    return None


def taken_over_by(text: str) -> int:
    """Parse ``+++ superseded by execve in pid 8 +++``: return 8, 0 for another end."""
    return int(_ended(text)[3] or 0)


def _ended(text: str) -> "re.Match[str]":
    found = _END.match(text)
    if not found:
        raise NotUnderstoodError
    return found
