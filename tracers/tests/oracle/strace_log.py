"""Reader for the files of ``strace -ff -X raw -xx -v -y -s 65536``, one per thread.

Strings and the paths behind descriptors are in hexadecimal escapes, so no quote, comma or
bracket inside them can mislead the reader.
"""

import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

OPTIONS = ("-ff", "-X", "raw", "-xx", "-v", "-y", "-s", "65536", "-e", "signal=none")

_LINE = re.compile(r"^(?P<name>\w+)\((?P<args>.*)\)\s+= (?P<ret>\?|-?\w+)(?P<rest>.*)$")
_DESCRIPTOR = re.compile(r"^(-?\d+)(?:<((?:\\x[0-9a-f]{2})*)>)?(\(deleted\))?$")
# Calls that Debian 12's strace does not know: it prints number and hexadecimal arguments.
_NUMBERED = {"syscall_0x1c4": "fchmodat2"}
_OPEN, _CLOSE = "([{<", ")]}>"


@dataclass(frozen=True)
class Line:
    """One call: its arguments as strace printed them, its result (None: never returned)."""

    name: str
    args: tuple[str, ...]
    ret: int | None
    errno: str
    text: str


def read(directory: Path, prefix: str) -> dict[int, list[Line]]:
    """Return the calls of every thread, in order, by thread id."""
    logs = sorted(directory.glob(f"{prefix}.*"))
    return {int(log.suffix[1:]): list(_lines(log)) for log in logs}


def _lines(log: Path) -> Iterator[Line]:
    for text in log.read_text().splitlines():
        if text.startswith(("+++", "---")):
            continue
        found = _LINE.match(text)
        if not found:
            raise ValueError(f"not understood: {text[:200]}")
        ret = found["ret"]
        errno = re.match(r" (E[A-Z0-9]+)", found["rest"])
        yield Line(
            _NUMBERED.get(found["name"], found["name"]),
            tuple(split(found["args"])),
            _result(ret, errno[1] if errno else ""),
            errno[1] if errno else "",
            text,
        )


def _result(text: str, errno: str) -> int | None:
    if text == "?":  # never returned, or will be restarted
        return -1 if errno else None
    return number(text)


def split(args: str) -> list[str]:
    """Split arguments at the commas outside brackets."""
    parts, depth, start = [], 0, 0
    for at, char in enumerate(args):
        if char in _OPEN:
            depth += 1
        elif char in _CLOSE and args[at - 1] != "=":
            depth -= 1
        elif char == "," and depth == 0:
            parts.append(args[start:at].strip())
            start = at + 1
    last = args[start:].strip()
    return [*parts, last] if last else parts


def number(text: str) -> int:
    """Parse 12, -1, 0x1f, 0644 (octal) or NULL; a trailing <...> is dropped."""
    text = text.split("<", 1)[0].split(" ", 1)[0]
    text = text.lstrip("|")  # strace 6.1 writes statx's flags 0 and 0x1000 as "" and "|0x1000"
    if text in ("NULL", ""):
        return 0
    if re.fullmatch(r"-?0[0-7]+", text):
        return int(text, 8)
    return int(text, 0)


def descriptor(text: str) -> tuple[int, str | None]:
    """Parse ``3<path>``: return the number and the path, if there is one."""
    found = _DESCRIPTOR.match(text)
    if not found:
        value = number(text) & 0xFFFF_FFFF  # 0xffffff9c is AT_FDCWD
        return value - (value >> 31 << 32), None
    return int(found[1]), None if found[2] is None else unescape(found[2])


def annotated(text: str) -> dict[int, str]:
    """Return every descriptor of a line that strace printed with a path, with that path."""
    found = re.findall(r"(\d+)<((?:\\x[0-9a-f]{2})+)>", text)
    return {int(fd): unescape(path) for fd, path in found}


def string(text: str) -> str | None:
    """Parse a quoted string; return None if strace printed an address instead."""
    return unescape(text[1:-1]) if text.startswith('"') else None


def octets(text: str) -> bytes:
    """Parse a quoted value."""
    return bytes.fromhex(text[1:-1].replace("\\x", ""))


def unescape(hexadecimal: str) -> str:
    """Turn \\x2f\\x61 into /a; bytes outside UTF-8 become surrogates."""
    return bytes.fromhex(hexadecimal.replace("\\x", "")).decode(errors="surrogateescape")


def member(struct: str, name: str) -> int | None:
    """Return a number inside a printed struct, e.g. st_ino of {st_dev=..., st_ino=7, ...}."""
    found = re.search(rf"\b{name}=(-?\w+)", struct)
    return number(found[1]) if found else None


def members(struct: str, name: str) -> list[int]:
    """Return every number of that name, e.g. all iov_len of an iovec array."""
    return [number(n) for n in re.findall(rf"\b{name}=(-?\w+)", struct)]
