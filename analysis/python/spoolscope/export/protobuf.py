"""Protocol buffers on the wire: the few kinds of fields that a Perfetto trace needs.

https://protobuf.dev/programming-guides/encoding. The classes that protoc makes need a library, and
several times as long for each of millions of small messages.
"""

VARINT, FIXED64, BYTES = 0, 1, 2


def varint(number: int) -> bytes:
    """Return an integer as a varint; a negative one as the 64 bits of its two's complement."""
    number &= 0xFFFF_FFFF_FFFF_FFFF
    made = bytearray()
    while number > 0x7F:
        made.append(number & 0x7F | 0x80)
        number >>= 7
    made.append(number)
    return bytes(made)


def key(field: int, kind: int) -> bytes:
    """Return what begins a field."""
    return varint(field << 3 | kind)


def integer(field: int, number: int) -> bytes:
    """Return an integer or enum field."""
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
