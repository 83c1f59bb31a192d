"""The engines that compute a fleet's expressions: DuckDB in this process, or Spark."""

import glob
import os
import re
import sys
import warnings
from collections.abc import Sequence
from dataclasses import dataclass
from importlib.metadata import requires
from importlib.util import find_spec
from typing import Any, Protocol

import pyarrow as pa

from spoolscope.traces.errors import USAGE, SpoolscopeError

DUCKDB = "duckdb"
_SPARK = ("spark://", "local", "sc://", "yarn", "k8s://")


@dataclass(frozen=True)
class Files:
    """Files of one table.

    Attributes:
        name: Name of the table.
        schema: Its columns; those of the path are among them.
        paths: Paths or URLs; none if the table is empty.
        base: The directory from which on the path has columns; "" if it has none.
        filesystem: That of pyarrow, if the files are not of this machine.
    """

    name: str
    schema: pa.Schema
    paths: Sequence[str]
    base: str = ""
    filesystem: Any = None


class Engine(Protocol):
    """An engine that computes expressions."""

    name: str

    def table(self, files: Files) -> Any:
        """Return the expression that stands for the rows of files."""

    def rows(self, expression: Any) -> pa.Table:
        """Compute an expression."""

    def kept(self, name: str, expression: Any) -> Any:
        """Compute an expression once, and return the table that has the result."""

    def close(self) -> None:
        """End what was started."""


def engine(name: str = DUCKDB, threads: int | None = None) -> Engine:
    """Return an engine.

    Args:
        name: "duckdb", or a master of Spark: "local[2]", "spark://HOST:7077", and "sc://HOST" for
            Spark Connect.
        threads: Most threads of DuckDB; None: one for each CPU.

    Raises:
        SpoolscopeError: the name is unknown, or its packages are not installed.
    """
    check_engine(name)
    return _DuckDB(threads) if name == DUCKDB else _Spark(name)


def check_engine(name: str) -> None:
    """See that an engine is known and its packages are installed.

    Raises:
        SpoolscopeError: the name is unknown, or one of its packages is not installed.
    """
    if name != DUCKDB and not name.startswith(_SPARK):
        raise SpoolscopeError(
            f"no engine is called {name}",
            remedy="give duckdb, local[2], spark://HOST:7077 or sc://HOST:15002",
            exit_code=USAGE,
        )
    extra, packages = ("fleet", ("ibis",)) if name == DUCKDB else ("spark", ("ibis", "pyspark"))
    for package in packages:
        if find_spec(package) is None:
            raise SpoolscopeError(f"{package} is not installed", remedy=_installation(extra))


def _installation(extra: str) -> str:
    """Return the command that installs an extra into the environment of this program.

    That of a Debian package, or of pipx, has no pip of its own.
    """
    pip, more = f"{sys.executable} -m pip", ""
    if find_spec("pip") is None:
        pip = f"python3 -m pip --python {sys.executable}"
        more = " (pip is in the Debian package python3-pip)"
    sudo = "" if os.access(sys.prefix, os.W_OK) else "sudo "
    needed = " ".join(f"'{package}'" for package in _packages(extra))
    return f"{sudo}{pip} install {needed}{more}"


def _packages(extra: str) -> list[str]:
    """Return what an extra needs."""
    lines = (line.partition(";") for line in requires("spoolscope") or ())
    return [name.strip() for name, _, condition in lines if f"extra == '{extra}'" in condition]


class _DuckDB:
    name = DUCKDB

    def __init__(self, threads: int | None) -> None:
        import ibis

        options = {} if threads is None else {"threads": threads}
        self._ibis = ibis.duckdb.connect(**options)
        # Its bar goes to stdout, where the result belongs.
        self._ibis.con.execute("SET enable_progress_bar = false")

    def table(self, files: Files) -> Any:
        """Return the expression that stands for the rows of files."""
        raw = self._ibis.con
        if not files.paths:
            raw.register(files.name, files.schema.empty_table())
        elif files.filesystem is not None:
            raw.register(files.name, _dataset(files))
        else:
            columns = ", ".join(f'"{name}"' for name in files.schema.names)
            # A bracket or a star in a name would be a pattern.
            escaped = (glob.escape(path).replace("'", "''") for path in files.paths)
            paths = ", ".join(f"'{path}'" for path in escaped)
            hive = "hive_partitioning = false"
            if files.base:
                hive = "hive_partitioning = true, hive_types = {'host': VARCHAR, 'date': VARCHAR}"
            raw.execute(
                f'CREATE OR REPLACE VIEW "{files.name}" AS SELECT {columns} '
                f"FROM read_parquet([{paths}], union_by_name = true, {hive})"
            )
        return self._ibis.table(files.name)

    def rows(self, expression: Any) -> pa.Table:
        """Compute an expression."""
        return expression.to_pyarrow()

    def kept(self, name: str, expression: Any) -> Any:
        """Compute an expression once, and return the table that has the result."""
        # The SQL that Ibis writes for overwrite=True is not that of DuckDB 2.
        self._ibis.con.execute(f'DROP TABLE IF EXISTS temp."{name}"')
        return self._ibis.create_table(name, expression, temp=True)

    def close(self) -> None:
        """End what was started."""
        self._ibis.disconnect()


def _dataset(files: Files) -> Any:
    import pyarrow.dataset as ds

    hive = pa.schema([("host", pa.string()), ("date", pa.string())]) if files.base else None
    paths = [path.partition("://")[2] for path in files.paths]
    return ds.dataset(
        paths,
        schema=files.schema,
        filesystem=files.filesystem,
        format="parquet",
        partitioning=ds.partitioning(hive, flavor="hive") if hive else None,
    )


class _Spark:
    def __init__(self, master: str) -> None:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # pyspark's, of pandas, which is not used here
            import ibis
            from pyspark.sql import SparkSession

            session = _session(SparkSession.builder.appName("spoolscope fleet"), master)
            self._ibis = ibis.pyspark.connect(session)
        self.name, self._session = master, session
        for key, value in {
            "spark.sql.session.timeZone": "UTC",
            "spark.sql.sources.partitionColumnTypeInference.enabled": "false",
        }.items():
            session.conf.set(key, value)

    def table(self, files: Files) -> Any:
        """Return the expression that stands for the rows of files."""
        if files.paths:
            reader = self._session.read
            if files.base:  # roll-ups, whose files may be of several versions
                reader = reader.option("basePath", _of_hadoop(files.base))
                reader = reader.option("mergeSchema", "true")
            paths = map(_of_hadoop, files.paths)
            frame = reader.parquet(*paths).select(*files.schema.names)
        else:
            frame = self._session.createDataFrame([], _spark_schema(files.schema))
        frame.createOrReplaceTempView(files.name)
        return self._ibis.table(files.name)

    def rows(self, expression: Any) -> pa.Table:
        """Compute an expression."""
        return self._frame(expression).toArrow()

    def kept(self, name: str, expression: Any) -> Any:
        """Compute an expression once, and return the table that has the result."""
        self._frame(expression).cache().createOrReplaceTempView(name)
        return self._ibis.table(name)

    def close(self) -> None:
        """End what was started."""
        self._session.stop()

    def _frame(self, expression: Any) -> Any:
        return self._session.sql(self._ibis.compile(expression))


def _session(builder: Any, master: str) -> Any:
    if master.startswith("sc://"):
        return builder.remote(master).getOrCreate()
    options = {
        "spark.ui.enabled": "false",
        "spark.ui.showConsoleProgress": "false",
        "spark.log.level": "ERROR",
    }
    if master.startswith("local"):
        # Spark takes the name of the machine, which often has no address, unless it is given one.
        os.environ.setdefault("SPARK_LOCAL_IP", "127.0.0.1")
        options["spark.sql.shuffle.partitions"] = "2"
    builder = builder.master(master)
    for key, value in options.items():
        builder = builder.config(key, value)
    return builder.getOrCreate()


def _of_hadoop(path: str) -> str:
    """Return a path as Spark opens it: Hadoop calls its filesystem for S3 s3a."""
    return re.sub("^s3://", "s3a://", path)


def _spark_schema(schema: pa.Schema) -> str:
    types = {pa.string(): "string", pa.int16(): "smallint", pa.int32(): "int", pa.int64(): "bigint"}
    return ", ".join(f"{field.name} {types[field.type]}" for field in schema)
