"""Commands in the documentation behave as described: they are run on a sample.

A command that begins with sudo needs root or a server: only its verb and options are checked. Lines
below a command are parts of its output, in order.
"""

import re
import shlex
import subprocess
import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

import click
import pytest
from spoolscope_testing.rollups import RollupMaker

from spoolscope.cli import main as cli

# Ibis calls what DuckDB has deprecated.
pytestmark = [
    pytest.mark.filterwarnings("ignore:.*fetch_arrow_table:DeprecationWarning"),
    pytest.mark.filterwarnings("ignore:.*fetch_record_batch:DeprecationWarning"),
]

ROOT = Path(__file__).resolve().parents[3]
PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md"))]
SAMPLES = "traces/samples"
MONDAY, TUESDAY = "exim-mdbox", "courier"
PARTS = ("--slice", "10s..11s", "--pace", "afap", "--no-record", "--no-life", "-q")
FINE = (0, 3, 4, 5)
"""Exit codes of successful commands: 3 is a partial result, 4 and 5 are of --fail-if."""


@dataclass(frozen=True)
class Shown:
    """A command of a page and the output that the page shows."""

    page: Path
    line: int
    words: tuple[str, ...]
    output: tuple[str, ...]


def shown_commands(page: Path) -> Iterator[Shown]:
    text = page.read_text()
    for block in re.finditer(r"^```console\n(.*?)^```", text, re.M | re.S):
        line = text.count("\n", 0, block.start(1))
        for part in re.split(r"^\$ ", block.group(1), flags=re.M):
            if part.strip():
                yield from _shown(page, line + 1, part)
            line += part.count("\n")


def _shown(page: Path, line: int, text: str) -> Iterator[Shown]:
    lines = text.rstrip("\n").split("\n")
    for n in range(1, len(lines) + 1):
        command = "\n".join(lines[:n])
        try:
            words = shlex.split(command)
        except ValueError:
            continue  # an open quotation continues
        if not command.endswith("\\"):
            yield Shown(page, line, tuple(words), tuple(lines[n:]))
            return
    raise AssertionError(f"{page}:{line}: a command that does not end")


ALL = [command for page in PAGES for command in shown_commands(page)]
OWN = [c for c in ALL if "spoolscope" in c.words[:2] and not {"|", ">"} & set(c.words)]
# An exporter goes on until it is stopped, unless it writes files.
SERVING = [
    c for c in OWN if "exporter" in c.words[:3] and not {"--once", "--write-rules"} & set(c.words)
]
# Another engine is a cluster of its own, a bucket is on a server.
AWAY = [c for c in OWN if "--engine" in c.words or any("s3://" in word for word in c.words)]
ROOTED = [c for c in OWN if c.words[0] == "sudo" or c in SERVING or c in AWAY]
RUN = [c for c in OWN if c not in ROOTED]


def name(command: Shown) -> str:
    return f"{command.page.stem}:{command.line}"


def test_pages_show_commands_of_both_kinds() -> None:
    assert len(ROOTED) > 20
    assert len(RUN) > 30


@pytest.mark.parametrize("shown", ROOTED, ids=name)
def test_verb_and_options_exist(shown: Shown) -> None:
    words = list(shown.words[shown.words.index("spoolscope") + 1 :])
    command: click.Command = cli.group
    while isinstance(command, click.Group):
        found = command.get_command(click.Context(command), words.pop(0))
        assert found is not None, shown.words
        command = found
    try:
        command.make_context(str(command.name), words)
    except click.BadParameter as error:
        if "does not exist" not in error.message:  # the reader's own file may be missing
            raise


@pytest.fixture(scope="module")
def desk(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a directory with the files of the guides, made from the samples."""
    place = tmp_path_factory.mktemp("guides")
    (place / "traces").symlink_to(ROOT / "traces")
    for day, sample in (("monday", MONDAY), ("tuesday", TUESDAY)):
        (place / f"{day}.trace").symlink_to(ROOT / SAMPLES / sample)
    for made, options in (("with", ()), ("without", ("--skip", "sync"))):
        (place / "target").mkdir()
        on = ("--on", f"dir:{place / 'target'}", *PARTS, *options, "-o", str(place / made))
        run = [sys.executable, "-m", "spoolscope.cli.main", "replay", "monday.trace", *on]
        done = subprocess.run(run, cwd=place, capture_output=True, text=True)
        assert done.returncode in FINE, done.stderr
        (place / "target").rmdir()
    for alias in ("which", "candidates", "cheaper", "kernels", "options"):
        (place / alias).symlink_to("with")
    RollupMaker().write(place / "rollups")
    return place


@pytest.fixture(scope="module")
def outputs() -> dict[tuple[str, ...], str]:
    """Return a cache of outputs, as several pages begin with the same commands."""
    return {}


@pytest.fixture
def output_of(
    desk: Path,
    outputs: dict[tuple[str, ...], str],
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> Callable[[tuple[str, ...]], str]:
    def run(words: tuple[str, ...]) -> str:
        if words not in outputs:
            monkeypatch.chdir(desk)
            place = desk / words[words.index("-o") + 1] if "-o" in words else None
            again = ("-f",) if place and place.exists() and words[1] == "report" else ()
            code = cli._run([*words[1:], *again])
            printed = capsys.readouterr()
            assert code in FINE, printed.err
            outputs[words] = printed.out
        return outputs[words]

    return run


@pytest.mark.slow
@pytest.mark.parametrize("shown", RUN, ids=name)
def test_command_runs_and_prints_what_the_page_shows(
    shown: Shown, output_of: Callable[[tuple[str, ...]], str]
) -> None:
    printed = iter([" ".join(line.split()) for line in output_of(shown.words).splitlines()])
    for expected in shown.output:
        wanted = " ".join(expected.split())
        assert wanted in printed, f"{name(shown)}: not printed, or not in this order: {expected}"
