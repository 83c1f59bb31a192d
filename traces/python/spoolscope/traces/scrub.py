"""Hiding of names in a trace that was recorded with real names, or with another key."""

import json
import os
import re
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from spoolscope.traces.columns import COMM, GROUP, PATH, PROGRAM, Table
from spoolscope.traces.digests import META, write_meta
from spoolscope.traces.errors import USAGE, SpoolscopeError
from spoolscope.traces.known_programs import KNOWN
from spoolscope.traces.output import check_output, discard, publish, work_directory
from spoolscope.traces.parquet import ROW_GROUP, write_parts
from spoolscope.traces.private import Hiding, Private
from spoolscope.traces.programs import group, program
from spoolscope.traces.pseudonym import WORDS, key_id, private_part
from spoolscope.traces.reveal import mapped
from spoolscope.traces.schema import TABLES
from spoolscope.traces.text import decoded, escaped
from spoolscope.traces.trace import Trace

FOOTER = ("schema", "version", "kernel", "tier", "complete")
PIECE = re.compile(rb"[\w\x80-\xff-]{8,}")
"""The parts of a name for which a copy is searched."""

Progress = Callable[[str, float | None], None]


def scrub(old: Path, new: Path, hiding: Hiding, progress: Progress) -> int:
    """Write a copy of a trace with all private names hidden, and return their number.

    The old trace is only read. The new one appears when it is complete and was searched for every
    hidden name with a piece of 8 bytes or more; shorter pieces may occur by chance.

    Args:
        old: A trace, recorded with --keep-names or with another key.
        new: Directory to write.
        hiding: Parameters; its book is written if the old trace has real names.
        progress: Called with the phase and the share of the work that is done.

    Raises:
        SpoolscopeError: the trace cannot be read, already has this key's names, or a name was
            found in the copy.
    """
    trace = Trace.open(old)
    if trace.meta.get("key_id") == key_id(hiding.key):
        raise SpoolscopeError(
            f"the names of {old} are hidden with this key already",
            remedy="give another --key-file to hide them again",
            exit_code=USAGE,
        )
    check_output(new)
    work = work_directory(new)
    try:
        hidden = _write(trace, work, _private(trace, hiding), progress)
        publish(work, new)
    except BaseException:
        discard(work)
        raise
    return hidden


def _write(trace: Trace, work: Path, private: Private, progress: Progress) -> int:
    meta = private.meta(trace.meta)
    hides_names = not trace.meta.get("pseudonymised")
    footer = {name: str(meta.get(name)) for name in FOOTER}
    for i, table in enumerate(TABLES.values()):
        progress(f"hiding names of {table.name}", i / len(TABLES))
        if trace.file(table.name).exists():
            write_parts(work, table.name, _hidden_parts(trace, table, private), footer)
    meta["unbooked"] = private.remember() if hides_names else None
    write_meta(work, meta)
    progress("searching the copy for them", None)
    if left := _left(Trace.open(work), secret_pieces(private)):
        raise SpoolscopeError(
            f"{len(left)} names would be left in the copy, first in {left[0]}: nothing was written",
            remedy="please report it; do not give the trace away",
        )
    return len(list(private.names.originals())) + len(private.comms.hidden)


def _private(trace: Trace, hiding: Hiding) -> Private:
    mounts = [os.fsencode(str(spool["mount"])) for spool in trace.meta.get("spools", [])]
    uids = trace.table("threads", ["uid"])["uid"].unique().to_pylist()
    return Private(hiding, _on_spool(trace, mounts), mounts, uids)


def _on_spool(trace: Trace, mounts: list[bytes]) -> Iterator[bytes]:
    """Yield the paths of a trace below its mounts as absolute paths."""
    for part in trace.parts("paths", ("path", "spool")):
        for text, spool in zip(part["path"].to_pylist(), part["spool"].to_pylist(), strict=True):
            if spool is not None:
                yield mounts[spool].rstrip(b"/") + b"/" + decoded(text)


def _hidden_parts(trace: Trace, table: Table, private: Private) -> Iterator[dict[str, Any]]:
    file = pq.ParquetFile(trace.verified(table.name))
    names = [column.name for column in table.columns]
    hide: dict[str, Callable[[str], str]] = {
        PATH: lambda text: escaped(private.names.path(decoded(text))),
        COMM: lambda text: private.comms.text(text.encode()),
        PROGRAM: lambda text: program(text.encode(), private.comms),
        GROUP: lambda text: group(text.encode(), private.comms),
    }
    for batch in file.iter_batches(ROW_GROUP, columns=names):
        columns = dict(zip(batch.schema.names, batch.columns, strict=True))
        for column in table.columns:
            if column.name not in columns:  # it is newer than the trace
                columns[column.name] = pa.nulls(len(batch), column.type)
            elif column.private:
                values = columns[column.name].cast(pa.string())
                columns[column.name] = mapped(values, hide[column.private])
        yield columns


def secret_pieces(private: Private) -> set[bytes]:
    """Return the pieces of names that must not occur in the copy.

    A name in a directory of programs is not secret, although its path is hidden.
    """
    known = {piece for word in WORDS for piece in PIECE.findall(word)}
    names = {private_part(name) for name in private.counted} | private.comms.hidden.keys()
    names |= {name for name in private.names.originals() if name[:1].isdigit()}
    pieces = {piece for name in names for piece in PIECE.findall(name)}
    return {piece for piece in pieces - known - KNOWN if not piece.isdigit()}


def _left(trace: Trace, secret: set[bytes]) -> list[str]:
    """Return the places where a piece of a hidden name still occurs."""
    return [where for where, text in _texts(trace) if not secret.isdisjoint(PIECE.findall(text))]


def _texts(trace: Trace) -> Iterator[tuple[str, bytes]]:
    """Yield every text that may have a private name, and its place."""
    for table in TABLES.values():
        for column in table.columns:
            if column.private:
                values = trace.table(table.name, [column.name]).column(0).cast(pa.string())
                for text in values.unique().drop_null().to_pylist():
                    yield f"{table.name}.{column.name}", decoded(text)
    for spool in trace.meta.get("spools", []):
        for name in ("mount", "source", "options"):
            yield f"{META}: {name} of a spool", decoded(str(spool.get(name, "")))
    yield f"{META}: filter", decoded(json.dumps(trace.meta.get("filter", {}), ensure_ascii=False))
