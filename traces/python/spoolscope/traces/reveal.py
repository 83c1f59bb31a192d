"""Real names in place of pseudonyms; this needs the operator's book of the key."""

import re
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from spoolscope.traces.book import book_file, recall
from spoolscope.traces.columns import COMM, GROUP, PATH, PRIVATE, PROGRAM, Table
from spoolscope.traces.private import changed_spool, with_programs
from spoolscope.traces.text import decoded, escaped

if TYPE_CHECKING:
    import duckdb

DO_NOT_GIVE_AWAY = "real names: do not give away"
Reveal = Callable[[str], str]


@dataclass(frozen=True)
class RealNames:
    """The real names of the pseudonyms of a key.

    Attributes:
        paths: Components of paths by pseudonym.
        programs: Names of programs, units and control groups by pseudonym.
    """

    paths: dict[bytes, bytes]
    programs: dict[bytes, bytes]

    @classmethod
    def read(cls, book: Path) -> "RealNames":
        """Read a book; see ``book.recall``."""
        return cls(*recall(book))

    def of(self, private: str) -> Reveal:
        """Return the function that reveals texts of a kind of private column."""
        return {PATH: self.path, COMM: self.comm, PROGRAM: self.place, GROUP: self.place}[private]

    def path(self, text: str) -> str:
        """Return a path with the real names of its components, where they are known."""
        parts = decoded(text).split(b"/")
        return escaped(b"/".join([self.paths.get(part, part) for part in parts]))

    def comm(self, text: str) -> str:
        """Return the real name of a program."""
        name = self.programs.get(text.encode(errors="surrogateescape"))
        return text if name is None else name.decode(errors="replace")

    def place(self, text: str) -> str:
        """Return the real path of a program or control group."""
        return "/".join(map(self.comm, text.split("/")))

    def table(self, rows: pa.Table, table: Table) -> pa.Table:
        """Return rows, which may lack columns of the table, with real names."""
        for column in table.columns:
            at = rows.schema.get_field_index(column.name)
            if column.private and at >= 0:
                values = mapped(rows.column(at), self.of(column.private))
                rows = rows.set_column(at, rows.schema.field(at), values)
        return rows

    def register(self, connection: "duckdb.DuckDBPyConnection") -> None:
        """Define the functions that ``sql`` calls in a connection."""
        how: dict[str, Any] = {"type": "arrow", "null_handling": "special"}
        for kind in PRIVATE:
            function = _on_columns(self.of(kind))
            connection.create_function(f"real_{kind}", function, ["VARCHAR"], "VARCHAR", **how)

    @staticmethod
    def sql(query: str, table: Table) -> str:
        """Return a query of a table with real names."""
        private = [column for column in table.columns if column.private]
        if not private:
            return query
        shown = (f"real_{column.private}({column.name}) AS {column.name}" for column in private)
        return f"SELECT * REPLACE ({', '.join(shown)}) FROM ({query})"

    def meta(self, meta: dict[str, Any]) -> dict[str, Any]:
        """Return meta.json's content with real names."""
        return {
            **meta,
            "spools": [changed_spool(spool, self.path) for spool in meta.get("spools", [])],
            "io_limits": [self._limit(limit) for limit in meta.get("io_limits") or []],
            "filter": {k: self._asked(k, v) for k, v in (meta.get("filter") or {}).items()},
            **with_programs(meta, self.comm),
            "unjudged": [
                {**calls, "comm": self.comm(calls["comm"]), "cgroup": self.place(calls["cgroup"])}
                for calls in meta.get("unjudged") or []
            ],
        }

    def _limit(self, limit: dict[str, Any]) -> dict[str, Any]:
        return {**limit, "cgroup": self._asked("cgroups", limit.get("cgroup"))}

    def _asked(self, what: str, value: Any) -> Any:
        if isinstance(value, list):
            return [self._asked(what, item) for item in value]
        if not isinstance(value, str):
            return value
        programs = what in ("comms", "exes", "cgroups", "units")
        return self.place(value) if programs else self.path(value)


def real_names(meta: dict[str, Any], key_file: Path | None = None) -> Path | None:
    """Return the book of a trace's key on this machine, None if there is none.

    Args:
        meta: The trace's meta.json.
        key_file: The key with which it was hidden, if that is not the user's own.
    """
    key_id = meta.get("key_id")
    if not isinstance(key_id, str) or not re.fullmatch(r"[0-9a-f]{8}", key_id):
        return None
    book = book_file(key_file, key_id)
    # A book may be empty if the disk was full when it was made.
    return book if book.is_file() and book.stat().st_size else None


def _on_columns(change: Reveal) -> Callable[[Any], Any]:
    return lambda values: mapped(values, change)


def mapped(values: pa.Array | pa.ChunkedArray, change: Reveal) -> pa.Array | pa.ChunkedArray:
    """Return a column of texts of the same type, each distinct one changed once."""
    if isinstance(values, pa.ChunkedArray):
        return pa.chunked_array([mapped(chunk, change) for chunk in values.chunks], values.type)
    coded = values if pa.types.is_dictionary(values.type) else values.dictionary_encode()
    texts = [None if text is None else change(text) for text in coded.dictionary.to_pylist()]
    array = pa.DictionaryArray.from_arrays(coded.indices, pa.array(texts, pa.string()))
    plain = array.cast(pa.string())
    return (
        plain.dictionary_encode()
        if pa.types.is_dictionary(values.type)
        else plain.cast(values.type)
    )
