"""Codes of failures are known to the native programs and to Python, and each becomes an error."""

import json
import re
import subprocess
from pathlib import Path

import pytest

from spoolscope.traces.errors import ERROR, USAGE
from spoolscope.traces.native import find_binary
from spoolscope.traces.native_failures import Code, environment, of_answer, of_process


def test_both_sides_know_every_code() -> None:
    layout = subprocess.check_output([find_binary("spoolscope-replay"), "layout"])
    assert json.loads(layout)["failures"] == {code.name.lower(): code.value for code in Code}


@pytest.mark.parametrize("code", Code)
def test_every_code_becomes_an_error(code: Code) -> None:
    answer = {"code": code.name.lower(), "message": "it is so", "remedy": "do that"}
    error = of_answer("replay", answer, remedy="do this")
    assert (error.message, error.remedy) == ("it is so", "do that")
    assert error.exit_code == (USAGE if code is Code.USAGE else ERROR)
    assert of_answer("replay", answer | {"remedy": ""}, remedy="do this").remedy == "do this"


def test_an_unknown_code_is_an_error_that_says_so() -> None:
    answer = {"code": "too_late", "message": "it is so", "remedy": ""}
    error = of_answer("replay", answer, remedy="do this")
    assert "the code 'too_late', which is unknown here: it is so" in error.message
    assert "one version" in error.remedy


def test_a_program_that_says_nothing_failed_with_its_status() -> None:
    assert "status -9 and no message" in of_process("replay", -9, "", remedy="x").message
    told = of_process("replay", 101, "thread 'main' panicked\nat x.rs", remedy="x")
    assert told.message == "replay failed: at x.rs"


def test_the_replayer_reports_a_code_whatever_its_message_says(tmp_path: Path) -> None:
    """A directory called "free" once made the remedy that of a target without free space."""
    target = tmp_path / "free space"
    (target / "something").mkdir(parents=True)
    plan = tmp_path / "no.plan"
    words = [find_binary("spoolscope-replay"), "order", plan]
    done = subprocess.run(words, capture_output=True, text=True, env=environment())
    error = of_process("replay", done.returncode, done.stderr, remedy="record again")
    assert (done.returncode, error.remedy) == (Code.FAILED, "record again")
    assert str(plan) in error.message
    words = [find_binary("spoolscope-replay"), "order", plan]
    told = subprocess.run(words, capture_output=True, text=True)
    assert told.stderr.startswith("spoolscope-replay: error: "), "a person reads text"


@pytest.mark.parametrize(
    ("program", "words"),
    [
        ("spoolscope-replay", ["order", "MISSING"]),
        ("spoolscope-slowdisk", ["MISSING", "MISSING", "MISSING"]),
        ("spoolscope-workload", ["qmail", "deliver", "--root", "MISSING", "--scale", "0.001",
                                 "--report", "MISSING"]),
    ],
)  # fmt: skip
def test_every_native_program_reports_a_code(
    program: str, words: list[str], tmp_path: Path
) -> None:
    missing = str(tmp_path / "missing")
    asked = [find_binary(program), *(word.replace("MISSING", missing) for word in words)]
    done = subprocess.run(asked, capture_output=True, text=True, env=environment())
    answer = json.loads(done.stderr)
    assert (done.returncode, answer["code"]) == (Code.FAILED, "failed")
    assert "No such file" in answer["message"]


def test_python_reads_no_words_of_native_programs() -> None:
    root = Path(__file__).resolve().parents[2]
    places = [root / name / "python" for name in ("traces", "tracers", "replay", "analysis")]
    read = re.compile(r"[\"'](spoolscope-(record|replay|slowdisk|workload): |error: [\"'])")
    files = (file for place in places for file in place.rglob("*.py"))
    assert {file.name for file in files if read.search(file.read_text())} == set()
