"""One changed bit anywhere in a trace changes no answer, or is an error that names the place."""

import contextlib
import io
import json
import random
import shutil
from collections.abc import Iterator
from pathlib import Path

import pyarrow.compute as pc
import pytest

from spoolscope.cli.main import _run
from spoolscope.traces.digests import write_meta
from spoolscope.traces.parquet import write_table
from spoolscope.traces.schema import TABLES
from spoolscope.traces.trace import Trace

pytestmark = pytest.mark.slow

SAMPLE = Path(__file__).parents[3] / "traces/samples/postfix-dovecot"
CALLS = 4000
FLIPS = 200
VERBS = (("explain", "--json", "--blame", "-q"), ("plan", "--json", "-q"))
# Flips in every file: random ones by bytes would miss small tables and meta.json.
EVERY_FILE = 4


@pytest.fixture(scope="module")
def trace(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Make a trace of the first calls of a real trace, with all that belongs to them."""
    sample, path = Trace.open(SAMPLE), tmp_path_factory.mktemp("flips") / "trace"
    path.mkdir()
    end_ns = sample.table("syscalls", ["ts_ns"])["ts_ns"][CALLS].as_py()
    counts = {}
    for name in TABLES:
        table = sample.table(name)
        if "ts_ns" in table.column_names:
            table = table.filter(pc.less(table["ts_ns"], end_ns))
        table = table.unify_dictionaries()
        columns = {column: table[column].combine_chunks() for column in table.column_names}
        counts[name] = write_table(path, name, columns)
    write_meta(
        path, sample.meta | {"duration_ns": end_ns - sample.meta["start_ns"], "counts": counts}
    )
    return path


def answer(verb: tuple[str, ...], trace: Path) -> tuple[int, str, str]:
    """Return exit code, stdout and stderr of a verb."""
    out, err = io.StringIO(), io.StringIO()
    with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
        code = _run([verb[0], str(trace), *verb[1:]])
    return code, out.getvalue(), err.getvalue()


def flips(place: Path, n: int) -> Iterator[tuple[Path, int]]:
    """Yield files and bit positions: some in every file, the rest anywhere."""
    rng = random.Random(21)
    files = sorted(file for file in place.rglob("*") if file.is_file())
    chosen = [file for file in files for _ in range(EVERY_FILE)]
    sizes = [file.stat().st_size for file in files]
    chosen += rng.choices(files, sizes, k=max(0, n - len(chosen)))
    for file in chosen:
        yield file, rng.randrange(8 * file.stat().st_size)


def silent(place: Path, verbs: tuple[tuple[str, ...], ...], n: int) -> tuple[int, list[str]]:
    """Change bits one after the other; return the number of errors, and wrong answers."""
    right = {verb: answer(verb, place) for verb in verbs}
    for code, said, words in right.values():
        assert code in (0, 3), words
        assert json.loads(said)
    assert right == {verb: answer(verb, place) for verb in verbs}
    told, wrong = 0, []
    for file, bit in flips(place, n):
        data = file.read_bytes()
        changed = bytearray(data)
        changed[bit // 8] ^= 1 << bit % 8
        file.write_bytes(changed)
        for verb in verbs:
            code, said, words = answer(verb, place)
            if (code, said) == right[verb][:2]:
                continue
            told += 1
            named = file.name in words or file.parent.name in words or "schema" in words
            if (code, said, words.count("\n"), named) != (1, "", 1, True):
                wrong.append(f"{verb[0]}: bit {bit} of {file.name}: {code} {words}")
        file.write_bytes(data)
    assert right == {verb: answer(verb, place) for verb in verbs}
    return told, wrong


def test_no_changed_bit_of_a_trace_changes_an_answer_in_silence(trace: Path) -> None:
    told, wrong = silent(trace, VERBS, FLIPS)
    assert wrong == []
    assert told > FLIPS


def test_nor_one_of_a_replay(trace: Path, tmp_path: Path) -> None:
    (tmp_path / "target").mkdir()
    out = tmp_path / "out"
    code, _, words = answer(("replay", "--on", f"dir:{tmp_path / 'target'}", "--no-record", "-q",
                             "--pace", "afap", "-o", str(out)), trace)  # fmt: skip
    assert code in (0, 3), words
    told, wrong = silent(out, (("compare", "--json", "-q"),), 100)
    assert wrong == []
    assert told > 50


def test_without_digests_some_would(trace: Path, tmp_path: Path) -> None:
    """Check the test above: without digests, changes in the data are not found."""
    copy = shutil.copytree(trace, tmp_path / "trace")
    meta = Trace.open(copy).meta
    plain = {key: value for key, value in meta.items() if key not in ("digests", "digest")}
    (copy / "meta.json").write_text(json.dumps(plain))
    right = answer(VERBS[0], copy)
    rng = random.Random(21)

    def is_silent() -> bool:
        file = copy / rng.choice(("syscalls.parquet", "segments.parquet", "commits.parquet"))
        data = file.read_bytes()
        changed = bytearray(data)
        changed[rng.randrange(len(data) // 2)] ^= 1 << rng.randrange(8)
        file.write_bytes(changed)
        code, said, _ = answer(VERBS[0], copy)
        file.write_bytes(data)
        return code in (0, 3) and said != right[1]

    assert any(is_silent() for _ in range(20))
