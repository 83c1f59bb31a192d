"""The operator's book of names: the real name of each pseudonym of a key.

It lies beside the key and is in no trace: only its owner can read real names in traces of this
key. SQLite keeps it consistent when recordings write concurrently, when one is killed, and when
the disk is full. Names of messages are not in it. If it has more than ``MOST`` names, those that
no trace had for the longest time are removed.
"""

import os
import sqlite3
import time
from collections.abc import Iterable, Iterator
from contextlib import closing, contextmanager
from pathlib import Path

from spoolscope.traces.errors import SpoolscopeError
from spoolscope.traces.pseudonym import key_path, open_private

MOST = 1_000_000
PATH, PROGRAM = 0, 1
_DAY_S = 86_400
_WAIT_S = 20.0
_WHAT = "the book of names"
_TABLE = """CREATE TABLE IF NOT EXISTS names (
    kind INTEGER, hidden BLOB, original BLOB, day INTEGER, PRIMARY KEY (kind, hidden, original)
) WITHOUT ROWID"""
_NEW = """CREATE TEMP TABLE new (
    kind INTEGER, hidden BLOB, original BLOB, PRIMARY KEY (kind, hidden, original)
) WITHOUT ROWID"""
# Days, not times, so that a name in constant use is written once a day only.
_ADD = """INSERT INTO names SELECT kind, hidden, original, ? FROM new WHERE true
    ON CONFLICT DO UPDATE SET day = excluded.day WHERE day < excluded.day"""
# All names of a day are equally old, but the trace that is being written needs its own.
_FORGET = """DELETE FROM names WHERE (kind, hidden, original) IN (
    SELECT kind, hidden, original FROM names LEFT JOIN new USING (kind, hidden, original)
    ORDER BY new.kind IS NOT NULL, day LIMIT ?)"""

Pairs = Iterable[tuple[bytes, bytes]]


def book_file(key_file: Path | None, key_id: str) -> Path:
    """Return the path of the book of a key, beside the key."""
    return key_path(key_file).with_name(f"{key_id}.names")


def remember(book: Path, paths: Pairs, programs: Pairs) -> str | None:
    """Add (pseudonym, name) of path components and of programs to a book; make it if missing.

    Returns:
        Why they could not be added, or None. A failure does not end a recording.
    """
    day = int(time.time()) // _DAY_S
    rows = (
        (kind, hidden, name)
        for kind, pairs in ((PATH, paths), (PROGRAM, programs))
        for hidden, name in pairs
        if hidden != name
    )
    try:
        _make(book)
        with _opened(book) as found, found:
            found.execute("BEGIN IMMEDIATE")
            found.execute(_TABLE)
            found.execute(_NEW)
            found.executemany("INSERT OR IGNORE INTO new VALUES (?, ?, ?)", rows)
            found.execute(_ADD, (day,))
            ((n, new),) = found.execute("SELECT (SELECT count(*) FROM names), count(*) FROM new")
            if n > MOST:
                found.execute(_FORGET, (n - MOST,))
            if new > MOST:
                return f"{_WHAT} holds {MOST:,}, and these are {new:,}"
    except SpoolscopeError as error:
        # The reason goes into meta.json, which must not name a directory of the operator.
        return error.message.replace(f" {book}", "")
    except (OSError, sqlite3.Error) as error:
        return str(getattr(error, "strerror", None) or error)
    return None


def recall(book: Path) -> tuple[dict[bytes, bytes], dict[bytes, bytes]]:
    """Return the names of path components and of programs by pseudonym.

    A pseudonym that stands for two names, which is rare, is left out.

    Raises:
        SpoolscopeError: it is damaged, a link or open to others.
    """
    found: tuple[dict[bytes, bytes], dict[bytes, bytes]] = ({}, {})
    doubtful: list[tuple[int, bytes]] = []
    try:
        with _opened(book) as opened:
            for kind, hidden, name in opened.execute("SELECT kind, hidden, original FROM names"):
                if not _is_name(kind, hidden, name):
                    continue
                if hidden in found[kind]:
                    doubtful.append((kind, hidden))
                found[kind][hidden] = name
    except sqlite3.Error as error:
        raise SpoolscopeError(
            f"{_WHAT} {book} cannot be read: {error}",
            remedy="remove it; the next recording begins another",
        ) from error
    for kind, hidden in doubtful:
        found[kind].pop(hidden, None)
    return found


def _is_name(kind: object, hidden: object, name: object) -> bool:
    """Return whether a row has the types of ``remember``; SQLite takes any type in any column."""
    if not (isinstance(hidden, bytes) and isinstance(name, bytes)):
        return False
    return kind == PROGRAM or (kind == PATH and b"/" not in name and b"\0" not in name)


def _make(book: Path) -> None:
    """Make an empty book that only its owner can read; SQLite uses its mode for its other files."""
    flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW
    try:
        os.close(os.open(book, flags, 0o600))
    except FileExistsError:
        open_private(book, _WHAT).close()


@contextmanager
def _opened(book: Path) -> Iterator[sqlite3.Connection]:
    open_private(book, _WHAT).close()
    uri = f"{book.absolute().as_uri()}?mode=rw"
    connected = sqlite3.connect(uri, uri=True, timeout=_WAIT_S, isolation_level=None)
    with closing(connected):
        connected.execute("PRAGMA trusted_schema = OFF")
        connected.execute("PRAGMA temp_store = MEMORY")  # a file elsewhere would hold real names
        yield connected
