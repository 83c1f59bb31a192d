"""A trace directory: meta.json and one Parquet file per table."""

import glob
import os
from collections.abc import Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, NoReturn

import pyarrow as pa
import pyarrow.parquet as pq

from spoolscope.traces.digests import META, TABLES_KEY, check, read_meta
from spoolscope.traces.errors import USAGE, SpoolscopeError
from spoolscope.traces.files import check_text, regular
from spoolscope.traces.parquet import empty_table
from spoolscope.traces.reveal import RealNames
from spoolscope.traces.schema import SCHEMA, TABLES

if TYPE_CHECKING:
    import duckdb

NATIVE_SUFFIX = ".parquet"
RECORD_AGAIN = "record it again, or copy it again from where it came"


@dataclass(frozen=True)
class Trace:
    """An opened trace.

    Attributes:
        path: Its directory.
        meta: The content of meta.json.
        names: Real names that replace pseudonyms in all that is read; None keeps pseudonyms.
    """

    path: Path
    meta: dict[str, Any]
    names: RealNames | None = None

    @classmethod
    def open(cls, directory: Path | str) -> "Trace":
        """Open a trace directory after checking that every table is whole.

        Raises:
            SpoolscopeError: the directory is missing, foreign, of another schema or damaged.
        """
        path = Path(directory)
        check_text(path)
        trace = cls(path, _read_meta(path))
        for name in TABLES:
            trace._check(name)
        return trace

    def with_names(self, names: RealNames | None) -> "Trace":
        """Return the same trace with real names in all that is read of it."""
        return self if names is None else Trace(self.path, names.meta(self.meta), names)

    @property
    def identity(self) -> str:
        """A key that identifies it wherever it lies: its begin, length and number of calls."""
        return (
            f"{self.meta['start_ns']}-{self.meta['duration_ns']}-{self.meta['counts']['syscalls']}"
        )

    def table(self, name: str, columns: Iterable[str] | None = None) -> pa.Table:
        """Read a table, or some of its columns, into memory."""
        wanted = None if columns is None else list(columns)
        file = self.file(name)
        if not file.exists():
            table = empty_table(name)
            return table if wanted is None else table.select(wanted)
        self.verified(name)
        try:
            with pq.ParquetFile(file) as opened:
                absent = _absent(name, opened.schema_arrow)
                present = None if wanted is None else [c for c in wanted if c not in absent]
                table = opened.read(columns=present)
        except (pa.ArrowException, OSError) as error:
            _damaged(self.path, file.name, error)
        table = self._named(name, _with_nulls(name, table, absent))
        return table if wanted is None else table.select(wanted)

    def parts(
        self, name: str, columns: Iterable[str] | None = None, rows: int | None = None
    ) -> Iterator[pa.Table]:
        """Yield a table row group by row group, so that only one is in memory; none is empty.

        With ``rows`` it comes in parts of that size, and the rest is not read if the caller stops.
        """
        wanted = TABLES[name].schema.names if columns is None else list(columns)
        if not self.file(name).exists():
            return
        try:
            with pq.ParquetFile(self.verified(name)) as file:
                absent = _absent(name, file.schema_arrow)
                present = [column for column in wanted if column not in absent]
                for table in _tables(file, present, rows):
                    if table.num_rows:
                        yield self._named(name, _with_nulls(name, table, absent).select(wanted))
        except (pa.ArrowException, OSError) as error:
            _damaged(self.path, self.file(name).name, error)

    def file(self, name: str) -> Path:
        """Return the Parquet file of a table; an empty table may have none."""
        return self.path / f"{name}{NATIVE_SUFFIX}"

    def verified(self, name: str) -> Path:
        """Return the existing file of a table, after checking that it is as it was written.

        Raises:
            SpoolscopeError: it is not. Traces from before there were digests are not checked.
        """
        file = self.file(name)
        digests = self.meta.get(TABLES_KEY)
        try:
            if digests is not None:
                check(file, digests.get(name))
        except (OSError, ValueError) as error:
            _damaged(self.path, file.name, error)
        return file

    def verify(self) -> list[Path] | None:
        """Check all existing tables; return their files, None if they have no digests.

        Raises:
            SpoolscopeError: one has changed since it was written.
        """
        there = [name for name in TABLES if self.file(name).exists()]
        with ThreadPoolExecutor(min(4, os.cpu_count() or 1)) as pool:  # hashing needs no GIL
            files = list(pool.map(self.verified, there))
        return files if TABLES_KEY in self.meta else None

    def connect(self, *, opens_files: bool = True) -> "duckdb.DuckDBPyConnection":
        """Return an in-memory DuckDB connection with one view per table.

        A column that is newer than the trace is null there.

        Args:
            opens_files: DuckDB opens the files of the tables. If false, pyarrow reads them, and
                DuckDB may be forbidden to open files; scans take two to four times as long.
        """
        import duckdb

        self.verify()
        connection = duckdb.connect(":memory:")
        if self.names:
            self.names.register(connection)
        for name in TABLES:
            file = self.file(name)
            if file.exists():
                if not opens_files:
                    import pyarrow.dataset  # it takes a tenth of a second

                    connection.register(f"file_{name}", pyarrow.dataset.dataset(file))
                    source = f"SELECT * FROM file_{name}"
                else:
                    # A bracket or a star in its name would be a pattern, and match other traces.
                    quoted = glob.escape(str(file)).replace("'", "''")
                    source = f"SELECT * FROM read_parquet('{quoted}')"
                if absent := _absent(name, pq.read_schema(file)):
                    connection.register(f"no_{name}", empty_table(name).select(absent))
                    source += f" UNION ALL BY NAME SELECT * FROM no_{name}"
                if self.names:
                    source = self.names.sql(source, TABLES[name])
                connection.execute(f"CREATE VIEW {name} AS {source}")
            else:
                connection.register(name, empty_table(name))
        return connection

    def _named(self, name: str, table: pa.Table) -> pa.Table:
        return self.names.table(table, TABLES[name]) if self.names else table

    def _check(self, name: str) -> None:
        expected = self.meta["counts"].get(name, 0)
        file = self.file(name)
        if not file.exists():
            if expected or name == "syscalls":
                _damaged(self.path, file.name, "it is missing")
            return
        try:
            footer = pq.read_metadata(regular(file))
        except (pa.ArrowException, OSError) as error:
            _damaged(self.path, file.name, error)
        if footer.num_rows != expected:
            _damaged(
                self.path, file.name, f"{footer.num_rows} rows where meta.json says {expected}"
            )
        nullable = {c.name for c in TABLES[name].columns if c.nullable}
        absent = _absent(name, footer.schema.to_arrow_schema())
        if missing := [c for c in absent if c not in nullable]:
            _damaged(self.path, file.name, f"no column {', '.join(missing)}")


def _absent(name: str, schema: pa.Schema) -> list[str]:
    """Return the columns that were added to a table's schema after this trace was written."""
    present = set(schema.names)
    return [c.name for c in TABLES[name].columns if c.name not in present]


def _with_nulls(name: str, table: pa.Table, absent: list[str]) -> pa.Table:
    for column in absent:
        kind = TABLES[name].schema.field(column).type
        table = table.append_column(column, pa.nulls(table.num_rows, kind))
    return table


def _tables(file: pq.ParquetFile, columns: list[str], rows: int | None) -> Iterator[pa.Table]:
    # Waking threads for a row group costs more than they save: 1.7 times the CPU time.
    if rows is None:
        for group in range(file.num_row_groups):
            yield file.read_row_group(group, columns=columns, use_threads=False)
    else:
        for batch in file.iter_batches(rows, columns=columns, use_threads=False):
            yield pa.Table.from_batches([batch])


def _read_meta(path: Path) -> dict[str, Any]:
    if not path.is_dir():
        what = "is not a directory" if path.exists() else "does not exist"
        raise SpoolscopeError(
            f"trace {path} {what}",
            remedy="give the directory that 'spoolscope record -o' wrote",
            exit_code=USAGE,
        )
    if not (path / META).exists():
        _foreign(path)
    try:
        meta = read_meta(path)
    except (ValueError, OSError) as error:
        _damaged(path, META, error)
    schema = meta.get("schema") if isinstance(meta, dict) else None
    if schema != SCHEMA:
        raise SpoolscopeError(
            f"trace {path} has schema {schema!r}, this spoolscope reads {SCHEMA!r}",
            remedy="use the spoolscope version that wrote it, or record again",
        )
    if not isinstance(meta.get("counts"), dict):
        _damaged(path, META, "no counts of rows")
    spools = meta.get("spools", [])
    if not isinstance(spools, list) or not all(map(_is_spool, spools)):
        _damaged(path, META, "no list of spools with their mounts")
    for name in ("start_ns", "duration_ns"):
        if not isinstance(meta.get(name, 0), int):
            _damaged(path, META, f"{name} is no number")
    return dict(meta)


def _is_spool(spool: Any) -> bool:
    return isinstance(spool, dict) and isinstance(spool.get("mount"), str)


def _foreign(path: Path) -> NoReturn:
    remedy = "give the directory that 'spoolscope record -o' wrote"
    if (path / "replay.json").is_file():
        runs = sorted(p.parent for p in path.glob("*/trace/meta.json"))
        remedy = "it is a replay: use 'spoolscope compare' or 'spoolscope report'"
        remedy += f", or give one run's trace, e.g. {runs[0]}" if runs else ""
    if (path / "recording.json").is_file():
        runs = sorted(p.parent for p in path.glob(f"*/{META}"))
        remedy = "it holds several: see 'spoolscope info'"
        remedy += f", then give one, e.g. {runs[-1]}" if runs else ""
    windows = sorted(p.parent for p in path.glob(f"windows-*/*/{META}"))
    if windows or any(path.glob("schema=*")):
        remedy = "it has roll-ups: see 'spoolscope fleet report' and 'spoolscope gaps'"
        remedy += f", or give a frozen trace, e.g. {windows[-1]}" if windows else ""
    raise SpoolscopeError(
        f"{path} is not a trace (it has no {META})", remedy=remedy, exit_code=USAGE
    )


def _damaged(path: Path, part: str, why: object) -> NoReturn:
    raise damaged(path, part, why) from None


def damaged(path: Path, part: str, why: object) -> SpoolscopeError:
    """Return the error for a trace with a file that cannot be used."""
    if isinstance(why, PermissionError):
        return SpoolscopeError(
            f"{path / part} may not be read",
            remedy="use sudo, or make it yours: sudo chown -R USER PATH",
        )
    return SpoolscopeError(
        f"trace {path} is damaged: {part}: {_one_line(why)}", remedy=RECORD_AGAIN
    )


def _one_line(why: object) -> str:
    text = str(why).strip() or type(why).__name__
    return text.splitlines()[0].rstrip(".")
