"""Commands of root follow no links in directories where any user may plant some."""

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from planted import opened_anew, planted, traced

pytestmark = [pytest.mark.root, pytest.mark.steady]
NOBODY = 65534
# Former names of drafts, and names that can be guessed from the final ones.
GUESSED = (
    "out.partial", ".out", "out.tmp", "plan.json", "plan.partial", "replay.json", "replay.partial",
    "recording.json", ".recording.json", "capture.seg", "answers.json", "meta.json",
    "syscalls.parquet", "syscalls.parquet.partial", "out.json",
)  # fmt: skip
DELIVER = (
    "import os, sys; os.chdir(sys.argv[1]); fd = os.open('m', os.O_RDWR | os.O_CREAT);"
    "os.write(fd, b'x' * 100); os.fsync(fd); os.rename('m', 'n'); os.unlink('n')"
)


@pytest.fixture
def shared(tmp_path: Path) -> Path:
    """Return another user's directory in which, as in /tmp, any user may make names."""
    place = tmp_path / "shared"
    place.mkdir()
    place.chmod(0o1777)
    os.chown(place, NOBODY, NOBODY)
    planted(place, tmp_path / "victim", *GUESSED)
    return place


@pytest.fixture
def works(spool) -> list[str]:
    """Return the mount point, then the words of a command that delivers a mail there."""
    mount = str(spool("ext4"))
    return [mount, sys.executable, "-c", DELIVER, mount]


def check(tmp_path: Path, shared: Path, words: list[str], out: str = "out") -> None:
    """Run a command that makes ``shared / out``; nothing else may be made or written."""
    before = {file.name for file in shared.iterdir()}
    done = traced(tmp_path, words)
    assert done.returncode in (0, 3), done.stderr
    assert {file.name for file in shared.iterdir()} == before | {out}
    assert not (shared / out).is_symlink()
    assert (tmp_path / "victim").read_text() == "precious"
    assert opened_anew(tmp_path, shared) == []
    assert all((shared / name).is_symlink() for name in GUESSED if name in before)


def record(works: list[str], out: Path, *options: str) -> list[str]:
    mount, *command = works
    return ["record", "-q", "--spool", mount, "-o", str(out), *options, "--", *command]


def test_record_and_what_reads_it(works: list[str], shared: Path, tmp_path: Path) -> None:
    check(tmp_path, shared, record(works, shared / "out"))
    trace = shared / "out"
    check(tmp_path, shared, ["scrub", str(trace), "-o", str(shared / "hidden"), "--key-file",
                             str(tmp_path / "key")], "hidden")  # fmt: skip
    check(tmp_path, shared, ["report", str(trace), "-o", str(shared / "page")], "page")
    check(tmp_path, shared, ["explain", str(trace), "--edges", str(shared / "edges")], "edges")
    check(tmp_path, shared, record(works, shared / "out", "--force"))


@pytest.mark.parametrize("options", [["--rotate", "1h"], ["--last", "5m"]])
def test_record_into_a_directory(
    options: list[str], works: list[str], shared: Path, tmp_path: Path
) -> None:
    check(tmp_path, shared, record(works, shared / "out", *options))
    assert opened_anew(tmp_path, shared / "out") == []
    assert (shared / "out").stat().st_mode & 0o777 == 0o700


def test_record_recover(works: list[str], shared: Path, tmp_path: Path) -> None:
    """Recover a capture left by a killed recording; the recorder alone leaves the same."""
    mount, *command = works
    recorder = Path(__file__).parents[3] / "target/release/spoolscope-record"
    capture = tmp_path / "left" / "capture.seg"
    capture.parent.mkdir()
    words = ["run", "--output", capture, "--spool", mount, "--snapshot", "none", "--", *command]
    subprocess.run([recorder, *words], check=True, capture_output=True)
    check(tmp_path, shared, ["record", "-q", "--recover", str(capture), "-o", str(shared / "out")])


def test_import(works: list[str], shared: Path, tmp_path: Path) -> None:
    mount, *command = works
    tracing = ["strace", "-f", "-ff", "-ttt", "-T", "-s", "0", "-y", "-o", tmp_path / "strace"]
    subprocess.run([*tracing, *command], check=True)
    logs = [str(file) for file in tmp_path.glob("strace.*")]
    check(tmp_path, shared, ["import", "strace", *logs, "--root", mount, "-o", str(shared / "out")])


@pytest.mark.parametrize("there", [False, True])
def test_replay(there: bool, works: list[str], shared: Path, tmp_path: Path) -> None:
    """Replay, also into an empty directory of another user."""
    trace, out, target = tmp_path / "trace", shared / "out", tmp_path / "target"
    assert traced(tmp_path, record(works, trace)).returncode == 0
    target.mkdir()
    if there:
        out.mkdir()
        os.chown(out, NOBODY, NOBODY)
    words = ["replay", "-q", str(trace), "--on", f"dir:{target}", "--no-record", "-o", str(out)]
    check(tmp_path, shared, words)
    for place in (out, *(path for path in out.iterdir() if path.is_dir())):
        assert [call for call in opened_anew(tmp_path, place) if "O_NOFOLLOW" not in call] == []


def test_the_replayer_follows_no_link(works: list[str], shared: Path, tmp_path: Path) -> None:
    trace, target = tmp_path / "trace", tmp_path / "target"
    assert traced(tmp_path, record(works, trace)).returncode == 0
    replayer = Path(__file__).parents[3] / "target/release/spoolscope-replay"
    from spoolscope.replay.plan import build
    from spoolscope.traces.trace import Trace

    build(Trace.open(trace), tmp_path / "replay.plan")
    for option in ("--outcomes", "--summary", "--progress"):
        shutil.rmtree(target, ignore_errors=True)
        target.mkdir()
        done = subprocess.run(
            [replayer, "run", tmp_path / "replay.plan", "--target", target, "--pace", "afap",
             option, shared / "out.partial"],
            capture_output=True,
        )  # fmt: skip
        assert (tmp_path / "victim").read_text() == "precious", option
        assert done.returncode == 1, option


@pytest.mark.slow
def test_lab(shared: Path, tmp_path: Path) -> None:
    words = ["lab", "faults", "-q", "held-lock", "--on", "ext4", "--seconds", "2"]
    check(tmp_path, shared, [*words, "-o", str(shared / "out")])
