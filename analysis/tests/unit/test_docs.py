"""The documentation: it builds without a network, links work, READMEs stay short."""

import ast
import importlib.util
import os
import re
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from spoolscope.report.sections import SECTIONS
from spoolscope.traces.goals import GOALS

ROOT = Path(__file__).resolve().parents[3]
FOLDERS = ("traces", "tracers", "replay", "analysis", "notebooks", "traces/samples")
EXTERNAL = re.compile(r'<(?:script|link|img)[^>]*(?:src|href)="https?://')
LINK = re.compile(r"\]\((?!https?:|#|mailto:)([^)#\s]+)")


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory, require: Callable[[str, str], None]) -> Path:
    """Build the site, strictly, with all connections to other machines refused."""
    if not importlib.util.find_spec("mkdocs"):
        require("mkdocs", "no mkdocs: pip install -e '.[docs]'")
    place = tmp_path_factory.mktemp("site")
    command = [sys.executable, "-m", "mkdocs", "build", "--strict", "-q", "-d", str(place)]
    nowhere = {"http_proxy": "http://127.0.0.1:1", "https_proxy": "http://127.0.0.1:1"}
    env = os.environ | nowhere | {"NO_MKDOCS_2_WARNING": "1"}
    done = subprocess.run(command, cwd=ROOT, env=env, capture_output=True, text=True)
    assert done.returncode == 0, done.stdout + done.stderr
    return place


@pytest.mark.slow
def test_site_builds_strictly_and_fetches_nothing(site: Path) -> None:
    pages = list(site.rglob("*.html"))
    assert len(pages) > 50
    assert [str(p) for p in pages if EXTERNAL.search(p.read_text())] == []


@pytest.mark.parametrize(
    ("page", "words"),
    [
        ("reference/commands/spoolscope-lab.html", "spoolscope lab kjournald"),
        ("reference/tables.html", "Time from entry to return."),
        ("reference/api.html", "Open a trace directory"),
        ("reference/calls.html", "renameat2"),
        ("concepts/causes.html", "What helps."),
        ("measured/cost.html", "firehose"),
        ("inside/architecture.html", "Decisions with numbers"),
    ],
)
def test_generated_pages_have_what_they_are_made_of(site: Path, page: str, words: str) -> None:
    text = re.sub(r"<[^>]+>", "", (site / page).read_text())
    assert words in text


def test_readme_is_short_and_keeps_its_two_commands() -> None:
    text = (ROOT / "README.md").read_text()
    assert len(text.splitlines()) <= 120
    assert "\n$ sudo make demo\n" in text
    assert "`sudo make test`" in text


@pytest.mark.parametrize("folder", FOLDERS)
def test_readmes_of_folders_are_short(folder: str) -> None:
    assert len((ROOT / folder / "README.md").read_text().splitlines()) <= 60


def test_figures_of_the_readme_are_those_of_the_generated_results() -> None:
    text = (ROOT / "README.md").read_text()
    costs = text[text.index("## What it costs") : text.index("## Needs")]
    measured = (ROOT / "tracers/COST.md").read_text()
    figures = re.findall(r"\*\*([\d.]+ ?[%a-z]+)\*\*", costs) + re.findall(r"[\d,]{9}", costs)
    assert len(figures) == 4
    for figure in figures:
        assert figure.replace(" bytes", "") in measured, figure


def test_page_of_fidelity_has_the_goals_of_the_code() -> None:
    text = (ROOT / "docs/concepts/fidelity.md").read_text()
    rows = [f"| {goal.meaning} | {goal.shown(goal.limit)} |" for goal in GOALS.values()]
    assert [row for row in rows if row not in text] == []


def test_every_section_of_the_report_is_explained() -> None:
    page = (ROOT / "docs/read/report.md").read_text()
    names = [_name_of(Path(section.__file__)) for section in SECTIONS]
    assert len(names) > 12
    assert [name for name in names if not re.search(rf"^###? {name}$", page, re.M)] == []


def _name_of(module: Path) -> str:
    """Return the name of a section in the navigation bar of the page."""
    calls = [n for n in ast.walk(ast.parse(module.read_text())) if isinstance(n, ast.Call)]
    made = next(c for c in calls if isinstance(c.func, ast.Name) and c.func.id == "Section")
    return str(ast.literal_eval(made.args[1]))


def test_example_of_the_api_runs(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    text = (ROOT / "docs/reference/api.md").read_text()
    monkeypatch.chdir(ROOT)
    for block in re.findall(r"^```python\n(.*?)^```", text, re.M | re.S):
        exec(compile(block, "api.md", "exec"), {})
    assert re.fullmatch(r"1\.8\d+ s in journal commits\n", capsys.readouterr().out)


def test_pictures_are_small() -> None:
    large = [p.name for p in (ROOT / "docs/images").glob("*.png") if p.stat().st_size > 200_000]
    assert large == []


@pytest.mark.parametrize("name", ["index.md", "start.md"])
def test_first_pages_say_how_the_pages_are_made_that_a_clone_has_not(name: str) -> None:
    text = (ROOT / "docs" / name).read_text()
    dead = [t for t in LINK.findall(text) if not (ROOT / "docs" / t).exists()]
    assert dead, "no page is made by 'make docs'"
    first = text if name == "index.md" else text[: text.index("## 1. ")]
    assert "until `make docs` has written the site" in first


def documents() -> list[Path]:
    """Return the documents of the repository outside docs/, which mkdocs checks."""
    found = [ROOT / "README.md", ROOT / "ARCHITECTURE.md"]
    return found + [p for folder in FOLDERS for p in sorted((ROOT / folder).glob("*.md"))]


@pytest.mark.parametrize("document", documents(), ids=lambda p: str(p.relative_to(ROOT)))
def test_links_lead_to_files(document: Path) -> None:
    targets = LINK.findall(document.read_text())
    assert [t for t in targets if not (document.parent / t).exists()] == []
