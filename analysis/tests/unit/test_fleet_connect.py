"""Fleet expressions on a server of Spark Connect: every cell is the same as on DuckDB.

The server is a process of its own, as an operator has it; only the client's packages are used here.
Half a minute is too long for every run of the tests: this one is run with those of times.
"""

import os
import shutil
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from fleet_answers import differing, results, small_fleet

pytestmark = [
    pytest.mark.times,
    pytest.mark.trials(1, least=1),
    pytest.mark.filterwarnings("ignore:.*fetch_arrow_table:DeprecationWarning"),
    pytest.mark.filterwarnings("ignore:.*fetch_record_batch:DeprecationWarning"),
    pytest.mark.filterwarnings("ignore:PySpark does not yet:FutureWarning"),
]
SERVER = "org.apache.spark.sql.connect.service.SparkConnectServer"
START_S = 120
ASKED = ("table days", "causes", "hosts_500")
"""A table from the files, a join, and quantiles of a kept table: Spark takes seconds for each."""


@pytest.fixture
def server(require, tmp_path) -> Iterator[str]:
    """Return the name of a server on a free port of loopback."""
    try:
        import pyspark
    except ImportError:
        require("pyspark", "no pyspark: pip install -e .[spark]")
    if not shutil.which("java"):
        require("java", "no Java: apt-get install default-jre-headless")
    home = Path(pyspark.__file__).parent
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    settings = {
        "spark.connect.grpc.binding.address": "127.0.0.1",
        "spark.connect.grpc.binding.port": port,
        "spark.ui.enabled": "false",
        "spark.sql.shuffle.partitions": "2",
    }
    words = [str(home / "bin/spark-submit"), "--master", "local[2]", "--class", SERVER]
    for name, value in settings.items():
        words += ["--conf", f"{name}={value}"]
    environment = {"SPARK_HOME": str(home), "SPARK_LOCAL_IP": "127.0.0.1"}
    with (tmp_path / "log").open("wb") as log:
        process = subprocess.Popen(
            [*words, "spark-internal"],
            env=os.environ | environment | {"PYSPARK_PYTHON": sys.executable},
            cwd=tmp_path,
            stdout=log,
            stderr=subprocess.STDOUT,
        )
    try:
        deadline = time.monotonic() + START_S
        while not listens(port):
            if process.poll() is not None or time.monotonic() > deadline:
                pytest.fail((tmp_path / "log").read_text()[-2000:])
            time.sleep(0.1)
        yield f"sc://127.0.0.1:{port}"
    finally:
        process.terminate()
        process.wait()


def listens(port: int) -> bool:
    try:
        socket.create_connection(("127.0.0.1", port), 1).close()
    except OSError:
        return False
    return True


def test_every_cell_is_the_same_on_spark_connect(server, tmp_path):
    from spoolscope.analysis.fleet.engines import engine

    root = small_fleet(tmp_path / "rollups")
    ours, theirs = (answers_of(engine(name), root) for name in ("duckdb", server))
    assert len(ours) == len(ASKED)
    assert differing(ours, theirs) == []


def answers_of(engine: Any, root: Path) -> dict[str, pa.Table]:
    try:
        return results(root, engine, ASKED)
    finally:
        engine.close()
