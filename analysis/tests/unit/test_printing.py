"""No name can control a terminal, forge a line or reverse the order of letters."""

import ast
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

from spoolscope.cli.main import main
from spoolscope.cli.output import emit_json, progress, warn
from spoolscope.cli.printing import say
from spoolscope.report.page import Figure, Page, Section, Table, TableBlock
from spoolscope.traces.errors import SpoolscopeError

ROOT = Path(__file__).resolve().parents[3]
PRINTERS = {"spoolscope/cli/printing.py"}
# Programs run by hand to make a document, and pages of the package: they print no text of a trace.
# The screens of the live tools use shown().
DOCUMENTS = {
    "spoolscope/traces/format.py",
    "spoolscope/traces/results_format.py",
    "spoolscope/cli/help.py",
}
# They answer the command that started them, never a terminal.
SPEAKERS = {"spoolscope/lab/mailserver/inside.py", "spoolscope/lab/slow_server.py"}
TITLE = "\x1b]0;owned\x07"
# Sequences of the progress bar: colours, cursor and line moves.
OWN = re.compile(r"\x1b\[[0-9;?]*[A-Za-z]|\r")
NAME = f"{TITLE}\r\n\u202elive\u2066\x9b2J\x7f\u200b\t|`<b>"
SPOOL = f"/spool/{TITLE}"


def hidden(text: str, *allowed: str) -> set[str]:
    """Return the control, format and separator characters of an output."""
    kinds = ("Cc", "Cf", "Cs", "Zl", "Zp")
    return {c for c in text if unicodedata.category(c) in kinds} - {"\n", *allowed}


def ways_to_print(file: Path) -> Iterator[str]:
    """Yield every call in a module that writes directly to a terminal."""
    for node in ast.walk(ast.parse(file.read_text())):
        if not isinstance(node, ast.Call):
            continue
        called = ast.unparse(node.func)
        if re.search(
            r"(^|\.)(print|echo|secho|pprint|Console|stdout\.write|stderr\.write)$", called
        ):
            yield f"{file.name}: {called}"


def test_only_one_module_prints() -> None:
    files = [f for part in ("traces", "tracers", "replay", "analysis")
             for f in (ROOT / part / "python").rglob("*.py")]  # fmt: skip
    assert len(files) > 100
    found = [
        way
        for file in files
        if not any(str(file).endswith(name) for name in PRINTERS | DOCUMENTS | SPEAKERS)
        for way in ways_to_print(file)
    ]
    consoles = ["output.py: Console", "terminal.py: Console"]
    assert sorted(found) == consoles, "print with spoolscope.cli.printing.say"


def test_of_recorder_and_replayer_only_one_place_prints_words() -> None:
    files = [
        f for part in ("traces", "tracers", "replay") for f in (ROOT / part / "src").rglob("*.rs")
    ]
    assert len(files) > 100
    talkers = [f.name for f in files if re.search(r"\be?print(ln)?!\(|stderr\(\)", f.read_text())]
    # These print JSON, numbers or names of causes on stdout, for the command line.
    quiet = ["answer.rs", "causes.rs", "commands.rs", "coverage.rs", "host.rs"]
    assert sorted(talkers) == [*quiet, "text.rs"]


def test_a_line_stays_one_line(capsys: pytest.CaptureFixture[str]) -> None:
    say("first", NAME, "")
    warn(NAME)
    out, err = capsys.readouterr()
    assert not hidden(out + err)
    assert (out.count("\n"), err.count("\n")) == (3, 1)


def test_progress_shows_names(capsys: pytest.CaptureFixture[str]) -> None:
    with progress() as show:
        show(NAME, 0.5)
    assert not hidden(capsys.readouterr().err)


def test_json_is_ascii(capsys: pytest.CaptureFixture[str]) -> None:
    emit_json({NAME: [NAME]})
    told = capsys.readouterr().out
    assert told.isascii()
    assert not hidden(told)
    assert json.loads(told) == {NAME: [NAME]}


@pytest.mark.parametrize("error", [SpoolscopeError(NAME, remedy=NAME), OSError(2, NAME, NAME),
                                   ValueError(NAME)])  # fmt: skip
@pytest.mark.parametrize("traceback", ["", "1"])
def test_errors_are_shown(
    error: Exception,
    traceback: str,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def fail(**_: object) -> None:
        raise error

    monkeypatch.setattr("spoolscope.cli.main.group.main", fail)
    if traceback:
        monkeypatch.setenv("SPOOLSCOPE_TRACEBACK", "1")
    with pytest.raises(SystemExit, match="1"):
        main([])
    told = capsys.readouterr()
    assert not hidden(told.out + told.err)
    assert "owned" in told.err


@pytest.mark.slow
def test_arguments_are_shown() -> None:
    for words in (
        ["info", SPOOL],
        [NAME],
        ["info", f"--{NAME}"],
        ["explain", NAME, "--rules", NAME],
    ):
        done = subprocess.run(
            [sys.executable, "-m", "spoolscope.cli.main", *words], capture_output=True, text=True
        )
        assert done.returncode in (1, 2)
        assert not hidden(done.stdout + done.stderr)
        assert done.stderr.count("\n") == 1


@pytest.fixture
def trace(builder) -> Path:
    """Make a trace in which all names are hostile."""
    ms = 1_000_000
    commit = "jbd2_log_wait_commit < ext4_sync_file"
    for n in range(30):
        builder.call("fsync", n * 10 * ms, waits=((commit, 5 * ms),), comm=NAME, tid=100 + n % 2,
                     path=f"{NAME}/new/{n}{NAME}")  # fmt: skip
        builder.commit(n * 10 * ms, 5 * ms, trigger="fsync", trigger_pid=100, trigger_tid=100,
                       trigger_comm=NAME)  # fmt: skip
    for tid in (100, 101):
        builder.add("threads", tid=tid, pid=tid, parent_pid=1, comm=NAME, exe=NAME, cgroup=NAME)
    spool = {"mount": SPOOL, "fstype": NAME, "options": NAME, "source": NAME, "dev": 1}
    programs = {"attached": [], "missing": {NAME: NAME}}
    where: Path = builder.write(
        spools=[spool | {"size_bytes": 1 << 30}], programs=programs, kernel=NAME, tier=NAME,
        filter={"comms": [NAME], "units": [NAME]}, pseudonymised=False,
    )  # fmt: skip
    return where


VERBS = {
    "info": (),
    "info --columns": (),
    "info --json": (),
    "explain": (),
    "explain --blame --unknown": (),
    "explain --blame --json": (),
    "plan": (),
    "plan --json": (),
}


def under_pty(words: list[str]) -> str:
    """Run a command on a terminal; return its output without its own control sequences."""
    ours, theirs = pty.openpty()
    with subprocess.Popen(words, stdin=theirs, stdout=theirs, stderr=theirs):
        os.close(theirs)
        told = b"".join(parts(ours))
    os.close(ours)
    return OWN.sub("", told.decode(errors="surrogateescape"))


def parts(terminal: int) -> Iterator[bytes]:
    with contextlib.suppress(OSError):  # the other end is closed
        while part := os.read(terminal, 65536):
            yield part


@pytest.mark.slow
@pytest.mark.parametrize("verb", VERBS)
def test_no_verb_lets_a_name_through(verb: str, trace: Path) -> None:
    name, *options = verb.split()
    words = [sys.executable, "-m", "spoolscope.cli.main", name, str(trace), *options]
    done = subprocess.run(words, capture_output=True, text=True)
    assert done.returncode in (0, 3), done.stderr
    assert not hidden(done.stdout + done.stderr)
    layout = [line for line in done.stdout.splitlines() if line.startswith("\\x0a")]
    assert layout == [], "an empty line of the layout is a line of its own: say('', ...)"
    assert not hidden(under_pty(words))


@pytest.mark.slow
def test_the_report_shows_names_as_text(trace: Path, tmp_path: Path) -> None:
    out = tmp_path / "q.html"
    words = [sys.executable, "-m", "spoolscope.cli.main", "report", str(trace), "-o", str(out)]
    told = under_pty(words)
    assert not hidden(told)
    assert TITLE[1:-1] in out.read_text()
    plotly = re.compile(r"<script>.*?</script>", re.DOTALL)
    page = plotly.sub("", out.read_text())
    assert not hidden(page, "\t")
    assert "<b>owned" not in page
    for data in re.findall(r'<script type="application/json"[^>]*>(.*?)</script>', page, re.DOTALL):
        assert not hidden("".join(texts(json.loads(data))))


def texts(value: object) -> Iterator[str]:
    if isinstance(value, dict):
        for part in value.values():
            yield from texts(part)
    elif isinstance(value, list):
        for part in value:
            yield from texts(part)
    elif isinstance(value, str):
        yield value


def test_a_figure_reads_no_tag_from_a_name() -> None:
    import plotly.graph_objects as go

    from spoolscope.report.render import render

    link = f"<a href='http://example.org'>{NAME}</a>"
    plot = go.Figure(go.Bar(x=[1], y=[link], name=link, customdata=[link]))
    figure = Figure("key", link, link, link, Table([link], [[link]]), plot.update_layout(height=90))
    block = TableBlock(link, [link], [[link]], link)
    page = Page(*[link] * 5, [link], [link], link, link, [], figure,
                [Section("key", link, link, link, [figure, block])])  # fmt: skip
    html = re.sub(r"<script>.*?</script>", "", render(page), flags=re.DOTALL)
    assert "<a href='http" not in html
    assert html.count("&lt;a href=") > 10
    assert not hidden(html)
    data = re.search(r'<script type="application/json"[^>]*>(.*?)</script>', html, re.DOTALL)
    assert data is not None
    assert not any("<a" in text for text in texts(json.loads(data[1])))
