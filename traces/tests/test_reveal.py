"""With the book a hidden trace has its real names, in every way of reading it."""

import json
import re
import shutil
from pathlib import Path

import pytest

from spoolscope.traces.columns import COMM, GROUP, PROGRAM
from spoolscope.traces.digests import write_meta
from spoolscope.traces.private import Hiding
from spoolscope.traces.reveal import RealNames, real_names
from spoolscope.traces.schema import TABLES
from spoolscope.traces.scrub import scrub
from spoolscope.traces.trace import Trace

SAMPLE = Path(__file__).resolve().parents[1] / "samples" / "postfix-dovecot"
MESSAGE = re.compile(r"(^|/)(new|cur|tmp)/\d[^/]*$")
MOUNT = '/srv/zeppelin\'s "box"\x1b[31m/mail'


@pytest.fixture(scope="module")
def traces(tmp_path_factory: pytest.TempPathFactory) -> tuple[Trace, Trace, Path]:
    """Return the sample, whose names are taken as real, the same hidden, and the book."""
    place = tmp_path_factory.mktemp("reveal")
    shutil.copytree(SAMPLE, place / "old")
    meta = json.loads((place / "old" / "meta.json").read_text())
    spools = [{**spool, "mount": MOUNT} for spool in meta["spools"]]
    asked = {"comms": ["imap", "Zeppelin-job"], "exes": ['/usr/bin/zeppelin\'s "box"']}
    calls = {"comm": "Zeppelin-job", "pid": 7, "cgroup": "/zeppelin", "calls": 3, "why": "late"}
    changed = {"pseudonymised": False, "spools": spools, "filter": asked, "unjudged": [calls]}
    write_meta(place / "old", meta | changed)
    book = place / "book"
    hiding = Hiding(bytes(32), programs=True, book=book)
    scrub(place / "old", place / "new", hiding, lambda _what, _share: None)
    return Trace.open(place / "old"), Trace.open(place / "new"), book


def private(*kinds: str) -> list[tuple[str, str]]:
    return [(t.name, c.name) for t in TABLES.values() for c in t.columns if c.private in kinds]


@pytest.mark.parametrize(("table", "column"), private(COMM, PROGRAM, GROUP))
def test_names_of_programs_come_back(traces, table: str, column: str) -> None:
    old, new, book = traces
    named = new.with_names(RealNames.read(book))
    was = old.table(table, [column])[column].to_pylist()
    assert named.table(table, [column])[column].to_pylist() == was
    parts = [part[column].to_pylist() for part in named.parts(table, [column])]
    assert [name for part in parts for name in part] == was
    query = f"SELECT {column} FROM {table}"
    assert sorted(map(str, named.connect().execute(query).fetchall())) == sorted(
        str((name,)) for name in was
    )
    assert named.table(table).schema == new.table(table).schema


def test_paths_come_back_but_not_the_names_of_messages(traces) -> None:
    old, new, book = traces
    named = new.with_names(RealNames.read(book))
    was, hidden, told = (t.table("paths")["path"].to_pylist() for t in (old, new, named))
    on_spool = [kind == "spool" for kind in old.table("paths")["kind"].to_pylist()]
    for before, without, after, below in zip(was, hidden, told, on_spool, strict=True):
        if MESSAGE.search(before):
            assert after.rpartition("/")[0] == before.rpartition("/")[0]
            assert after.rpartition("/")[2] == without.rpartition("/")[2]
        elif below:
            assert after == before
    assert sum(on_spool) > 0.9 * len(on_spool)
    by_duckdb = named.connect().execute("SELECT path FROM paths ORDER BY path_id").fetchall()
    assert [path for (path,) in by_duckdb] == told


def test_the_spool_and_what_was_asked_for_come_back(traces) -> None:
    old, new, book = traces
    meta = new.with_names(RealNames.read(book)).meta
    assert "zeppelin" not in json.dumps(new.meta).lower()
    assert [spool["mount"] for spool in meta["spools"]] == [MOUNT]
    assert meta["filter"] == old.meta["filter"]
    assert new.meta["unjudged"] != old.meta["unjudged"]
    assert meta["unjudged"] == old.meta["unjudged"]


def test_what_was_not_hidden_is_not_revealed() -> None:
    """Numbers of options, and devices, may look like the pseudonym of a short name."""
    names = RealNames({b"5": b"a", b"loop8": b"alice", b"ext4": b"bobs"}, {})
    spool = {"mount": "/5", "source": "/dev/loop8", "options": "rw,subvolid=5,subvol=/5"}
    meta = names.meta({"spools": [{**spool, "fstype": "ext4"}]})
    assert meta["spools"] == [
        {**spool, "fstype": "ext4", "mount": "/a", "options": "rw,subvolid=5,subvol=/a"}
    ]


def test_a_foreign_key_id_leads_nowhere(tmp_path: Path) -> None:
    (tmp_path / "secret.names").write_text("")
    key = tmp_path / "below" / "key"
    for key_id in ("../secret", "", None, 7, ["0123abcd"], "0123abcd\n", "0123ABCD", "missing0"):
        assert real_names({"key_id": key_id}, key) is None
    assert real_names({}, key) is None


def test_an_empty_book_is_none(tmp_path: Path) -> None:
    """A book is empty if the disk was full when it was made."""
    book = tmp_path / "0123abcd.names"
    book.touch(0o600)
    assert real_names({"key_id": "0123abcd"}, tmp_path / "key") is None
    book.write_bytes(b"SQLite format 3")
    assert real_names({"key_id": "0123abcd"}, tmp_path / "key") == book
