"""The files of a workload's results, and the object for --json."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from spoolscope.lab.workloads.judging import Results, Row, judged
from spoolscope.lab.workloads.running import Asked
from spoolscope.replay.artifacts import write_json
from spoolscope.traces.files import replacing

ABOUT, TABLE, SERIES = "results.json", "results.parquet", "throughput.parquet"
_OF_RUN = [
    ("workload", pa.string()),
    ("candidate", pa.string()),
    ("round", pa.int64()),
    ("position", pa.int64()),
]
SCHEMA = pa.schema([*_OF_RUN, ("metric", pa.string()), ("value", pa.float64())])
SERIES_SCHEMA = pa.schema(
    [
        *_OF_RUN,
        ("step", pa.string()),
        ("at_ns", pa.int64()),
        ("read_bytes", pa.int64()),
        ("written_bytes", pa.int64()),
    ]
)
"""Schema of throughput.parquet; bytes are counted from the begin of the step."""
# Fields of a run that are only in its run.json.
_AT_LENGTH = ("steps", "life", "throughput")


def to_json(asked: Asked, results: Results, rows: Sequence[Row]) -> dict[str, Any]:
    """Return ``results.json``: parameters, figures beside the published ones, claims."""
    comparison = results.comparison
    return {
        "schema": "spoolscope/workload",
        "workload": asked.workload.name,
        "comparison": asked.workload.published or None,
        "year": comparison.year if comparison else None,
        "source": comparison.source if comparison else None,
        "differs": list(comparison.differs) if comparison else [],
        "scale": asked.scale,
        "seed": asked.seed,
        "rounds": asked.rounds,
        "format": asked.mailboxes or None,
        "reference": results.reference,
        "kernel": rows[0]["kernel"],
        "machine": rows[0]["machine"],
        "order": [row["run"] for row in rows],
        "tables": [
            {
                "title": table.title,
                "columns": [vars(column) for column in table.columns],
                "figures": [one.to_json() for part in results.figures(table) for one in part],
            }
            for table in asked.workload.tables
        ],
        "throughput_mb_per_s": results.throughput,
        "claims": [one.to_json() for one in judged(results)],
        "runs": [{key: row[key] for key in row if key not in _AT_LENGTH} for row in rows],
    }


def write(out: Path, value: dict[str, Any], rows: Sequence[Row]) -> None:
    """Write ``results.json`` and ``results.parquet``, a row for each metric of each run.

    If the throughput of a step was sampled, write ``throughput.parquet``, too, a row per sample.
    """
    figures = [
        {**_of_run(row), "metric": metric, "value": float(value)}
        for row in rows
        for metric, value in row["figures"].items()
    ]
    _write_table(out / TABLE, figures, SCHEMA)
    series = [
        {**_of_run(row), "step": step, **sample}
        for row in rows
        for step, samples in row["throughput"].items()
        for sample in samples
    ]
    if series:
        _write_table(out / SERIES, series, SERIES_SCHEMA)
    write_json(out / ABOUT, value)


def _of_run(row: Row) -> dict[str, Any]:
    return {name: row[name] for name, _ in _OF_RUN}


def _write_table(path: Path, rows: list[dict[str, Any]], schema: pa.Schema) -> None:
    with replacing(path) as file:
        pq.write_table(pa.Table.from_pylist(rows, schema), file, compression="zstd")
