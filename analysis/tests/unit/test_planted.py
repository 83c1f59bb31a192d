"""Files planted at a command's output paths never lead it to write elsewhere."""

import os
import shutil
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest
from planted import SPOOLSCOPE, opened_anew, planted, traced

pytestmark = pytest.mark.slow


@pytest.fixture
def shared(tmp_path: Path) -> Path:
    place = tmp_path / "shared"
    place.mkdir()
    place.chmod(0o1777)
    return place


@pytest.fixture
def trace(builder) -> Path:
    for n in range(5):
        waits = (("jbd2_log_wait_commit < ext4_sync_file", 5_000_000),)
        builder.call("fsync", n * 10_000_000, waits=waits, path=f"box/{n}")
        builder.commit(n * 10_000_000, 5_000_000, trigger="fsync", trigger_pid=100, trigger_tid=100)
    return builder.write()


def report(trace: Path, out: Path) -> list[str]:
    return ["report", str(trace), "-o", str(out)]


def edges(trace: Path, out: Path) -> list[str]:
    return ["explain", str(trace), "--edges", str(out)]


def scrubbed(trace: Path, out: Path) -> list[str]:
    return ["scrub", str(trace), "-o", str(out)]


COMMANDS = [report, edges, scrubbed]


def test_the_oracle_sees_a_link_that_is_followed(shared: Path, tmp_path: Path) -> None:
    victim = tmp_path / "victim"
    planted(shared, victim, "draft")
    words = ["strace", "-f", "-qq", "-o", tmp_path / "log", "-e", "trace=open,openat,creat"]
    subprocess.run([*words, "sh", "-c", f"echo new > {shared}/draft"], check=True)
    assert victim.read_text() == "new\n"
    assert len(opened_anew(tmp_path, shared)) == 1


@pytest.mark.parametrize("command", COMMANDS)
def test_links_with_names_of_drafts_are_not_followed(
    command: Callable[[Path, Path], list[str]], trace: Path, shared: Path, tmp_path: Path
) -> None:
    out, victim = shared / "q.html", tmp_path / "victim"
    planted(shared, victim, "q.html.partial", "q.partial", ".q.html", "q.html.tmp")
    done = traced(tmp_path, command(trace, out))
    assert done.returncode == 0, done.stderr
    assert out.exists()
    assert not out.is_symlink()
    assert victim.read_text() == "precious"
    assert len(list(shared.iterdir())) == 5
    assert opened_anew(tmp_path, shared) == []


@pytest.mark.parametrize("command", COMMANDS)
def test_a_link_with_the_final_name_is_an_output_that_exists(
    command: Callable[[Path, Path], list[str]], trace: Path, shared: Path, tmp_path: Path
) -> None:
    out, victim = shared / "q.html", tmp_path / "victim"
    planted(shared, victim, "q.html")
    done = traced(tmp_path, command(trace, out))
    assert done.returncode == 2
    assert "exists" in done.stderr
    assert victim.read_text() == "precious"
    if command is scrubbed:  # it has no --force
        return
    done = traced(tmp_path, [*command(trace, out), "--force"])
    assert done.returncode == 0, done.stderr
    assert not out.is_symlink()
    assert victim.read_text() == "precious"
    assert opened_anew(tmp_path, shared) == []


def test_edges_are_not_overwritten_unless_asked(trace: Path, tmp_path: Path) -> None:
    out = tmp_path / "edges.parquet"
    out.write_text("precious")
    done = traced(tmp_path, edges(trace, out))
    assert done.returncode == 2
    assert "--force" in done.stderr
    assert out.read_text() == "precious"
    assert traced(tmp_path, [*edges(trace, out), "-f"]).returncode == 0
    assert out.read_bytes().startswith(b"PAR1")


@pytest.mark.parametrize("what", ["pipe", "directory", "device"])
@pytest.mark.parametrize("name", ["syscalls.parquet", "paths.parquet", "meta.json"])
@pytest.mark.parametrize("verb", ["info", "explain", "plan", "report", "scrub"])
def test_what_is_no_file_is_refused_at_once(
    what: str, name: str, verb: str, trace: Path, tmp_path: Path
) -> None:
    file = trace / name
    file.unlink()
    if what == "pipe":
        os.mkfifo(file)
    elif what == "directory":
        file.mkdir()
    else:
        file.symlink_to("/dev/zero")
    out = ["-q", "-o", str(tmp_path / "out")] if verb in ("report", "scrub") else []
    done = subprocess.run(
        [*SPOOLSCOPE, verb, str(trace), *out], capture_output=True, text=True, timeout=120
    )
    assert done.returncode in (1, 2), done.stdout
    assert done.stderr.count("\n") == 1, done.stderr
    assert str(trace) in done.stderr


@pytest.mark.parametrize("what", ["pipe", "directory", "device"])
def test_rules_that_are_no_file_are_refused_at_once(what: str, trace: Path, tmp_path: Path) -> None:
    places = {"pipe": tmp_path / "pipe", "directory": tmp_path, "device": Path("/dev/zero")}
    os.mkfifo(tmp_path / "pipe")
    done = subprocess.run(
        [*SPOOLSCOPE, "explain", str(trace), "--rules", str(places[what])],
        capture_output=True, text=True, timeout=120,
    )  # fmt: skip
    assert done.returncode in (1, 2)
    assert "--rules" in done.stderr


def test_a_pipe_in_other_places_is_not_waited_for(trace: Path, tmp_path: Path) -> None:
    """Check a recording of several traces, a replay, and an output that --force would remove."""
    places = ("recording.json", "replay.json", "capture.seg")
    place = tmp_path / "place"
    place.mkdir()
    for name in (*places, "meta.json"):
        os.mkfifo(place / name)
    for words in (["freeze", str(place)], ["compare", str(place)], ["info", str(place)],
                  ["record", "--recover", str(place), "-o", str(tmp_path / "new")],
                  ["import", "strace", str(place / "capture.seg"), "--root", "/x",
                   "-o", str(tmp_path / "new")],
                  ["report", str(trace), "-o", str(place / "meta.json"), "--force"],
                  ["replay", str(trace), "--on", "ext4", "-o", str(place), "--resume"],
                  ["replay", str(trace), "--on", "ext4", "-o", str(place), "--force"]):  # fmt: skip
        done = subprocess.run([*SPOOLSCOPE, *words], capture_output=True, text=True, timeout=120)
        assert done.returncode in (1, 2), words
        assert "spoolscope: error:" in done.stderr
    assert sorted(file.name for file in place.iterdir()) == sorted([*places, "meta.json"])


def test_a_damaged_trace_of_a_recording_is_named(trace: Path, tmp_path: Path) -> None:
    from spoolscope.traces.recording import write_control

    place = tmp_path / "recording"
    place.mkdir()
    write_control(place, {"kind": "trace", "recorder_pid": 1, "recorder_started": None,
                          "ended": True, "skipped": 0})  # fmt: skip
    shutil.copytree(trace, place / "trace-000001")
    (place / "trace-000001/meta.json").write_text('{"digest": "00"}')
    done = subprocess.run([*SPOOLSCOPE, "info", str(place)], capture_output=True, text=True)
    assert done.returncode == 1
    assert "trace-000001 is damaged: meta.json: it has changed" in done.stderr
