"""Ends that are no fault of the input: a reader that ends, closed streams, signals, locales."""

import os
import shlex
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from spoolscope.cli.output import claim_output
from spoolscope.traces.errors import SpoolscopeError

pytestmark = pytest.mark.slow

SAMPLE = Path(__file__).parents[3] / "traces/samples/desktop"
COMMAND = [sys.executable, "-m", "spoolscope.cli.main"]
ENDLESS = "SELECT sum(sin(range)) AS s FROM range(1000000000000)"


def in_shell(line: str, *words: object, **env: str) -> subprocess.CompletedProcess[bytes]:
    """Run a line of bash in which ``"$@"`` is the command."""
    made = ["bash", "-c", line, "bash", *COMMAND, *map(str, words)]
    return subprocess.run(made, capture_output=True, env=os.environ | env, check=False)


def test_a_reader_that_ends_is_no_error(kitchen_sink: Path) -> None:
    line = '"$@" | head -1; echo ${PIPESTATUS[0]}'
    done = in_shell(line, "query", kitchen_sink, "FROM range(300000)", "--csv")
    assert done.stdout.decode().split() == ["range", "0"]
    assert done.stderr == b""


@pytest.mark.parametrize("closed", [">&-", "2>&-", "<&- >&- 2>&-"])
def test_closed_streams_are_no_error_and_no_file(closed: str, kitchen_sink: Path, tmp_path) -> None:
    out = tmp_path / "x.csv"
    done = in_shell(f'"$@" {closed}', "query", kitchen_sink, "SELECT 1 AS a", "-o", out)
    assert (done.returncode, done.stderr) == (0, b"")
    assert out.read_text() == "a\n1\n"


def test_a_narrow_locale_shows_what_it_can(kitchen_sink: Path) -> None:
    done = in_shell('"$@"', "query", kitchen_sink, "SELECT 'né почта' AS a", "--csv",
                    PYTHONIOENCODING="latin-1")  # fmt: skip
    assert done.stdout == b"a\nn\xe9 \\u043f\\u043e\\u0447\\u0442\\u0430\n"
    assert (done.returncode, done.stderr) == (0, b"")


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGHUP])
def test_a_signal_puts_back_what_was_to_be_replaced(
    number: signal.Signals, kitchen_sink: Path, tmp_path: Path
) -> None:
    out = tmp_path / "x.csv"
    out.write_text("old")
    words = [*COMMAND, "query", str(kitchen_sink), ENDLESS, "-f", "-o", str(out)]
    running = subprocess.Popen(words, stderr=subprocess.PIPE, text=True)
    deadline = time.monotonic() + 60
    while out.exists() and time.monotonic() < deadline:
        time.sleep(0.02)
    time.sleep(1)  # the query runs
    running.send_signal(number)
    _, said = running.communicate(timeout=60)
    assert running.returncode == 1
    assert said.strip() == "spoolscope: error: interrupted; run the command again"
    assert sorted(file.name for file in tmp_path.iterdir()) == ["trace", out.name]
    assert out.read_text() == "old"


def test_the_end_of_a_terminal_is_ignored_under_nohup(kitchen_sink: Path) -> None:
    words = ["sh", "-c", 'trap "" HUP; exec "$@"', "sh", *COMMAND, "query", kitchen_sink, ENDLESS]
    with subprocess.Popen(words, stderr=subprocess.PIPE) as running:
        time.sleep(2)
        running.send_signal(signal.SIGHUP)
        with pytest.raises(subprocess.TimeoutExpired):
            running.wait(1)
        running.terminate()
        assert running.wait(60) == 1


@pytest.mark.parametrize("words", [["info"], ["export", SAMPLE, "--to", "csv", "-o"]])
def test_a_name_that_is_no_text_is_refused(words: list[str | Path], tmp_path: Path) -> None:
    odd = os.fsencode(tmp_path) + b"/t\xff"
    Path(os.fsdecode(odd)).mkdir()
    done = subprocess.run([*COMMAND, *words, odd], capture_output=True, check=False)
    assert done.returncode == 2
    assert done.stderr.endswith(b"is no UTF-8, and files in it could not be read; rename it\n")


def test_stdout_is_no_file_named_so(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    with pytest.raises(SpoolscopeError, match="named '-'"), claim_output(Path("-"), force=False):
        pass


def test_the_next_command_can_be_pasted(kitchen_sink: Path) -> None:
    odd = kitchen_sink.with_name("my $(x) trace")
    kitchen_sink.rename(odd)
    done = subprocess.run([*COMMAND, "explain", odd], capture_output=True, text=True, check=False)
    [line] = [line for line in done.stdout.splitlines() if line.startswith("Next: ")]
    assert shlex.split(line)[-1] == str(odd)
