"""The registry of tables, and the writing of tables."""

from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from spoolscope.traces import format as format_text
from spoolscope.traces.parquet import ROW_GROUP, write_parts, write_table
from spoolscope.traces.schema import TABLES

ROOT = Path(__file__).resolve().parents[2]


def test_format_md_is_what_the_registry_says() -> None:
    stored = (ROOT / "traces" / "FORMAT.md").read_text()
    remedy = "run: python -m spoolscope.traces.format > traces/FORMAT.md"
    assert stored == format_text.text(), remedy


@pytest.mark.parametrize("table", TABLES.values(), ids=lambda t: t.name)
def test_columns_follow_the_rules(table) -> None:
    names = [c.name for c in table.columns]
    assert len(set(names)) == len(names)
    for column in table.columns:
        assert not pa.types.is_unsigned_integer(column.type), column.name
        assert not pa.types.is_temporal(column.type), column.name
        assert column.meaning.endswith("."), column.name
        if column.name.endswith("_ns"):
            assert (column.type, column.unit) == (pa.int64(), "ns"), column.name


def test_every_text_is_private_or_one_of_few_words() -> None:
    """A new text column with names of people, hosts or programs must be marked, or it leaks."""
    words = {
        "syscall", "state", "waker", "symbol", "kind", "event", "object", "trigger", "op",
        "level", "rwbs", "name_of",
    }  # fmt: skip
    for table in TABLES.values():
        for column in table.columns:
            is_text = pa.types.is_dictionary(column.type) or pa.types.is_string(column.type)
            judged = bool(column.private) != (column.name in words)
            assert judged == is_text, f"{table.name}.{column.name}"


def test_rows_come_back_sorted_with_nulls_and_symbols(tmp_path: Path) -> None:
    rows = write_table(
        tmp_path,
        "commits",
        {
            "ts_ns": np.array([30, 10, 20]),
            "dur_ns": np.array([3, 1, 2]),
            "dev": np.ma.masked_equal(np.array([0, 7, 8]), 0),
            "kind": np.array(["jbd2_commit", "btrfs_commit", "jbd2_commit"]),
            "txn_id": np.array([3, 1, 2], dtype=np.uint64),
            "tid": np.array([5, 5, 5], dtype=np.uint32),
            "comm": pa.array(["jbd2", "btrfs", "jbd2"]).dictionary_encode(),
            "trigger": ["timer", "call", "call"],
        },
        {"spoolscope.schema": "spoolscope/1"},
    )
    back = pq.read_table(tmp_path / "commits.parquet")
    assert rows == 3
    assert back.column("ts_ns").to_pylist() == [10, 20, 30]
    assert back.column("dev").to_pylist() == [7, 8, None]
    assert back.column("kind").to_pylist() == ["btrfs_commit", "jbd2_commit", "jbd2_commit"]
    assert back.column("trigger_tid").null_count == 3
    assert pa.types.is_dictionary(back.schema.field("kind").type)
    assert back.schema.metadata[b"spoolscope.schema"] == b"spoolscope/1"


@pytest.mark.parametrize(
    ("lengths", "groups"),
    [
        ((ROW_GROUP - 1, 1, 5), (ROW_GROUP, 5)),
        ((70_000, 70_000, 262_144), (131_072, 131_072, 131_072, 8_928)),
        ((ROW_GROUP,), (ROW_GROUP,)),
        ((0,), (0,)),
        ((), ()),
    ],
)
def test_parts_of_any_length_become_whole_row_groups(tmp_path: Path, lengths, groups) -> None:
    begins = np.cumsum([0, *lengths])
    states = np.array(["nothing", "stacks"], object)

    def part(begin: int, n: int) -> dict[str, object]:
        rows = np.arange(begin, begin + n)
        # Each part has a dictionary of its own.
        return {"ts_ns": rows, "level": states[(rows > 100) & 1], "overhead_ppm": rows % 7}

    parts = (part(begin, n) for begin, n in zip(begins.tolist(), lengths, strict=False))
    assert write_parts(tmp_path, "sheds", parts) == sum(lengths)
    file = pq.ParquetFile(tmp_path / "sheds.parquet")
    found = [file.metadata.row_group(i).num_rows for i in range(file.metadata.num_row_groups)]
    assert tuple(found) == groups
    assert file.read()["ts_ns"].to_pylist() == list(range(sum(lengths)))


def test_file_layout_is_the_measured_one(tmp_path: Path) -> None:
    n = ROW_GROUP + 1
    columns = {c.name: np.zeros(n, np.int64) for c in TABLES["task_events"].columns}
    columns |= {"event": pa.array(["seen"] * n), "comm": pa.array(["imap"] * n)}
    columns["ts_ns"] = np.arange(n)
    write_table(tmp_path, "task_events", columns)
    footer = pq.read_metadata(tmp_path / "task_events.parquet")
    first = footer.row_group(0)
    assert (footer.num_row_groups, first.num_rows) == (2, ROW_GROUP)
    assert first.column(0).compression == "ZSTD"
    assert "DELTA_BINARY_PACKED" in first.column(0).encodings
    assert first.column(0).has_offset_index
    assert first.sorting_columns[0].column_index == 0


@pytest.mark.parametrize(
    ("columns", "complaint"),
    [
        ({"path_id": [1], "surprise": [1]}, "has no column surprise"),
        ({"path_id": [1], "path": ["a", "b"], "kind": ["text"]}, "unequal length"),
        ({"path_id": [1], "kind": ["text"]}, "column path is missing"),
        ({"path_id": [None], "path": ["a"], "kind": ["text"]}, "may not hold nulls"),
    ],
)
def test_wrong_columns_are_refused(tmp_path: Path, columns, complaint: str) -> None:
    with pytest.raises(ValueError, match=complaint):
        write_table(tmp_path, "paths", columns)
    assert list(tmp_path.iterdir()) == []
