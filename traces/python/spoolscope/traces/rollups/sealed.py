"""One file of a roll-up as bytes, and the checks by which a changed bit is found.

The file of ``minutes`` seals a flush: its footer has size and digest of each other file, and that
of its own, which is made while zeros stand in the place of this digest.
"""

import hashlib
import io
import json
from collections.abc import Collection, Mapping
from dataclasses import dataclass
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from spoolscope.traces.digests import DIGEST_BYTES
from spoolscope.traces.errors import SpoolscopeError
from spoolscope.traces.parquet import ROW_GROUP
from spoolscope.traces.rollups import schema
from spoolscope.traces.rollups.names import MARKER, MINUTE_S, Flush, is_merged
from spoolscope.traces.rollups.places import Place

FORMAT = "spoolscope-rollup"
LEVEL, MERGED_LEVEL = 6, 12
"""Levels of zstd. For an hour of 400 calls a second 12 takes twice the time and 9 % off."""

DIGEST, FILES, HOLDS, STEP = "digest", "files", "holds", "step_s"
_REPEATED = ("dev", "n")
"""Numbers that repeat within a row group of a merged file."""

_ZEROS = b"0" * (2 * DIGEST_BYTES)


class DamagedError(ValueError):
    """A file is no roll-up, or has changed since it was written."""


@dataclass(frozen=True)
class Seal:
    """The footer of ``minutes``, on its flush.

    Attributes:
        host: Name of the host.
        flush: Name of the files.
        digest: Digest of ``minutes``; as this covers those of the others, that of the flush.
        files: Size in bytes and digest of each other file by table.
        holds: Names of all flushes whose rows are in it, its own included.
        step_s: Step of ``minute_s`` in the other files: MINUTE_S, or HOUR_S if they are by hour.
    """

    host: str
    flush: str
    digest: str
    files: dict[str, tuple[int, str]]
    holds: frozenset[str]
    step_s: int = MINUTE_S

    @property
    def recorded(self) -> frozenset[str]:
        """The names of those that a recorder has written."""
        return frozenset(name for name in self.holds if not is_merged(name))

    def check_sizes(self, sizes: Mapping[str, int]) -> None:
        """Check the bytes of the other files of the flush by table.

        Raises:
            DamagedError: one is missing or of another size.
        """
        for table, (size, _) in self.files.items():
            if (there := sizes.get(table, 0)) != size:
                raise DamagedError(f"the file of {table} has {there} bytes instead of {size}")

    def check(self, table: str, content: bytes) -> None:
        """Check the bytes of another file of the flush.

        Raises:
            DamagedError: they are not what was written.
        """
        if self.files[table] != (len(content), _of_bytes(content)):
            raise DamagedError(f"{table} has changed since it was written: its digest is another")


def encoded(
    flush: Flush, rows: Mapping[str, pa.Table], about: Mapping[str, str], holds: Collection[str]
) -> dict[str, bytes]:
    """Return the files of a flush by table, that of ``minutes`` last.

    Args:
        flush: Names of the files.
        rows: All tables of the schema, sorted.
        about: Keys and values for all footers.
        holds: Names of other flushes whose rows these are.
    """
    footer = {
        **about,
        "format": FORMAT,
        "version": str(flush.version),
        "host": flush.host,
        "flush": flush.name,
    }
    files = {
        name: _parquet(table, {**footer, "table": name})
        for name, table in rows.items()
        if name != MARKER
    }
    footer |= {
        "table": MARKER,
        HOLDS: json.dumps(sorted(holds)),
        FILES: json.dumps({name: [len(data), _of_bytes(data)] for name, data in files.items()}),
    }
    content = _parquet(rows[MARKER], {**footer, DIGEST: _ZEROS.decode()})
    if content.count(_ZEROS) != 1:
        raise ValueError(f"minutes of {flush.host} have a text of {len(_ZEROS)} zeros")
    return {**files, MARKER: content.replace(_ZEROS, _of_bytes(content).encode())}


def unsealed(content: bytes, flush: Flush) -> tuple[pa.Table, Seal]:
    """Return the rows and the seal of the file of ``minutes`` of a flush.

    Args:
        content: The whole file.
        flush: The flush whose file it should be.

    Raises:
        DamagedError: it is not as it was written, or is that of another flush.
    """
    footer = _footer(content)
    try:
        digest = footer[DIGEST]
        if _of_bytes(content.replace(digest.encode(), _ZEROS, 1)) != digest:
            raise DamagedError("it has changed since it was written: its digest is another")
        files = {n: (int(s), str(d)) for n, (s, d) in json.loads(footer[FILES]).items()}
        holds = frozenset([flush.name, *json.loads(footer[HOLDS])])
        step_s = int(footer.get(STEP, MINUTE_S))
        seal = Seal(footer["host"], footer["flush"], digest, files, holds, step_s)
    except (KeyError, TypeError) as error:
        raise DamagedError("its footer is not that of a roll-up") from error
    if (seal.host, seal.flush) != (flush.host, flush.name):
        raise DamagedError(f"it is a copy of {seal.flush} of {seal.host} under another name")
    return decoded(content), seal


def marker_of(where: Place, flush: Flush) -> bytes:
    """Return the file of ``minutes`` of a flush that was listed.

    Raises:
        SpoolscopeError: it was removed after it had been listed.
    """
    try:
        return where.get(flush.path(MARKER))
    except FileNotFoundError as error:
        raise removed(where, flush) from error


def removed(where: Place, flush: Flush) -> SpoolscopeError:
    """Return the error for users on a flush that was removed after it had been listed."""
    return SpoolscopeError(
        f"{flush.path(MARKER)} was removed while {where.shown} was read",
        remedy="run the command again: compaction or retention is at work there",
    )


def minutes_of(where: Place, flush: Flush) -> tuple[pa.Table, Seal]:
    """Return ``minutes`` and the seal of a flush that was listed.

    Raises:
        DamagedError: the file is not as it was written.
        SpoolscopeError: it was removed after it had been listed.
    """
    return unsealed(marker_of(where, flush), flush)


def contents_of(where: Place, flush: Flush, seal: Seal) -> dict[str, bytes]:
    """Return the bytes of the other files of a flush by table, checked against its seal.

    Raises:
        DamagedError: one is missing, or not what was written.
    """
    contents = {}
    for table in seal.files:
        try:
            contents[table] = where.get(flush.path(table))
        except FileNotFoundError as error:
            raise DamagedError(f"{table} is missing") from error
        seal.check(table, contents[table])
    return contents


def decoded(content: bytes, *, coded: bool = False) -> pa.Table:
    """Return the rows of a file.

    Args:
        content: The whole file.
        coded: Texts are dictionary-encoded, which takes a third of the memory.

    Raises:
        DamagedError: it cannot be read.
    """
    file = _opened(content)
    if coded:
        fields = file.schema_arrow
        file = _opened(content, [field.name for field in fields if pa.types.is_string(field.type)])
    return file.read()


def _footer(content: bytes) -> dict[str, str]:
    metadata = _opened(content).metadata.metadata or {}
    footer = {key.decode(errors="replace"): value for key, value in metadata.items()}
    if footer.get("format") != FORMAT.encode():
        raise DamagedError("its footer is not that of a roll-up")
    return {key: value.decode(errors="replace") for key, value in footer.items()}


def _opened(content: bytes, coded: Collection[str] = ()) -> pq.ParquetFile:
    source = pa.BufferReader(content)
    try:
        return pq.ParquetFile(source, read_dictionary=[*coded], page_checksum_verification=True)
    # A flipped bit in a footer can ask for anything: memory, unknown types, lost keys.
    except (pa.ArrowException, ValueError, OSError, LookupError, MemoryError) as error:
        raise DamagedError(f"it is damaged: {error}".splitlines()[0]) from error


def _parquet(rows: pa.Table, footer: Mapping[str, str]) -> bytes:
    coded = [field.name for field in rows.schema if pa.types.is_string(field.type)]
    options: dict[str, Any] = {"compression_level": LEVEL}
    if is_merged(footer["flush"]):
        options = {"compression_level": MERGED_LEVEL}
        coded += [name for name in _REPEATED if name in rows.schema.names]
    else:
        by = rows.schema.names.index(schema.ROLLUPS[footer["table"]].sorted_by)
        options["sorting_columns"] = [pq.SortingColumn(by)]
    buffer = io.BytesIO()
    with pq.ParquetWriter(
        buffer,
        rows.schema,
        compression="zstd",
        use_dictionary=coded,
        write_page_checksum=True,
        store_schema=False,
        **options,
    ) as writer:
        writer.write_table(rows, ROW_GROUP)
        writer.add_key_value_metadata(dict(footer))
    return buffer.getvalue()


def _of_bytes(content: bytes) -> str:
    return hashlib.blake2b(content, digest_size=DIGEST_BYTES).hexdigest()
