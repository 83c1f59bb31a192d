"""Changes since a trace was written are reported; old traces without digests can be read."""

import json
import shutil
from pathlib import Path

import pytest

from spoolscope.traces.digests import write_meta
from spoolscope.traces.errors import SpoolscopeError
from spoolscope.traces.trace import Trace

SAMPLE = Path(__file__).parents[1] / "samples/postfix-dovecot"


@pytest.fixture
def trace(tmp_path: Path) -> Path:
    path = shutil.copytree(SAMPLE, tmp_path / "trace")
    write_meta(path, json.loads((path / "meta.json").read_text()))
    return path


def flip(file: Path, bit: int) -> None:
    data = bytearray(file.read_bytes())
    data[bit // 8] ^= 1 << bit % 8
    file.write_bytes(data)


def test_what_was_written_is_read(trace: Path) -> None:
    opened = Trace.open(trace)
    files = opened.verify()
    assert files is not None
    assert {file.stem for file in files} == set(opened.meta["digests"])
    assert len(files) > 10


def test_the_sample_has_digests() -> None:
    assert Trace.open(SAMPLE).verify()


@pytest.mark.parametrize("way", ["table", "parts", "connect", "verify"])
def test_a_changed_bit_of_data_is_told_however_it_is_read(way: str, trace: Path) -> None:
    flip(trace / "syscalls.parquet", 8 * 5000 + 3)
    opened = Trace.open(trace)
    ways = {
        "table": lambda: opened.table("syscalls", ["ts_ns"]),
        "parts": lambda: next(opened.parts("syscalls", ["ts_ns"])),
        "connect": opened.connect,
        "verify": opened.verify,
    }
    with pytest.raises(SpoolscopeError, match=r"syscalls\.parquet: it has changed"):
        ways[way]()
    assert opened.table("paths").num_rows  # tables that are not read are not checked


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ('"lost": 0', '"lost": 1'),
        ('"digests"', '"digesta"'),
        ('"digest"', '"digesu"'),
        ('"complete": true', '"complete": false'),
        ('"schema"', '"schemb"'),
    ],
)
def test_a_change_of_meta_json_is_told(old: str, new: str, trace: Path) -> None:
    file = trace / "meta.json"
    text = file.read_text()
    assert text.count(old) == 1
    file.write_text(text.replace(old, new))
    with pytest.raises(SpoolscopeError, match=r"meta\.json"):
        Trace.open(trace)


def test_another_layout_of_meta_json_is_no_change(trace: Path) -> None:
    file = trace / "meta.json"
    file.write_text(json.dumps(json.loads(file.read_text()), sort_keys=True))
    assert Trace.open(trace).verify()


def test_a_table_that_nobody_wrote_is_told(trace: Path, tmp_path: Path) -> None:
    opened = Trace.open(trace)
    (trace / "sheds.parquet").rename(tmp_path / "sheds")
    write_meta(trace, opened.meta)
    (tmp_path / "sheds").rename(trace / "sheds.parquet")
    with pytest.raises(SpoolscopeError, match=r"sheds\.parquet"):
        Trace.open(trace).table("sheds")


def test_an_old_trace_without_digests_is_read(trace: Path) -> None:
    meta = json.loads((trace / "meta.json").read_text())
    del meta["digests"], meta["digest"]
    (trace / "meta.json").write_text(json.dumps(meta))
    opened = Trace.open(trace)
    assert opened.verify() is None
    assert opened.table("syscalls").num_rows > 100_000
