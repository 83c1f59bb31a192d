"""The cost of durability: the replay of a sample with and without its fsyncs."""

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

pytestmark = [pytest.mark.root, pytest.mark.steady]

SAMPLE = Path(__file__).resolve().parents[3] / "traces" / "samples" / "exim-mdbox"
SYNCS = ("fsync", "fdatasync")


def run(*words: object, log: Path | None = None) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "spoolscope.cli.main", *map(str, words)]
    if log is not None:
        # The filter lets all other calls pass without a stop.
        options = ["-f", "-qq", "--seccomp-bpf", "-e", "trace=fsync,fdatasync", "-o", str(log)]
        command = ["strace", *options, *command]
    done = subprocess.run(command, capture_output=True, text=True)
    assert done.returncode in (0, 3), done.stderr
    return done


def replayed(tmp_path: Path, name: str, *words: str) -> tuple[dict[str, Any], int, str]:
    """Replay the sample; return its run, the fsyncs seen by strace, and the warnings."""
    target, log = tmp_path / f"{name}.target", tmp_path / f"{name}.log"
    target.mkdir()
    where = ("--on", f"dir:{target}", "-o", tmp_path / name)
    # Disturbed runs are not repeated, as strace counts the calls of all runs.
    how = ("--pace", "afap", "--no-record", "--repeats", "0")
    done = run("replay", SAMPLE, *where, *how, *words, "--json", "-q", log=log)
    (row,) = json.loads(done.stdout)["runs"]
    begun = [line for line in log.read_text().splitlines() if "sync(" in line]
    return row, len(begun), done.stderr


@pytest.fixture(scope="module")
def with_all(tmp_path_factory: pytest.TempPathFactory, require) -> tuple[dict[str, Any], int, Path]:
    """Return a run with all fsyncs, how many strace saw, and its directory."""
    require("strace")
    place = tmp_path_factory.mktemp("with")
    row, made, _ = replayed(place, "with")
    return row, made, place / "with"


def test_what_is_left_out_is_not_made_and_is_said_everywhere(tmp_path: Path, with_all) -> None:
    whole, made, directory = with_all
    row, left, warned = replayed(tmp_path, "without", "--skip", "fsync", "--skip", "fdatasync")
    gone = sum(row["what_if"]["left_out"].get(name, 0) for name in SYNCS)
    assert made - left == gone > 0
    assert (row["divergent"], row["final_state"]["mismatched"]) == (whole["divergent"], 0)
    assert row["executed"] == whole["executed"] - gone
    assert whole["what_if"] is None
    sentence = row["what_if"]["sentence"]
    assert sentence.startswith("WHAT IF: ")
    assert sentence in warned
    both = " ".join(run("compare", directory, tmp_path / "without").stdout.split())
    assert sentence in both
    assert "without fdatasync and without fsync" in both
    report = tmp_path / "report.html"
    run("report", tmp_path / "without", "-o", report)
    assert sentence in report.read_text()


def test_every_tenth_fsync(tmp_path: Path, with_all) -> None:
    _, made, _ = with_all
    row, left, _ = replayed(tmp_path, "tenth", "--fsync-every", "10")
    assert made - left == sum(row["what_if"]["left_out"].values()) > 0
    assert row["final_state"]["mismatched"] == 0


def test_a_part_is_said_everywhere(tmp_path: Path, require) -> None:
    require("strace")
    row, _, warned = replayed(tmp_path, "part", "--slice", "10s..12s", "--skip", "fsync")
    sentence = row["what_if"]["sentence"]
    assert (row["divergent"], row["final_state"]["mismatched"]) == (0, 0)
    assert "from 10 s to 12 s of the recording" in sentence
    assert sentence in warned
    alone = run("compare", tmp_path / "part").stdout
    assert sentence in " ".join(alone.split())
    assert "fsync" in sentence
    # Calls left out by all runs are named once; candidates have their plain names.
    assert "part.target spent" in " ".join(alone.split())
    report = tmp_path / "report.html"
    run("report", tmp_path / "part", "-o", report)
    assert sentence in report.read_text().replace("\N{NO-BREAK SPACE}", " ")


def test_more_users_are_said_everywhere(tmp_path: Path, require) -> None:
    require("strace")
    whole, made, _ = replayed(tmp_path, "once", "--slice", "10s..12s")
    words = ("--scale-users", "3", "--scale-window", "500ms", "--seed", "7")
    row, thrice, warned = replayed(tmp_path, "thrice", "--slice", "10s..12s", *words)
    assert thrice == 3 * made > 0
    assert row["executed"] == 3 * whole["executed"]
    assert (row["divergent"], row["final_state"]["mismatched"]) == (0, 0)
    scale = row["what_if"]["scale"]
    assert scale["mailboxes"] > 10
    assert all(0 <= ns < 5 * 10**8 for ns in scale["phases_ns"])
    sentence = row["what_if"]["sentence"]
    assert sentence.startswith("WHAT IF: ")
    assert "3 times the users: besides the recording 2 copies" in sentence
    assert sentence in warned
    both = " ".join(run("compare", tmp_path / "once", tmp_path / "thrice").stdout.split())
    assert sentence in both
    assert "from 10 s to 12 s and with 3 times the users" in both
    report = tmp_path / "report.html"
    run("report", tmp_path / "thrice", "-o", report)
    assert sentence in report.read_text().replace("\N{NO-BREAK SPACE}", " ")
    asked = ("--slice", "10s..12s", *words, "--json")
    planned = json.loads(run("plan", SAMPLE, *asked).stdout)
    assert (planned["syscalls"], planned["duration_ns"]) == (row["syscalls"], scale["duration_ns"])


@pytest.mark.parametrize("words", [("--scale-users", "0"), ("--scale-window", "5s")])
def test_nonsense_is_refused(words: tuple[str, str]) -> None:
    command = [sys.executable, "-m", "spoolscope.cli.main", "plan", str(SAMPLE), *words]
    done = subprocess.run(command, capture_output=True, text=True)
    assert done.returncode == 2
    assert words[0] in done.stderr
