"""The operator's book stays consistent, is readable by its owner only, and cannot inject."""

import os
import sqlite3
import subprocess
import sys
from pathlib import Path

import pytest

from spoolscope.traces import book
from spoolscope.traces.book import book_file, recall, remember
from spoolscope.traces.errors import SpoolscopeError

WRITE = """
import sys
from pathlib import Path
from spoolscope.traces.book import remember
at, own = Path(sys.argv[1]), sys.argv[2].encode()
for turn in range(20):
    pairs = [(own + b"%d.%d" % (turn, i), b"name of " + own) for i in range(50)]
    assert remember(at, [(b"shared", b"by all"), *pairs], []) is None
"""


def test_what_is_written_is_read(tmp_path: Path) -> None:
    at = tmp_path / "0123abcd.names"
    assert remember(at, [(b"kq", b"al"), (b"cur", b"cur")], [(b"+x", b"a/b \xff")]) is None
    assert remember(at, [(b"kq", b"al"), (b"z", b"b")], []) is None
    assert recall(at) == ({b"kq": b"al", b"z": b"b"}, {b"+x": b"a/b \xff"})
    assert at.stat().st_mode & 0o777 == 0o600
    assert list(tmp_path.iterdir()) == [at]


def test_it_lies_beside_the_key() -> None:
    assert book_file(Path("/root/my.key"), "0123abcd") == Path("/root/0123abcd.names")


def test_recordings_write_at_once(tmp_path: Path) -> None:
    at = tmp_path / "names"
    words = [sys.executable, "-c", WRITE, at]
    writers = [subprocess.Popen([*words, f"{own}"]) for own in range(4)]
    assert [writer.wait(120) for writer in writers] == [0] * 4
    paths, _ = recall(at)
    assert len(paths) == 4 * 20 * 50 + 1


def test_a_full_disk_is_a_sentence_and_leaves_what_was_there(tmp_path: Path) -> None:
    at = tmp_path / "names"
    assert remember(at, [(b"kq", b"al")], []) is None
    program = (
        "import resource, signal, sys; from pathlib import Path\n"
        "from spoolscope.traces.book import remember\n"
        "signal.signal(signal.SIGXFSZ, signal.SIG_IGN)\n"
        "resource.setrlimit(resource.RLIMIT_FSIZE, (50_000, 50_000))\n"
        "rows = [(b'%d' % i, b'n' * 100) for i in range(100_000)]\n"
        "print(remember(Path(sys.argv[1]), rows, []))"
    )
    done = subprocess.run(
        [sys.executable, "-c", program, at], capture_output=True, text=True, check=True
    )
    assert done.stdout.strip() not in ("", "None")
    assert recall(at) == ({b"kq": b"al"}, {})


def test_a_place_that_takes_no_book_is_a_sentence(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    assert remember(tmp_path / "file" / "names", [(b"a", b"b")], []) == "Not a directory"


def test_of_too_many_the_longest_unused_go(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    at = tmp_path / "names"
    monkeypatch.setattr(book, "MOST", 3)
    for day, names in enumerate(((b"a", b"b"), (b"a", b"c"), (b"d",)), 1):
        monkeypatch.setattr(book.time, "time", lambda day=day: day * 86_400.0)
        assert remember(at, [(name, name * 2) for name in names], []) is None
    assert recall(at)[0].keys() == {b"a", b"c", b"d"}


def test_a_full_book_keeps_the_names_of_the_newest_trace(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """All are of one day, and the newest ones come first in the order of the table."""
    at = tmp_path / "names"
    monkeypatch.setattr(book, "MOST", 3)
    assert remember(at, [(name, b"of a") for name in (b"x", b"y", b"z")], []) is None
    assert remember(at, [(name, b"of b") for name in (b"a", b"b")], []) is None
    known = recall(at)[0]
    assert len(known) == 3
    assert known[b"a"] == known[b"b"] == b"of b"


def test_new_names_are_found_by_an_index_in_a_full_book() -> None:
    """A scan for each of a million names would last for hours."""
    with sqlite3.connect(":memory:") as connected:
        connected.execute(book._TABLE)
        connected.execute(book._NEW)
        steps = connected.execute(f"EXPLAIN QUERY PLAN {book._FORGET}", (1,)).fetchall()
    of_new = [step for *_, step in steps if " new" in step]
    assert of_new
    assert all(step.startswith("SEARCH new USING PRIMARY KEY") for step in of_new)


def test_a_trace_with_more_names_than_the_book_holds_says_so(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(book, "MOST", 2)
    said = remember(tmp_path / "names", [(b"%d" % i, b"name") for i in range(3)], [])
    assert said == "the book of names holds 2, and these are 3"
    assert len(recall(tmp_path / "names")[0]) == 2


def test_a_pseudonym_of_two_names_tells_neither(tmp_path: Path) -> None:
    at = tmp_path / "names"
    remember(at, [(b"k", b"a"), (b"k", b"b"), (b"l", b"c")], [])
    assert recall(at)[0] == {b"l": b"c"}


def planted(at: Path, *statements: str) -> Path:
    at.touch(0o600)
    with sqlite3.connect(at) as made:
        for statement in statements:
            made.execute(statement)
    made.close()
    return at


def test_a_foreign_book_is_an_error_or_says_nothing_else(tmp_path: Path) -> None:
    garbage = tmp_path / "garbage"
    garbage.touch(0o600)
    garbage.write_bytes(os.urandom(9000))
    empty = planted(tmp_path / "empty", "CREATE TABLE other (x)")
    for file in (garbage, empty):
        with pytest.raises(SpoolscopeError, match="cannot be read"):
            recall(file)
    odd = planted(
        tmp_path / "odd",
        "CREATE TABLE names (kind, hidden, original, day)",
        "INSERT INTO names VALUES (0, x'61', x'2f62', 1), (0, 1, 2, 3), ('x', NULL, 'a', 1),"
        " (7, x'61', x'62', 1), (0, x'63', x'64', 'late'), (0, x'65', x'6600', 1)",
    )
    assert recall(odd) == ({b"c": b"d"}, {})


def test_others_neither_read_it_nor_lead_it_astray(tmp_path: Path) -> None:
    at = tmp_path / "names"
    remember(at, [(b"a", b"b")], [])
    at.chmod(0o640)
    assert "open to others" in str(remember(at, [(b"c", b"d")], []))
    with pytest.raises(SpoolscopeError, match="open to others"):
        recall(at)
    victim = tmp_path / "victim"
    victim.write_text("")
    link = tmp_path / "link"
    link.symlink_to(victim)
    assert "symbolic link" in str(remember(link, [(b"c", b"d")], []))
    assert victim.read_text() == ""


def test_the_reason_does_not_say_where_it_lies(tmp_path: Path) -> None:
    """The reason goes into meta.json, and a directory may have the name of a user."""
    (tmp_path / "annika").mkdir()
    open_to_others, link = tmp_path / "annika" / "a", tmp_path / "annika" / "b"
    open_to_others.touch(mode=0o644)
    open_to_others.chmod(0o644)
    link.symlink_to(open_to_others)
    for place in (open_to_others, link):
        reason = remember(place, [(b"x", b"y")], [])
        assert reason
        assert "annika" not in reason
