"""Temporary files are removed by their process, or by the next one if it was killed."""

import ast
import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

TOP = Path(__file__).resolve().parents[2]
MAKERS = {
    f"tempfile.{name}"
    for name in ("TemporaryDirectory", "NamedTemporaryFile", "mkdtemp", "mkstemp")
}
PROGRAM = """
import sys
from spoolscope.traces.scratch import scratch
(scratch() / "spilled").write_text("data")
print(scratch(), flush=True)
sys.stdin.read()
"""


@pytest.fixture
def start(tmp_path):
    """Return ``start()``, which starts a process with a scratch directory until its input ends."""
    begun = []

    def one():
        begun.append(subprocess.Popen(
            [sys.executable, "-c", PROGRAM], env=os.environ | {"TMPDIR": str(tmp_path)},
            stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True,
        ))  # fmt: skip
        return begun[-1], Path(begun[-1].stdout.readline().strip())

    yield one
    for process in begun:
        process.kill()
        process.communicate()


def test_nothing_stays_when_a_process_ends(start, tmp_path):
    process, place = start()
    assert place.parent == tmp_path
    assert (place / "spilled").read_text() == "data"
    process.communicate()
    assert list(tmp_path.iterdir()) == []


def test_what_a_killed_process_left_goes_and_what_is_in_use_stays(start):
    killed, left = start()
    _running, used = start()
    killed.send_signal(signal.SIGKILL)
    killed.wait()
    assert (left / "spilled").exists()
    start()
    assert not left.exists()
    assert (used / "spilled").exists()


def test_a_link_of_that_name_is_not_followed(start, tmp_path):
    precious = tmp_path / "precious"
    precious.mkdir()
    (tmp_path / "spoolscope-scratch-link").symlink_to(precious)
    start()
    assert precious.is_dir()


def test_no_module_has_temporary_files_that_stay_when_it_is_killed() -> None:
    """Only ``scratch`` asks for a directory among those of all programs."""
    files = [file for part in ("traces", "tracers", "replay", "analysis")
             for file in (TOP / part / "python").rglob("*.py")]  # fmt: skip
    calls = [
        (file.name, node)
        for file in files
        for node in ast.walk(ast.parse(file.read_text()))
        if isinstance(node, ast.Call) and ast.unparse(node.func) in MAKERS
    ]
    assert len(calls) > 10
    assert [
        name for name, call in calls if not any(word.arg == "dir" for word in call.keywords)
    ] == ["scratch.py"]
