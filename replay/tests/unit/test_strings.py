"""Names of a plan, made by Arrow from the table of paths, compared with one name at a time."""

import random
from itertools import pairwise
from types import SimpleNamespace

import numpy as np
import pyarrow as pa
import pytest

from spoolscope.replay.strings import Strings
from spoolscope.traces.errors import SpoolscopeError
from spoolscope.traces.flat import NONE
from spoolscope.traces.text import escaped

PARTS = (b"a", b"b\n", b"c%41", b"\xff", b"d e", b"%", b"new", "é".encode())
KINDS = ("spool", "spool", "spool", "text", "outside")
Row = tuple[bytes, str, int]


def some_rows(chance: random.Random) -> list[Row]:
    """Return raw names with their kinds and spools; slashes around them mean nothing."""

    def name() -> bytes:
        path = b"/".join(chance.choices(PARTS, k=chance.randint(0, 4)))
        return b"/" * chance.randint(0, 1) + path + b"/" * chance.randint(0, 1)

    n = chance.randint(0, 12)
    return [(name(), chance.choice(KINDS), chance.randint(0, 1)) for _ in range(n)]


def strings(rows: list[Row], spools: int, first: int = 0) -> Strings:
    """Read a table of these names, in two parts."""
    table = pa.table(
        {
            "path_id": pa.array(range(first, first + len(rows)), pa.int64()),
            "path": pa.array([escaped(path) for path, _, _ in rows], pa.string()),
            "kind": pa.array([kind for _, kind, _ in rows], pa.string()).dictionary_encode(),
            "spool": pa.array([None if k == "outside" else s for _, k, s in rows], pa.int32()),
        }
    )
    parts = [part for part in (table.slice(0, 5), table.slice(5)) if part.num_rows]
    trace = SimpleNamespace(
        parts=lambda _name, _columns: parts, meta={"spools": [{}] * spools}, path="trace"
    )
    return Strings(trace)  # type: ignore[arg-type]


def below(row: Row, spools: int) -> bytes:
    """Return a row's name below the target."""
    path, kind, spool = row
    if kind == "text" or spools == 1:
        return path if kind == "text" else path.lstrip(b"/")
    return b"/".join(filter(None, (b"spool%d" % spool, path.lstrip(b"/"))))


@pytest.mark.slow
@pytest.mark.parametrize("piece", [1, 5, 1000])
@pytest.mark.parametrize("spools", [1, 2])
def test_names_are_those_of_the_table_each_once(spools, piece, monkeypatch):
    for name in ("_PIECE", "_GROUP"):
        monkeypatch.setattr(f"spoolscope.replay.strings.{name}", piece)
    monkeypatch.setattr("spoolscope.replay.on_disk.CHUNK", piece)
    chance = random.Random(spools)
    for _ in range(60):
        rows = some_rows(chance)
        read = strings(rows, spools)
        inside = [below(row, spools) for row in rows if row[1] != "outside"]
        expected = list(dict.fromkeys(inside))
        of = read.of(np.arange(-1, len(rows))).tolist()
        names = [None if row[1] == "outside" else below(row, spools) for row in rows]
        assert of == [NONE, *(NONE if n is None else expected.index(n) for n in names)]
        assert read.known([*expected, b"unheard/of"]) == {n: i for i, n in enumerate(expected)}
        assert read.add(b"unheard/of") == len(expected)
        assert read.known([b"unheard/of"]) == {b"unheard/of": len(expected)}
        asked = [chance.randrange(len(expected)) for _ in range(8)] if expected else []
        expected.append(b"unheard/of")
        index, texts = read.packed()
        whole = b"".join(text.tobytes() for text in texts)
        ends = np.concatenate(index).tolist()
        assert len(read) == len(expected) == len(ends) - 1
        assert [whole[a:b] for a, b in pairwise(ends)] == expected
        above = [expected[at].rpartition(b"/")[0] for at in asked]
        there = np.arange(0, len(asked), 3)
        names = {expected[asked[at]] for at in there}
        directories = read.directories(np.array(asked, np.uint32), there)
        assert directories == {name: above.index(name) for name in above if name not in names}


def test_a_path_id_that_cannot_be_is_named():
    rows = [(b"a", "spool", 0)]
    for first in (-1, NONE, 1 << 60):
        with pytest.raises(SpoolscopeError, match=f"trace is damaged: path id {first}, not 0 to"):
            strings(rows, 1, first)
    for path_id in (-2, 1, 1 << 60):
        with pytest.raises(SpoolscopeError, match=f"path id {path_id}, not -1 to 0"):
            strings(rows, 1).of(np.array([0, path_id]))
