"""No name of a mailbox, user or host is left in output that may be given away."""

import html
import json
import runpy
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from spoolscope.traces.schema import TABLES
from spoolscope.traces.text import escaped
from spoolscope.traces.trace import Trace

pytestmark = [pytest.mark.root, pytest.mark.steady]
LEAKY = Path(__file__).with_name("leaky.py")
NAMES: tuple[str | bytes, ...] = runpy.run_path(str(LEAKY))["SECRETS"]


def spoolscope(*words: object) -> bytes:
    command = [sys.executable, "-m", "spoolscope.cli.main", *map(str, words)]
    done = subprocess.run(command, capture_output=True, check=False)
    assert done.returncode == 0, done.stderr
    return done.stdout


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory, require) -> Iterator[Path]:
    """Yield a spool whose mount point has a host's name, and a directory a user's."""
    require("bpf")
    require("ext4")
    place = tmp_path_factory.mktemp("leaks")
    image, mount = place / "image", place / "mail" / "mailhost7" / "example.org"
    mount.mkdir(parents=True)
    (place / "home" / "annika").mkdir(parents=True)
    with image.open("wb") as file:
        file.truncate(64 << 20)
    subprocess.run(["mkfs.ext4", "-q", "-F", image], check=True)
    subprocess.run(["mount", "-o", "loop,noatime", image, mount], check=True)
    yield place
    subprocess.run(["umount", "-l", mount], check=True)


def recorded(place: Path, name: str, *options: object) -> Path:
    mount = place / "mail" / "mailhost7" / "example.org"
    subprocess.run(["find", mount, "-mindepth", "1", "-delete"], check=True)
    output = place / name
    words = ["--spool", mount, "-o", output, "--key-file", place / "key", *options]
    work = [sys.executable, LEAKY, mount, place / "home" / "annika"]
    spoolscope("record", "-q", *words, "--", *work)
    return output


@pytest.fixture(scope="module")
def hidden(place: Path) -> Path:
    return recorded(place, "hidden.trace")


@pytest.fixture(scope="module")
def kept(place: Path) -> Path:
    return recorded(place, "kept.trace", "--keep-names")


def everything(path: Path) -> dict[str, bytes]:
    """Return all bytes of a trace: raw files, decoded columns, footers, metadata."""
    trace, found = Trace.open(path), {}
    for file in path.iterdir():
        found[f"{file.name} as it lies"] = file.read_bytes()
    found["meta.json decoded"] = json.dumps(trace.meta, ensure_ascii=False).encode()
    for name in TABLES:
        table = trace.table(name)
        for column in table.column_names:
            found[f"{name}.{column}"] = decoded(table[column])
        if trace.file(name).exists():
            footer = pq.read_metadata(trace.file(name))
            groups = [footer.row_group(i).to_dict() for i in range(footer.num_row_groups)]
            found[f"{name} footer"] = f"{footer.metadata} {groups}".encode()
    return found


def decoded(column: pa.ChunkedArray) -> bytes:
    if pa.types.is_dictionary(column.type):
        column = column.cast(pa.string())
    if pa.types.is_string(column.type):
        return "\n".join(text or "" for text in column.to_pylist()).encode()
    return b"".join(array.to_numpy(zero_copy_only=False).tobytes() for array in column.chunks)


def shown(path: Path, place: Path) -> dict[str, bytes]:
    """Return the output of all commands."""
    report = place / f"{path.name}.html"
    spoolscope("report", "-q", path, "-o", report, "--force")
    return {
        "report": report.read_bytes(),
        "info": spoolscope("info", path),
        "info --json": spoolscope("info", path, "--json"),
        "explain --json": spoolscope("explain", path, "--blame", "--json"),
    }


def forms(name: str | bytes) -> set[bytes]:
    """Return the forms in which a name may be written."""
    raw = name if isinstance(name, bytes) else name.encode()
    text = raw.decode(errors="surrogateescape")
    written = {
        *(raw, escaped(raw).encode(), html.escape(escaped(raw)).encode()),
        json.dumps(text)[1:-1].encode(),
        json.dumps(escaped(raw))[1:-1].encode(),
        "".join(chr(b) if b < 0x80 else f"%{b:02X}" for b in raw).encode(),
        text.encode("unicode_escape", errors="surrogatepass"),
    }
    return written | {form[:15] for form in written}  # as the name of a thread


def leaks(things: dict[str, bytes]) -> list[tuple[str, str | bytes]]:
    return [
        (where, name)
        for name in NAMES
        for where, data in things.items()
        if any(form in data for form in forms(name))
    ]


def test_no_name_is_left(hidden: Path, place: Path) -> None:
    assert leaks(everything(hidden)) == []
    assert leaks(shown(hidden, place)) == []


def test_no_name_is_left_of_a_trace_that_kept_them(kept: Path, place: Path) -> None:
    copy = place / "copy.trace"
    before = everything(kept)
    spoolscope("scrub", "-q", kept, "-o", copy, "--key-file", place / "key")
    assert everything(kept) == before
    assert leaks(everything(copy)) == []
    assert leaks(shown(copy, place)) == []


def test_no_name_is_left_of_a_recording_in_several_traces(place: Path) -> None:
    """Check that captures, which hold names, are removed after conversion."""
    series = recorded(place, "series", "--rotate", "1s")
    files = {file: file.read_bytes() for file in series.rglob("*") if file.is_file()}
    traces = [file.parent for file in files if file.name == "meta.json"]
    assert traces
    assert leaks({str(file.relative_to(series)): data for file, data in files.items()}) == []
    for trace in traces:
        assert leaks(everything(trace)) == []


def test_every_name_would_be_found(kept: Path, place: Path) -> None:
    """Search a trace that keeps names: a name not found there could not be found at all."""
    found = leaks(everything(kept))
    assert {name for _, name in found} == set(NAMES)
    places = {where for where, _ in found}
    assert places >= {"paths.path", "syscalls.comm", "threads.comm", "meta.json decoded"}
    assert {where for where, _ in leaks(shown(kept, place))} >= {"report", "info", "info --json"}


def test_nothing_lies_around_beside_a_trace(hidden: Path, place: Path) -> None:
    """Check that no capture, which holds plain names, is left."""
    beside = [path.name for path in place.iterdir() if "hidden.trace" in path.name]
    assert [name for name in beside if not name.endswith(".html")] == ["hidden.trace"]
    assert {file.stat().st_mode & 0o777 for file in hidden.iterdir()} == {0o600}
    assert hidden.stat().st_mode & 0o777 == 0o700
