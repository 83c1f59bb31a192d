"""Plain English: spelling, no personal words for things, one meaning for each term."""

import ast
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from spoolscope.cli import main as cli
from spoolscope.cli.manual.pages import page_of

ROOT = Path(__file__).resolve().parents[3]
COMPONENTS = ("traces", "tracers", "replay", "analysis")
PERSONS = re.compile(r"\b(who|whom|whoever|told|confess\w*)\b(?! apart)", re.I)
"""Words for persons, which messages must not use for a thread, a call or a file."""
WORDS = ("VERMILLION", "fro", "copyin", "iput")
"""Words that only look misspelled: a colour of the palette, and kernel functions."""
LONGEST_SENTENCE = 50
TERM = re.compile(r"^\| \*\*(.+?)\*\* \| (.+) \|$", re.M)


def pages() -> list[Path]:
    tops = [ROOT / "README.md", *(ROOT / c / "README.md" for c in (*COMPONENTS, "notebooks"))]
    return [*tops, *sorted((ROOT / "docs").rglob("*.md"))]


def messages(file: Path) -> Iterator[tuple[int, str]]:
    """Yield the strings of several words in a module, without docstrings and SQL."""
    tree = ast.parse(file.read_text())
    alone = {id(n.value) for n in ast.walk(tree) if isinstance(n, ast.Expr)}
    for node in ast.walk(tree):
        if not isinstance(node, ast.Constant) or id(node) in alone:
            continue
        text = str(node.value)
        if " " in text and not re.search(r"\bSELECT\b|\bpassdb\b", text):
            yield node.lineno, text


def sentences(text: str) -> list[str]:
    """Return the sentences of running text: no code, tables or headings."""
    plain = re.sub(r"```.*?```|^[|#].*$", "\n\n", text, flags=re.M | re.S)
    plain = re.sub(r"`[^`]*`", "code", re.sub(r"\]\([^)]*\)", "]", plain))
    parts = re.split(r"\n\s*\n|^\s*(?:[*-]|\d+\.) ", plain, flags=re.M)
    return [s for part in parts for s in re.split(r"(?<=[.?!:;])\s+", " ".join(part.split())) if s]


@pytest.mark.parametrize("component", COMPONENTS)
def test_messages_name_no_persons_where_things_are_meant(component: str) -> None:
    found = [
        f"{file.relative_to(ROOT)}:{line}: {text.strip()[:90]}"
        for file in sorted((ROOT / component / "python").rglob("*.py"))
        for line, text in messages(file)
        if PERSONS.search(text)
    ]
    assert found == []


def test_help_names_no_persons_where_things_are_meant() -> None:
    found = [
        f"{page.path}: {text}"
        for page in page_of(cli.group, "spoolscope").walk()
        for text in (page.summary, *map(" ".join, page.blocks), *(o.meaning for o in page.options))
        if PERSONS.search(text)
    ]
    assert found == []


@pytest.mark.parametrize("page", pages(), ids=lambda p: str(p.relative_to(ROOT)))
def test_pages_name_no_persons_where_things_are_meant(page: Path) -> None:
    assert [line for line in page.read_text().splitlines() if PERSONS.search(line)] == []


@pytest.mark.parametrize("page", pages(), ids=lambda p: str(p.relative_to(ROOT)))
def test_sentences_of_pages_are_short(page: Path) -> None:
    long = [s for s in sentences(page.read_text()) if len(s.split()) > LONGEST_SENTENCE]
    assert long == []


def test_spelling() -> None:
    sources = [ROOT / component / "python" for component in COMPONENTS]
    places = [ROOT / "docs", ROOT / "README.md", ROOT / "ARCHITECTURE.md", *sources]
    command = [sys.executable, "-m", "codespell_lib", "-L", ",".join(WORDS)]
    skip = ["--skip", "*.png,*.pyc,*.js,*.css"]
    done = subprocess.run([*command, *skip, *map(str, places)], capture_output=True, text=True)
    assert (done.returncode, done.stdout, done.stderr) == (0, "", "")


def test_glossary_is_sorted_and_each_term_is_used() -> None:
    text = (ROOT / "docs/concepts/glossary.md").read_text()
    terms = [term for term, _ in TERM.findall(text)]
    assert len(terms) >= 40
    assert terms == sorted(terms, key=str.lower)
    others = "\n".join(p.read_text() for p in pages() if p.stem != "glossary").lower()
    unused = [t for t in terms if t.lower().removesuffix("e") not in others]
    assert unused == []


def test_rules_find_what_they_are_for() -> None:
    assert PERSONS.search("Say for whom this call waits")
    assert PERSONS.search("what they were told")
    assert not PERSONS.search("candidates that cannot be told apart")
    assert sentences("A b c. D e:\n\n* f g\n* h\n\n| who | x |") == ["A b c.", "D e:", "f g", "h"]
