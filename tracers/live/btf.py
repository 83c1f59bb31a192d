"""Offsets of members of kernel structures, from the running kernel's BTF.

BCC compiles against installed headers; if these belong to another kernel, the offsets that it
compiles in are wrong, without an error. Format: Documentation/bpf/btf.rst.
"""

import struct
from collections.abc import Iterator
from pathlib import Path

STRUCT, UNION = 4, 5
# Bytes after the 12 of a type: fixed ones, and for each of its vlen entries.
FIXED = {1: 4, 3: 12, 14: 4, 17: 4}
EACH = {STRUCT: 12, UNION: 12, 6: 8, 13: 8, 15: 12, 19: 12}

Member = tuple[str, int, int]


class Btf:
    """The structures of one kernel."""

    def __init__(self, file: Path) -> None:
        data = file.read_bytes()
        magic, _, _, size, types, length, strings, _ = struct.unpack_from("<HBBIIIII", data)
        if magic != 0xEB9F:
            raise ValueError(f"{file} is not BTF of a little-endian machine")
        self._data, self._strings = data, size + strings
        self._at = [0]
        at, end = size + types, size + types + length
        while at < end:
            self._at.append(at)
            _, info, _ = struct.unpack_from("<III", data, at)
            kind = info >> 24 & 31
            at += 12 + FIXED.get(kind, 0) + EACH.get(kind, 0) * (info & 0xFFFF)
        self._by_name = {name: n for n, name in self._structs()}

    def _name(self, offset: int) -> str:
        start = self._strings + offset
        return self._data[start : self._data.index(b"\0", start)].decode()

    def _structs(self) -> Iterator[tuple[int, str]]:
        for n, at in enumerate(self._at[1:], 1):
            name, info, _ = struct.unpack_from("<III", self._data, at)
            if info >> 24 & 31 == STRUCT and name:
                yield n, self._name(name)

    def _members(self, type_id: int) -> Iterator[Member]:
        """Yield name, type id and offset in bytes; unnamed members yield their own members."""
        _, info, _ = struct.unpack_from("<III", self._data, self._at[type_id])
        for i in range(info & 0xFFFF):
            name, kind, bits = struct.unpack_from(
                "<III", self._data, self._at[type_id] + 12 + 12 * i
            )
            offset = (bits & 0xFFFFFF if info >> 31 else bits) // 8
            if name:
                yield self._name(name), kind, offset
            elif struct.unpack_from("<I", self._data, self._at[kind] + 4)[0] >> 24 & 31 in (
                STRUCT,
                UNION,
            ):
                yield from ((n, k, offset + o) for n, k, o in self._members(kind))

    def offset(self, structure: str, member: str) -> int:
        """Return a member's offset in bytes.

        Raises:
            KeyError: This kernel has no such member.
        """
        for name, _, offset in self._members(self._by_name[structure]):
            if name == member:
                return offset
        raise KeyError(f"{structure}.{member}")
