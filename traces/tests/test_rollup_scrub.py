"""Roll-ups with their names hidden: no name is left, and every sum is as it was."""

from pathlib import Path

import pyarrow as pa
import pytest
from spoolscope_testing.rollups import START_S, RollupMaker

from spoolscope.traces.errors import SpoolscopeError
from spoolscope.traces.phases import unseen
from spoolscope.traces.private import Hiding
from spoolscope.traces.rollups.coverage import examine
from spoolscope.traces.rollups.files import Rollups, write
from spoolscope.traces.rollups.scrubbing import scrub_rollups

NAMES = (b"jane.roe", b"example-corp", b"mail-7-berlin", b"mailarchive-key")


def _with_names(root: Path) -> None:
    tables = RollupMaker().tables(0, 5)
    n = len(tables["directories"]["directory"])
    tables["directories"]["directory"] = ["/var/mail/example-corp.org/jane.roe/cur"] * n
    tables["calls"]["comm"] = ["jane.roe" if c == "imap" else c for c in tables["calls"]["comm"]]
    tables["calls"]["unit"] = ["imap@jane.roe.service"] * len(tables["calls"]["unit"])
    tables["minutes"]["options"] = ["rw,relatime,jqfmt=vfsv0,mykey=mailarchive-key"] * 5
    write(root, "mail-7-berlin", tables)


def test_no_name_is_left_and_sums_are_the_same(tmp_path: Path) -> None:
    _with_names(tmp_path / "old")
    hidden = scrub_rollups(tmp_path / "old", tmp_path / "new", Hiding(bytes(32)), unseen)
    assert hidden > 3
    old, new = Rollups(tmp_path / "old"), Rollups(tmp_path / "new")
    assert examine(new, deep=True, now_s=START_S + 86_400).findings == ()
    keys = [
        (name, "ascending") for name in ("minute_s", "syscall", "cause", "bucket", "sum_ns", "n")
    ]
    numbers = [name for name, _ in keys]
    assert old.read("calls").select(numbers).sort_by(keys) == new.read("calls").select(
        numbers
    ).sort_by(keys)
    for name in NAMES:
        assert _occurs(tmp_path / "old", old, name)
        assert not _occurs(tmp_path / "new", new, name)


def test_one_host_and_key_have_one_pseudonym(tmp_path: Path) -> None:
    _with_names(tmp_path / "old")
    for name, key in (("a", bytes(32)), ("b", bytes(32)), ("c", b"1" * 32)):
        scrub_rollups(tmp_path / "old", tmp_path / name, Hiding(key), unseen)
    a, b, c = ({flush.host for flush in Rollups(tmp_path / name).flushes} for name in "abc")
    assert a == b != c


def test_an_output_that_exists_is_refused(tmp_path: Path) -> None:
    _with_names(tmp_path / "old")
    with pytest.raises(SpoolscopeError, match="exists"):
        scrub_rollups(tmp_path / "old", tmp_path, Hiding(bytes(32)), unseen)


def _numbers(rollups: Rollups) -> pa.Table:
    names = ["minute_s", "syscall", "cause", "bucket", "sum_ns", "n"]
    calls = rollups.read("calls", names).select(names)
    return calls.sort_by([(name, "ascending") for name in names])


def _occurs(root: Path, rollups: Rollups, name: bytes) -> bool:
    texts = [str(path).encode() for path in root.rglob("*")]
    for table in ("calls", "commits", "directories", "minutes"):
        rows = rollups.read(table)
        for field in rows.schema:
            if pa.types.is_string(field.type):
                texts += [text.encode() for text in rows[field.name].unique().to_pylist()]
    return any(name in text for text in texts)
