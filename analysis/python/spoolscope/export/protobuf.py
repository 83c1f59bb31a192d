"""Encoding of protocol buffers: the few kinds of fields that a Perfetto trace needs.

https://protobuf.dev/programming-guides/encoding. Classes made by protoc need a library, and take
several times as long for each of millions of small messages.
"""

from functools import cache, lru_cache

VARINT, FIXED64, BYTES = 0, 1, 2
# Varints of lengths, types and most numbers of names and tracks, which occur by the million.
_SHORT = [bytes([n]) if n < 0x80 else bytes([n & 0x7F | 0x80, n >> 7]) for n in range(1 << 14)]


def varint(number: int) -> bytes:
    """Return an integer as a varint; a negative one as the 64 bits of its two's complement."""
    if 0 <= number < len(_SHORT):
        return _SHORT[number]
    if 0 < number >> 56 < 0x80:
        return _time(number)
    number &= 0xFFFF_FFFF_FFFF_FFFF
    made = bytearray()
    while number > 0x7F:
        made.append(number & 0x7F | 0x80)
        number >>= 7
    made.append(number)
    return bytes(made)


def _time(n: int) -> bytes:
    """Return the varint of a time since the epoch in ns, nine bytes, unrolled as twice as fast."""
    head = (n & 127 | 128, n >> 7 & 127 | 128, n >> 14 & 127 | 128, n >> 21 & 127 | 128)
    rest = (n >> 28 & 127 | 128, n >> 35 & 127 | 128, n >> 42 & 127 | 128, n >> 49 & 127 | 128)
    return bytes((*head, *rest, n >> 56))


@cache
def key(field: int, kind: int) -> bytes:
    """Return the key that begins a field."""
    return varint(field << 3 | kind)


@lru_cache(1 << 14)
def integer(field: int, number: int) -> bytes:
    """Return an integer or enum field; cached, for numbers that repeat."""
    return key(field, VARINT) + varint(number)


def fixed64(field: int, number: int) -> bytes:
    """Return a field of 64 bits."""
    return key(field, FIXED64) + number.to_bytes(8, "little")


def message(field: int, *parts: bytes) -> bytes:
    """Return a field that holds a message, of these encoded fields, or bytes."""
    content = b"".join(parts)
    return key(field, BYTES) + varint(len(content)) + content


def text(field: int, value: str) -> bytes:
    """Return a string field."""
    return message(field, value.encode(errors="replace"))
