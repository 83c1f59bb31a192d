"""A small fleet with all kinds of rows, every answer on it, and the comparison of two engines."""

from collections.abc import Collection
from pathlib import Path
from typing import Any

import pyarrow as pa
from spoolscope_testing.rollups import START_S, RollupMaker

from spoolscope.analysis.fleet import sources
from spoolscope.analysis.fleet.day_tables import DAY_TABLES
from spoolscope.traces.rollups.files import write

SLOW = 500
DAY_S = 86_400


def small_fleet(root: Path) -> Path:
    """Write three hosts and two days, with two devices, a hole, and a host of digits."""
    for number, host in enumerate(("mail1", "mail2", "0017")):
        for day in range(2):
            kernel = "6.12.0" if number != 1 or day == 0 else "6.18.0"
            maker = RollupMaker(
                host=host,
                recorder_id=f"{number}d{day}",
                start_s=START_S + day * DAY_S - 3600,
                calls=25,
                minute_columns={"kernel": kernel, "lost": number},
            )
            maker.write(root, minutes=9, in_flush=3)
    other = RollupMaker(host="mail1", recorder_id="second", start_s=START_S - 3600, dev=99)
    other.write(root, minutes=3, in_flush=3)
    unknown = RollupMaker(host="mail2", recorder_id="1d1", start_s=START_S + DAY_S - 3600, dev=0,
                          calls=3, minute_columns={"fs": ""})  # fmt: skip
    rare = unknown.tables(8, 1)
    rare["minutes"]["seq"] = [9]
    write(root, "mail2", rare)
    hole = root / "schema=1"
    for file in hole.glob("*/host=mail2/*/*-00000003.parquet"):
        file.unlink()
    return root


def results(where: Path, engine: Any, only: Collection[str] | None = None) -> dict[str, pa.Table]:
    """Return the tables of day sums and every answer to a question, or only some of them."""
    from spoolscope.analysis.fleet.expressions import programs_of
    from spoolscope.analysis.fleet.fleet_answer import questions

    source = sources.opened(str(where), engine)
    asked = {f"table {name}": source.tables[name] for name in DAY_TABLES}
    asked |= questions(source.tables, engine, SLOW)
    asked["programs_of"] = programs_of(source.tables["sums"], "mail1", "2026-03-01")
    names = asked if only is None else only
    return {name: engine.rows(asked[name]) for name in names}


def differing(ours: dict[str, pa.Table], theirs: dict[str, pa.Table]) -> list[str]:
    """Return the names of tables that are not equal, rows in order and types alike."""
    assert ours.keys() == theirs.keys()
    return [
        name
        for name, table in ours.items()
        if table.schema.names != theirs[name].schema.names
        or not table.num_rows
        or table.to_pydict() != theirs[name].to_pydict()
    ]
