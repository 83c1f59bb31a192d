"""Conversion of names to the text of a table and back, and safe display of any text."""

import json
import re
from typing import Any

# Characters with which surrogateescape marks bytes outside UTF-8.
_STRAY = re.compile("[\udc80-\udcff]")
_ESCAPE = re.compile(rb"%([0-9A-F]{2})")
# Characters that are printable to Python but invisible: Unicode's default ignorable ones outside
# category C, and the empty Braille cell.
_UNSEEN = re.compile(
    "[\u034f\u115f\u1160\u17b4\u17b5\u180b-\u180f\u2800\u3164\ufe00-\ufe0f\uffa0\U000e0100-\U000e01ef]"
)


def escaped(path: bytes) -> str:
    """Return a name as text: bytes outside UTF-8 and '%' become %XX, so that nothing is lost."""
    text = path.decode(errors="surrogateescape")
    text = text.replace("%", "%25") if "%" in text else text
    # Only those bytes change, so that a directory has the same text in all paths.
    return text if text.isascii() else _STRAY.sub(lambda m: f"%{ord(m[0]) - 0xDC00:02X}", text)


def decoded(text: str) -> bytes:
    """Return the bytes of a name from the text that ``escaped`` returned."""
    raw = text.encode()
    return _ESCAPE.sub(lambda m: bytes([int(m[1], 16)]), raw) if b"%" in raw else raw


def shown(text: str) -> str:
    r"""Return a text on one line with visible characters only.

    Anybody may give a program or a file a name that controls a terminal, forges a line of output
    or reverses the order of letters. Characters that do this become \x1b or \u202e: control and
    format characters (also line ends and tabs), surrogates of bytes outside UTF-8, all spaces but
    the usual one, and invisible characters.
    """
    if text.isprintable() and not _UNSEEN.search(text):
        return text
    return "".join(
        c if c.isprintable() and not _UNSEEN.match(c) else _as_number(ord(c)) for c in text
    )


def shown_json(value: Any, **options: Any) -> str:
    """Return JSON in ASCII without control characters except the line ends of its layout.

    Args:
        value: Value for json.dumps.
        options: Passed on to json.dumps.
    """
    return json.dumps(value, **options).replace("\x7f", "\\u007f")


def _as_number(code: int) -> str:
    if code < 0x100:
        return f"\\x{code:02x}"
    return f"\\u{code:04x}" if code < 0x10000 else f"\\U{code:08x}"
