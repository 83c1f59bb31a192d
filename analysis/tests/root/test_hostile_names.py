"""Programs and files with names that control terminals, recorded, and shown by every verb."""

import contextlib
import json
import os
import pty
import re
import subprocess
import sys
import unicodedata
from collections.abc import Iterator
from pathlib import Path

import pytest

pytestmark = [pytest.mark.root, pytest.mark.steady]
HOSTILE = Path(__file__).with_name("hostile.py")
SPOOLSCOPE = [sys.executable, "-m", "spoolscope.cli.main"]
# Sequences that rich and click send themselves: colours, moves of the cursor, a cleared screen.
OWN = re.compile(r"\x1b\[[0-9;?]*[A-Za-z]|\r")


def hidden(text: str) -> set[str]:
    """Return the control, format, surrogate and separator characters of an output."""
    kinds = ("Cc", "Cf", "Cs", "Zl", "Zp")
    return {c for c in text if unicodedata.category(c) in kinds} - {"\n"}


def on_terminal(words: list[str], place: Path) -> tuple[int, str]:
    """Run a command on a terminal; return its exit code and its output."""
    ours, theirs = pty.openpty()
    with subprocess.Popen(words, stdin=theirs, stdout=theirs, stderr=theirs, cwd=place) as process:
        os.close(theirs)
        told = b"".join(parts(ours))
    os.close(ours)
    return process.returncode, OWN.sub("", told.decode(errors="surrogateescape"))


def parts(terminal: int) -> Iterator[bytes]:
    with contextlib.suppress(OSError):  # the other end is closed
        while part := os.read(terminal, 65536):
            yield part


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory, require) -> Iterator[Path]:
    """Yield a directory with a spool whose mount point has such a name, too."""
    require("bpf")
    require("ext4")
    place = tmp_path_factory.mktemp("hostile")
    image, mount = place / "image", place / "mount\x1b]0;owned\x07\u202e"
    mount.mkdir()
    with image.open("wb") as file:
        file.truncate(64 << 20)
    subprocess.run(["mkfs.ext4", "-q", "-F", image], check=True)
    subprocess.run(["mount", "-o", "loop", image, mount], check=True)
    (place / "spool").symlink_to(mount.name)
    yield place
    subprocess.run(["umount", "-l", mount], check=True)


def mount_of(place: Path) -> str:
    return str((place / "spool").resolve())


@pytest.fixture(scope="module")
def trace(place: Path) -> Path:
    """Return a recording of it with plain names; the output of record is checked, too."""
    mount = mount_of(place)
    words = [*SPOOLSCOPE, "record", "--keep-names", "--spool", mount, "-o", "kept.trace",
             "--", sys.executable, str(HOSTILE), mount]  # fmt: skip
    code, told = on_terminal(words, place)
    assert code in (0, 3), told
    assert not hidden(told)
    return place / "kept.trace"


VERBS = (
    "info kept.trace",
    "info kept.trace --json",
    "info kept.trace --columns",
    "info kept.trace --verify",
    "explain kept.trace --blame --unknown",
    "explain kept.trace --blame --json",
    "explain kept.trace -f --edges edges.parquet",
    "plan kept.trace",
    "plan kept.trace --json",
    "report kept.trace -f -o report.html",
    "scrub kept.trace -o OUT --key-file key",
    "replay kept.trace --on dir:TARGET --no-record --pace afap -f -o kept.replay",
    "compare kept.replay",
    "compare kept.replay --json",
    "report kept.replay -f -o replay.html",
    "doctor",
)


@pytest.mark.parametrize("verb", VERBS)
def test_no_verb_lets_a_name_through(verb: str, trace: Path, tmp_path: Path) -> None:
    place, target = trace.parent, tmp_path / "target\x1b]0;owned\x07"
    for number, run in enumerate((piped, on_terminal)):
        target.mkdir(exist_ok=True)
        words = [word.replace("TARGET", str(target)).replace("OUT", str(tmp_path / f"o{number}"))
                 for word in verb.split()]  # fmt: skip
        code, told = run([*SPOOLSCOPE, *words], place)
        assert code in (0, 3), told
        assert told
        assert not hidden(told), verb
    if "--json" not in verb and verb.startswith(("explain kept.trace --blame", "plan --expl")):
        assert r"\x1b]0;titled\x07" in told, "the program is named"
    for page in place.glob("*.html"):
        html = re.sub(r"<script>.*?</script>", "", page.read_text(), flags=re.DOTALL)
        assert not hidden(html) - {"\t"}


def piped(words: list[str], place: Path) -> tuple[int, str]:
    done = subprocess.run(words, capture_output=True, cwd=place)
    return done.returncode, (done.stdout + done.stderr).decode(errors="surrogateescape")


def test_the_plan_of_every_call(trace: Path) -> None:
    """Check the names of each call, and the reasons to wait for calls with the same names."""
    import duckdb

    calls = duckdb.sql(
        f"SELECT tid, seq FROM read_parquet('{trace}/syscalls.parquet') "
        "WHERE syscall IN ('rename', 'openat', 'symlink', 'mkdir') ORDER BY ts_ns LIMIT 6"
    ).fetchall()
    named = 0
    for tid, seq in calls:
        words = [*SPOOLSCOPE, "plan", str(trace), "--explain", f"{tid}:{seq}"]
        _, told = on_terminal(words, trace.parent)
        assert not hidden(told)
        named += "owned" in told
    assert named


@pytest.mark.usefixtures("trace")
def test_top_shows_the_program(place: Path) -> None:
    """Check the printed output; test_top_screen.py checks the screen."""
    mount = mount_of(place)
    with subprocess.Popen([sys.executable, HOSTILE, mount, "60"]) as load:
        try:
            code, told = on_terminal(
                [*SPOOLSCOPE, "top", "--deep", "-C", "--spool", mount, "-i", "1s", "-n", "2"], place
            )
        finally:
            load.kill()
    assert code in (0, 3), told
    assert not hidden(told)
    assert r"\x1b]0;titled\x07" in told


def test_errors_quote_the_mount(place: Path) -> None:
    mount = mount_of(place)
    for words in (["record", "--spool", f"{mount}/no", "-o", "x.trace", "-d", "1"],
                  ["top", "-C", "--spool", f"{mount}/no"],
                  ["info", mount], ["explain", mount], ["replay", mount], ["compare", mount],
                  ["freeze", mount], ["report", f"{mount}/a", "-o", f"{mount}/b/c"]):  # fmt: skip
        code, told = on_terminal([*SPOOLSCOPE, *words], place)
        assert code
        assert not hidden(told), words
        assert "owned" in told
        assert told.count("\n") <= 3


def test_json_keeps_the_names(trace: Path) -> None:
    """Check that JSON keeps characters that are hidden from a terminal."""
    done = subprocess.run([*SPOOLSCOPE, "info", str(trace), "--json"], capture_output=True)
    (spool,) = json.loads(done.stdout)["spools"]
    assert spool["mount"] == mount_of(trace.parent)
