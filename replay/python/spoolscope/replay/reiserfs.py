"""reiserfs with a journal on a device of its own, which wipefs does not recognize.

blkid ignores a superblock that lies behind the begin of the journal, and a separate journal begins
at 0. See struct reiserfs_super_block and reiserfs_journal_header in fs/reiserfs/reiserfs.h.
"""

import struct
import uuid
from dataclasses import dataclass

from spoolscope.replay.devices import Device

REISERFS = "reiserfs"
_AT = 64 << 10
_JOURNAL = struct.Struct("<5I")  # first block, device, blocks, longest transaction, magic
_BEFORE_JOURNAL = 12
"""Bytes before these fields in the superblock, and in the header that is behind the journal."""
_BLOCK_BYTES = struct.Struct("<H")
_MAGIC = b"ReIsEr3Fs"


@dataclass(frozen=True)
class Superblock:
    """A superblock: its label, its UUID, and the header that its journal must have, and where."""

    label: str
    uuid: str
    header: bytes
    header_at: int


def with_journal_apart(device: Device) -> Superblock | None:
    """Return the superblock of such a filesystem, None if there is none.

    Raises:
        OSError: it cannot be read.
    """
    with device.node.open("rb", buffering=0) as file:
        file.seek(_AT)
        block = file.read(1024)
    if not block[52:].startswith(_MAGIC):
        return None
    first, _, blocks, _, _ = _JOURNAL.unpack_from(block, _BEFORE_JOURNAL)
    (block_bytes,) = _BLOCK_BYTES.unpack_from(block, 44)
    return Superblock(
        label=block[100:116].rstrip(b"\0").decode(errors="replace"),
        uuid=str(uuid.UUID(bytes=block[84:100])),
        header=block[_BEFORE_JOURNAL : _BEFORE_JOURNAL + _JOURNAL.size],
        header_at=(first + blocks) * block_bytes + _BEFORE_JOURNAL,
    )


def has_journal(main: Device, journal: Device) -> bool:
    """Return whether a device holds the journal of the filesystem on another one.

    Raises:
        OSError: one cannot be read.
    """
    if (found := with_journal_apart(main)) is None:
        return False
    with journal.node.open("rb", buffering=0) as file:
        file.seek(found.header_at)
        return file.read(len(found.header)) == found.header
