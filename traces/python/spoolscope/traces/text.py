"""A name's bytes as the text of a table, and back."""

import re

_ESCAPE = re.compile(rb"%([0-9A-F]{2})")


def escaped(path: bytes) -> str:
    """Return a name as text: bytes outside UTF-8 and '%' become %XX, so that nothing is lost."""
    try:
        text = path.decode()
    except UnicodeDecodeError:
        return "".join(chr(b) if b < 0x80 and b != 0x25 else f"%{b:02X}" for b in path)
    return text.replace("%", "%25") if "%" in text else text


def decoded(text: str) -> bytes:
    """Return the bytes of a name that ``escaped`` made text."""
    raw = text.encode()
    return _ESCAPE.sub(lambda m: bytes([int(m[1], 16)]), raw) if b"%" in raw else raw
