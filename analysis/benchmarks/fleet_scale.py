"""Scale of fleet reports: python analysis/benchmarks/fleet_scale.py [-o analysis/FLEET.md].

Minutes of real calls make the roll-ups of whole host-days, of which the day sums are timed; day
sums of a real day are multiplied with noise to three sizes of fleets, up to 300 hosts and 30 days.
The largest is asked on DuckDB and on a Spark cluster with two workers, and every table compared.
Alarms and findings are counted on many fleets with a known truth. About four minutes; 400 MB below
--work, which are removed.
"""

import argparse
import json
import multiprocessing
import os
import platform
import resource
import shutil
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, date, datetime
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

TOP = Path(__file__).resolve().parents[2]
sys.path[:0] = [str(TOP / "analysis/tests/scenarios"), str(TOP / "traces/testing")]

from fleet_maker import CALLS_A_DAY, DEV, SAMPLE, FleetMaker  # noqa: E402

from spoolscope.analysis.query import query  # noqa: E402
from spoolscope.traces.rollups.buckets import bucket_of  # noqa: E402
from spoolscope.traces.rollups.files import write  # noqa: E402
from spoolscope.traces.rollups.schema import CALL  # noqa: E402
from spoolscope.traces.trace import Trace  # noqa: E402

SIZES = ((75, 30), (150, 30), (300, 30))
HOST_DAYS = 2
MINUTE_NS = 60 * 10**9
SEEDS = 100
START_S = 60

SQL = """
SELECT c.tid * 4294967296 + c.seq AS call, c.comm, c.syscall, c.cause, c.ns, s.dur_ns,
    coalesce(s.size, 0) AS size, CAST(s.errno > 0 AS BIGINT) AS failed
FROM call_causes c JOIN syscalls s USING (tid, seq) WHERE c.ns > 0
"""


def peak_mb() -> float:
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024


def apart(work: Any, *arguments: Any) -> Any:
    """Run a function in a process of its own, so that its peak of memory is its own."""
    with multiprocessing.get_context("spawn").Pool(1) as pool:
        done, result = pool.apply(_outcome, (work, arguments))
    if not done:
        raise SystemExit(result)
    return result


def _outcome(work: Any, arguments: Any) -> tuple[bool, Any]:
    """Return a result, or the words of an error, which itself does not pass between processes."""
    try:
        return True, work(*arguments)
    except Exception as error:
        return False, repr(error)


def minutes(root: Path) -> dict[str, float]:
    """Write whole days of hosts by the minute, from random draws of real calls."""
    with query(Trace.open(SAMPLE), SQL, 100_000) as reader:
        parts = reader.read_all()
    calls = parts["call"].to_numpy()
    distinct = np.unique(calls)
    random = np.random.default_rng(1)
    rows = 0
    for host in range(HOST_DAYS):
        hour = [_drawn(parts, calls, distinct, random) for _ in range(60)]
        for flush in range(24):
            start = int(datetime(2026, 11, 1, flush, tzinfo=UTC).timestamp())
            tables = _flush(hour, start, f"{host:04x}", flush * 60)
            rows += len(tables["calls"]["n"])
            write(root, f"mail{host:03d}", tables)
    size = sum(file.stat().st_size for file in root.rglob("*.parquet"))
    return {"rows": rows / HOST_DAYS, "bytes": size / HOST_DAYS}


def _drawn(
    parts: pa.Table, calls: np.ndarray, distinct: np.ndarray, random: np.random.Generator
) -> pa.Table:
    """Return the rows of ``calls`` of one minute."""
    chosen = random.choice(distinct, CALLS_A_DAY // 1440, replace=False)
    drawn = parts.filter(pa.array(np.isin(calls, chosen)))
    whole = drawn.filter(pa.compute.equal(drawn["cause"], "cpu"))
    whole = whole.set_column(3, "cause", pa.array([CALL] * len(whole)))
    whole = whole.set_column(4, "ns", whole["dur_ns"])
    both = pa.concat_tables([_keyed(drawn), _keyed(whole)])
    by = ["comm", "syscall", "cause", "size_class", "failed", "bucket"]
    return both.group_by(by).aggregate([("ns", "sum"), ("ns", "count")])


def _keyed(rows: pa.Table) -> pa.Table:
    size = rows["size"].to_numpy()
    classes = np.where(size > 0, np.log2(np.maximum(size, 1)).astype(np.int64), -1)
    return pa.table(
        {
            **{name: rows[name].cast(pa.string()) for name in ("comm", "syscall", "cause")},
            "size_class": classes,
            "failed": rows["failed"],
            "bucket": bucket_of(rows["dur_ns"].to_numpy()),
            "ns": rows["ns"],
        }
    )


def _flush(hour: list[pa.Table], start: int, recorder: str, seq: int) -> dict[str, Any]:
    table = pa.concat_tables(hour)
    at = np.repeat(np.arange(60), [len(minute) for minute in hour]) * 60 + start
    n = len(table)
    calls = {name: table[name] for name in table.schema.names[:6]}
    calls |= {"sum_ns": table["ns_sum"], "n": table["ns_count"], "minute_s": at}
    calls |= {"dev": np.full(n, DEV), "unit": pa.array(["dovecot.service"] * n)}
    facts = {"minute_s": np.arange(60) * 60 + start, "dev": np.full(60, DEV),
             "seq": np.arange(60) + seq, "covered_ns": np.full(60, MINUTE_NS),
             "clock_step_ns": np.zeros(60, np.int64), "lost": np.zeros(60, np.int64),
             "calls": np.full(60, CALLS_A_DAY // 1440), "cpus": np.full(60, 8, np.int32),
             "recorder_ns": np.full(60, 4 * 10**8)}  # fmt: skip
    words = {"boot_id": "b", "recorder_id": recorder, "fs": "ext4", "options": "rw",
             "device": "d", "kernel": "6.12.48", "tool": "0.2.0"}  # fmt: skip
    return {"calls": calls, "minutes": facts | {k: pa.array([v] * 60) for k, v in words.items()}}


def summed(root: str) -> dict[str, float]:
    """Time the day sums of these host-days."""
    from spoolscope.analysis.fleet.day_sums import sum_days
    from spoolscope.analysis.fleet.engines import engine

    began, spent = time.perf_counter(), time.process_time()
    done = sum_days(root, engine(threads=2))
    return {
        "seconds": (time.perf_counter() - began) / HOST_DAYS,
        "cpu": (time.process_time() - spent) / HOST_DAYS,
        "bytes": done.bytes / HOST_DAYS,
        "peak": peak_mb(),
    }


def reported(root: str, page: str) -> dict[str, float]:
    """Time a report by DuckDB, from opening to the file."""
    from spoolscope.analysis.fleet.engines import engine
    from spoolscope.analysis.fleet.fleet_answer import asked
    from spoolscope.analysis.fleet.sources import opened
    from spoolscope.report.fleet_page import write_fleet_page

    began, spent = time.perf_counter(), time.process_time()
    duckdb = engine(threads=2)
    answer = asked(opened(root, duckdb), duckdb, "kernel")
    answered = time.perf_counter() - began
    write_fleet_page(answer, Path(page))
    return {
        "answered": answered,
        "seconds": time.perf_counter() - began,
        "cpu": time.process_time() - spent,
        "peak": peak_mb(),
        "page": Path(page).stat().st_size,
    }


def results(root: str, name: str, output: str) -> float:
    """Write every table that an engine computes for a report; return its seconds."""
    from spoolscope.analysis.fleet.engines import engine
    from spoolscope.analysis.fleet.fleet_answer import questions
    from spoolscope.analysis.fleet.sources import opened

    started = engine(name)
    # The first question starts the workers.
    started.rows(opened(root, started).tables["days"].limit(1))
    began = time.perf_counter()
    for key, asked in questions(opened(root, started).tables, started, 500).items():
        pq.write_table(started.rows(asked), Path(output) / f"{key}.parquet")
    took = time.perf_counter() - began
    started.close()
    return took


def compared(root: Path, work: Path) -> dict[str, float]:
    """Compare every cell of every table of DuckDB and of Spark with two workers."""
    places = {name: work / name for name in ("duckdb", "spark")}
    took = {}
    with cluster(work / "cluster") as master:
        for name, place in places.items():
            place.mkdir()
            chosen = master if name == "spark" else name
            took[name] = apart(results, str(root), chosen, str(place))
    cells = 0
    for file in sorted(places["duckdb"].iterdir()):
        ours, theirs = pq.read_table(file), pq.read_table(places["spark"] / file.name)
        if ours.to_pydict() != theirs.to_pydict():
            raise SystemExit(f"{file.stem} differs between DuckDB and Spark")
        cells += ours.num_rows * ours.num_columns
    n = len(list(places["duckdb"].iterdir()))
    return {"tables": n, "cells": cells, **took}


@contextmanager
def cluster(logs: Path) -> Iterator[str]:
    """Run a Spark master and two workers, and return the name of the master."""
    import pyspark

    home = Path(pyspark.__file__).parent
    os.environ |= {"SPARK_HOME": str(home), "SPARK_LOCAL_IP": "127.0.0.1"}
    logs.mkdir()
    running = []

    def run(name: str, *words: object) -> None:
        command = [str(home / "bin/spark-class"), f"org.apache.spark.deploy.{words[0]}"]
        log = (logs / name).open("wb")
        running.append(subprocess.Popen([*command, *map(str, words[1:])], stdout=log, stderr=log))

    port = _free_port()
    address = ["-h", "127.0.0.1", "--webui-port", "0"]
    try:
        run("master", "master.Master", "-p", port, *address)
        _wait_for(port)
        for n in (1, 2):
            own = ["-c", 1, "-m", "1500m", "-d", logs / f"worker{n}"]
            run(f"log{n}", "worker.Worker", f"spark://127.0.0.1:{port}", *own, *address)
        yield f"spark://127.0.0.1:{port}"
    finally:
        for process in reversed(running):
            process.terminate()
        for process in running:
            process.wait()


def _free_port() -> int:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        return int(free.getsockname()[1])


def _wait_for(port: int) -> None:
    end = time.monotonic() + START_S
    while time.monotonic() < end:
        with socket.socket() as tried:
            if tried.connect_ex(("127.0.0.1", port)) == 0:
                return
        time.sleep(0.3)
    raise SystemExit("the Spark master does not start")


def truths() -> Iterator[str]:
    """Yield rows on alarms without a difference, and on what is found of planted ones."""
    from simulated_fleet import shares

    for row in shares(SEEDS):
        yield "| " + " | ".join(row) + " |"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("-o", "--output", type=Path)
    parser.add_argument("--work", type=Path, default=Path(tempfile.gettempdir()))
    options = parser.parse_args()
    load = os.getloadavg()[0]
    work = Path(tempfile.mkdtemp(prefix="spoolscope-fleet-", dir=options.work))
    try:
        text = "\n".join(_document(work, load)) + "\n"
    finally:
        shutil.rmtree(work)
    print(text)
    if options.output:
        options.output.write_text(text)


def _document(work: Path, load: float) -> Iterator[str]:
    said = _said
    said("host-days by the minute")
    rolled = minutes(work / "minutes")
    of_days = apart(summed, str(work / "minutes"))
    shutil.rmtree(work / "minutes")
    rows = []
    compare = {}
    for hosts, days in SIZES:
        said(f"{hosts} hosts")
        root = work / f"fleet{hosts}"
        maker = FleetMaker(
            hosts=hosts, days=days, first=date(2026, 10, 1), filesystems=("ext4", "xfs"),
            slow={hosts // 2: 2.6}, failing={hosts // 3: 4.0}, upgraded_from=15, upgrade=1.15,
        )  # fmt: skip
        size = maker.write(root)
        found = apart(reported, str(root), str(work / "page.html"))
        rows.append(
            f"| {hosts} x {days} | {size / 1e6:,.0f} MB | {found['answered']:.1f} s | "
            f"{found['seconds']:.1f} s | {found['cpu']:.1f} s | {found['peak']:,.0f} MB | "
            f"{found['page'] / 1e6:.1f} MB |"
        )
        if (hosts, days) == SIZES[-1]:
            said("Spark")
            compare = compared(root, work)
        shutil.rmtree(root)
    said("truths")
    facts = {
        "date": time.strftime("%Y-%m-%d", time.gmtime()),
        "kernel": platform.release(),
        "cpus": os.cpu_count(),
        "load": f"{load:.1f}",
        "rows": f"{rolled['rows']:,.0f}",
        "rolled": f"{rolled['bytes'] / 1e6:,.0f}",
        "summed": f"{of_days['bytes'] / 1e3:,.0f}",
        "less": f"{rolled['bytes'] / of_days['bytes']:,.0f}",
        "sum_s": f"{of_days['seconds']:.1f}",
        "sum_cpu": f"{of_days['cpu']:.1f}",
        "sum_peak": f"{of_days['peak']:,.0f}",
        "tables": compare["tables"],
        "cells": f"{compare['cells']:,}",
        "duckdb": f"{compare['duckdb']:.1f}",
        "spark": f"{compare['spark']:.0f}",
        "seeds": SEEDS,
    }
    yield PAGE.format(**facts, sizes="\n".join(rows), truths="\n".join(truths())).strip()
    said(json.dumps(facts))


def _said(what: str) -> None:
    print(what, file=sys.stderr, flush=True)


PAGE = """
# Fleets: cost, scale, false alarms

Made by `python analysis/benchmarks/fleet_scale.py -o analysis/FLEET.md`, {date}, on Linux {kernel},
{cpus} CPUs at a load of {load}. The calls are those of the [sample](../traces/samples/README.md),
400 a second; hosts differ by 12 %, days by 5 %, days of a host by 8 %.

## A host and day

| step | figure |
|---|---|
| roll-ups by the minute, {rows} rows | {rolled} MB |
| day sums of it | {summed} kB, {less} times less |
| summing it, with a check of every file | {sum_s} s ({sum_cpu} s of CPU), peak {sum_peak} MB |

## A report

By DuckDB with two threads, from day sums; *answered* is all queries and statistics, *written* has
the HTML file, too.

| hosts x days | day sums | answered | written | CPU | peak | page |
|---|---|---|---|---|---|---|
{sizes}

The largest on Spark with a master and two workers: all {tables} tables, {cells} cells, equal those
of DuckDB. {spark} s against {duckdb} s, the start of Spark not counted.

## Known truths

Simulated fleets, {seeds} of each kind; 28 days, hosts differ by 15 %, days by 5 %, days of a host
by 10 %.

| fleet | asked | share |
|---|---|---|
{truths}
"""

if __name__ == "__main__":
    main()
