"""The parts of a line of strace: splitting of arguments, and their values."""

import re
from typing import NamedTuple

from spoolscope.tracers.strace.symbols import NUMBERS

_STRING = r'"[^"\\]*(?:\\.[^"\\]*)*"(?:\.\.\.)?'
# Text behind a descriptor; strace escapes < and > in names, but writes -> between addresses.
_BEHIND = r"<(?:->|[^<>]|<[^<>]*>)*>"
_TOKEN = re.compile(rf"{_STRING}|/\*.*?\*/|(?<=[0-9D]){_BEHIND}|[\[({{]|[\])}}]|,")
_DESCRIPTOR = re.compile(rf"(-?\d+|0x[0-9a-f]+|AT_FDCWD)({_BEHIND})?(\(deleted\))?(?:\s*/\*.*)?$")
_QUOTED = re.compile(rf"({_STRING})(?:\s*/\*.*)?$")
_ESCAPE = re.compile(r"\\(x[0-9a-fA-F]{1,2}|[0-7]{1,3}|.)", re.DOTALL)
_LETTERS = {"n": "\n", "t": "\t", "r": "\r", "v": "\v", "f": "\f", "a": "\a", "b": "\b", "e": "\33"}
_COMMENT = re.compile(r"\s*/\*.*?\*/")
_DEVICE = re.compile(r"makedev\((0x[0-9a-f]+|\d+), (0x[0-9a-f]+|\d+)\)$")
MOST_REMEMBERED = 65_536
DELETED = b" (deleted)"


class NotUnderstoodError(ValueError):
    """A line, or a part of one, has an unknown form."""


class Behind(NamedTuple):
    """A descriptor, and its path if strace printed it (-y).

    Attributes:
        fd: Its number.
        path: The last name; empty if the object has none, as a socket; None if not printed.
        deleted: The name was removed.
    """

    fd: int
    path: bytes | None
    deleted: bool


def split(text: str, at: int) -> tuple[list[str], int]:
    """Split arguments from ``at`` at the commas outside brackets.

    It returns them and the place behind the closing bracket.

    Raises:
        NotUnderstoodError: there is no closing bracket.
    """
    parts: list[str] = []
    depth, begin = 0, at
    for token in _TOKEN.finditer(text, at):
        char = text[token.start()]
        if char == ",":
            if not depth:
                parts.append(text[begin : token.start()].strip())
                begin = token.end()
        elif char in "([{":
            depth += 1
        elif char in ")]}":
            if not depth:
                last = text[begin : token.start()].strip()
                return ([*parts, last] if last else parts), token.end()
            depth -= 1
    raise NotUnderstoodError


_numbers: dict[str, int] = {}


def number(text: str) -> int:
    """Parse 12, -1, 0x1f, 0644, NULL, O_RDWR|O_CREAT or S_IFREG|0600."""
    known = _numbers.get(text)
    if known is None:
        known = _number(text)
        if len(_numbers) < MOST_REMEMBERED:
            _numbers[text] = known
    return known


def _number(text: str) -> int:
    value = 0
    plain = _COMMENT.sub("", text).strip()
    if device := _DEVICE.match(plain):
        major, minor = int(device[1], 0), int(device[2], 0)
        # As makedev(3): the form of mknod's argument.
        return minor & 0xFF | major << 8 | (minor & ~0xFF) << 12
    for word in plain.split("|"):
        value |= _word(word.strip())
    if not -(1 << 63) <= value < 1 << 64:
        raise NotUnderstoodError
    return value


def signed(value: int) -> int:
    """Return the bits as a signed 64-bit number."""
    value &= (1 << 64) - 1
    return value - (value >> 63 << 64)


def _word(word: str) -> int:
    if word in ("", "NULL"):  # strace 6.1 writes statx's flags 0x1000 as "|0x1000"
        return 0
    if word in NUMBERS:
        return NUMBERS[word]
    try:
        if word[0] == "0" and word.isdigit():
            return int(word, 8)
        return int(word, 0)
    except ValueError:
        raise NotUnderstoodError from None


def descriptor(text: str) -> Behind:
    """Parse 3, 3</path>, 3</path>(deleted), AT_FDCWD</path> or 0xffffff9c."""
    found = _DESCRIPTOR.match(text)
    if not found:
        raise NotUnderstoodError
    fd = number(found[1]) & 0xFFFF_FFFF
    path = None if found[2] is None else b""
    if found[2]:
        # For devices -yy prints more, in brackets of its own; -xx escapes every letter.
        said = unescaped(found[2][1:-1].split("<", 1)[0])
        path = said if said.startswith(b"/") else b""  # a socket, a pipe
    # Before strace 5.19 the kernel's suffix of a deleted file was part of its name.
    deleted = bool(found[3]) or bool(path and path.endswith(DELETED))
    name = path.removesuffix(DELETED) if path and not found[3] else path
    return Behind(fd - (fd >> 31 << 32), name, deleted)


def string(text: str) -> tuple[bytes | None, bool]:
    """Return a quoted string, None for an address, and whether strace cut it."""
    if not text.startswith('"'):
        return None, False
    found = _QUOTED.match(text)
    if not found:
        raise NotUnderstoodError
    quoted = found[1]
    cut = quoted.endswith("...")
    return unescaped(quoted[1:-4] if cut else quoted[1:-1]), cut


def unescaped(text: str) -> bytes:
    """Undo C's escapes; the text has one character per byte."""
    if "\\" in text:
        text = _ESCAPE.sub(_char, text)
    return text.encode("latin-1")


def _char(found: re.Match[str]) -> str:
    code = found[1]
    if code[0] == "x" and len(code) > 1:
        return chr(int(code[1:], 16))
    if code[0] in "01234567":
        return chr(int(code, 8) & 0xFF)
    return _LETTERS.get(code, code)


def member(struct: str, name: str) -> str | None:
    """Return the text of a member of a printed struct that is a number."""
    found = re.search(rf"\b{name}=([^,}}\]]*)", struct)
    return found[1] if found else None
