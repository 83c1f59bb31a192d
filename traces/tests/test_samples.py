"""Every sample is complete, small, private and correctly described."""

import json
import re
import runpy
from pathlib import Path

import pyarrow as pa
import pytest

from spoolscope.traces.trace import Trace

PLACE = Path(__file__).resolve().parents[1] / "samples"
SAMPLES = sorted(file.parent for file in PLACE.glob("*/meta.json"))
DESCRIBE = runpy.run_path(str(PLACE / "describe.py"))
MOST_BYTES, MOST_OF_ALL = 4_000_000, 24_000_000
# Names of users, hosts and addresses in the samples; times, hosts and pids in Maildir names.
TOLD = re.compile(rb"user\d\d\d|example|\.com\b|vmail|\d{9,}\.[MPV]\w*\d|/run/spoolscope|/work")

every = pytest.mark.parametrize("sample", SAMPLES, ids=lambda sample: sample.name)


def test_all_are_there_and_small() -> None:
    names = {"backup", "courier", "cyrus", "desktop", "exim-mdbox", "postfix-dovecot"}
    assert {sample.name for sample in SAMPLES} >= names
    sizes = [sum(file.stat().st_size for file in sample.iterdir()) for sample in SAMPLES]
    assert max(sizes) <= MOST_BYTES
    assert sum(sizes) <= MOST_OF_ALL


@every
def test_it_is_whole(sample: Path) -> None:
    trace = Trace.open(sample)
    assert (trace.meta["complete"], trace.meta["lost"], trace.meta["shed"]) == (True, 0, 0)
    assert trace.meta["paths_unresolved"] == 0
    assert 20e9 <= trace.meta["duration_ns"] <= 40e9
    [(holes, worst)] = (
        trace.connect()
        .execute(
            "SELECT (SELECT count(*) FROM (SELECT count(*) n, min(seq) a, max(seq) z FROM syscalls"
            " GROUP BY tid) WHERE a <> 0 OR n <> z + 1),"
            " (SELECT max(abs(dur_ns - oncpu_ns - blocked_ns - runq_ns - preempted_ns))"
            " FROM syscalls)"
        )
        .fetchall()
    )
    assert (holes, worst) == (0, 0)


@every
def test_no_word_of_it_is_a_name_of_those_who_made_it(sample: Path) -> None:
    trace = Trace.open(sample)
    assert trace.meta["pseudonymised"] is True
    assert TOLD.findall((sample / "meta.json").read_bytes()) == []
    for file in sample.glob("*.parquet"):
        table = trace.table(file.stem)
        for name, column in zip(table.column_names, table.columns, strict=True):
            if pa.types.is_string(column.type) or pa.types.is_dictionary(column.type):
                words = "\n".join(filter(None, column.unique().to_pylist())).encode()
                assert TOLD.findall(words) == [], (file.stem, name)


LOCKING = (6, 7, 37, 38)
"""Commands of fcntl that take or give back a lock: F_SETLK(W), F_OFD_SETLK(W)."""


@every
def test_the_table_has_its_counts(sample: Path) -> None:
    (row,) = re.findall(rf"^\| `{sample.name}` \|.*$", (PLACE / "README.md").read_text(), re.M)
    cells = [cell.strip() for cell in row.strip("|").split("|")]
    [counts] = (
        Trace.open(sample)
        .connect()
        .execute(
            "SELECT count(*), (SELECT count(DISTINCT pid) FROM threads WHERE kind = 'task'),"
            " count(*) FILTER (syscall LIKE 'f%sync'),"
            f" count(*) FILTER (syscall = 'fcntl' AND cmd IN {LOCKING}),"
            " count(*) FILTER (syscall = 'flock'),"
            " count(*) FILTER (syscall LIKE 'rename%' OR syscall LIKE 'link%') FROM syscalls"
        )
        .fetchall()
    )
    calls, processes, syncs, fcntl, flock, names = (f"{n:,}" for n in counts)
    assert cells[3].split()[0] == calls
    assert cells[4:8] == [processes, syncs, f"{fcntl}, {flock}", names]


def test_the_data_package_has_the_bytes_that_are_there() -> None:
    said = (PLACE / "datapackage.json").read_text()
    remedy = "run: python traces/samples/describe.py"
    assert said == DESCRIBE["written"](DESCRIBE["package"]()), remedy
    for resource in json.loads(said)["resources"]:
        if "schema" in resource:
            fields = json.loads((PLACE / resource["schema"]).read_text())["fields"]
            table = Trace.open(PLACE / Path(resource["path"]).parent).table(
                Path(resource["path"]).stem
            )
            assert set(table.column_names) <= {field["name"] for field in fields}, resource["path"]


def test_the_schemas_are_those_of_the_registry() -> None:
    for name, table in DESCRIBE["TABLES"].items():
        file = PLACE / "schemas" / f"{name}.json"
        assert file.read_text() == DESCRIBE["written"](DESCRIBE["schema"](table)), name
