"""Lists of calls come from calls.txt: two names side by side are a second table of calls."""

import ast
import re
from pathlib import Path

from spoolscope.traces.calls import CALLS

ROOT = Path(__file__).resolve().parents[2]
COMPONENTS = ("traces", "tracers", "replay", "analysis")
# Files that may name calls side by side, and why. The list only shrinks.
_DIRECTIONS = "read and write as directions of requests"
_FIELDS = "words of another table that some calls share"
ALLOWED = {
    "analysis/python/spoolscope/analysis/disk_traces.py": _DIRECTIONS,
    "analysis/python/spoolscope/analysis/services.py": _DIRECTIONS,
    "analysis/python/spoolscope/export/fio.py": _DIRECTIONS,
    "analysis/python/spoolscope/export/fio_files.py": "fio's names of the two syncs that it has",
    "analysis/src/workload/maildir_io.rs": _DIRECTIONS,
    "replay/src/engine/args.rs": "argument words",
    "replay/src/semantics/attributes.rs": "calls on the attributes of a symlink",
    "tracers/python/spoolscope/tracers/blktrace/columns.py": _DIRECTIONS,
    "tracers/python/spoolscope/tracers/effects.py": "kinds",
    "tracers/python/spoolscope/tracers/strace/lines.py": "calls that strace prints as text",
    "tracers/python/spoolscope/tracers/strace/members.py": "argument words; offsets in two halves",
    "tracers/python/spoolscope/tracers/strace/old_calls.py": "names of other architectures",
    "tracers/python/spoolscope/tracers/strace/reading.py": _FIELDS,
    "tracers/python/spoolscope/tracers/threads.py": _FIELDS,
    "tracers/python/spoolscope/tracers/uring.py": "operations of io_uring",
    "tracers/python/spoolscope/tracers/waits.py": _FIELDS,
    "tracers/src/settings.rs": "families",
    "traces/python/spoolscope/traces/calls.py": "families",
}
_QUOTED = re.compile(r"""['"](\w+)(?=['"])""")
_SQL = re.compile(r"'(\w+)', '(?=(\w+)')")
_RUST = re.compile(r'b?"(\w+)"\s*[,|]\s*(?=b?"(\w+)")')


def python_files() -> list[Path]:
    return sorted(f for c in COMPONENTS for f in (ROOT / c / "python").rglob("*.py"))


def rust_files() -> list[Path]:
    return sorted(f for c in COMPONENTS for f in (ROOT / c / "src").rglob("*.rs"))


def in_python(source: str) -> list[tuple[str, ...]]:
    """Return the names in displays, and in texts as SQL has them, that hold two calls or more."""
    found = []
    if CALLS.keys().isdisjoint(_QUOTED.findall(source)):
        return []  # to parse all sources takes seconds
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Tuple | ast.List | ast.Set):
            items: list[ast.expr | None] = [*node.elts]
        elif isinstance(node, ast.Dict):
            items = list(node.keys)
        elif isinstance(node, ast.Constant) and isinstance(node.value, str):
            found += [pair for pair in _SQL.findall(node.value) if set(pair) <= CALLS.keys()]
            continue
        else:
            continue
        texts = [item.value for item in items if isinstance(item, ast.Constant)]
        found.append(tuple(text for text in texts if isinstance(text, str) and text in CALLS))
    return [names for names in found if len(names) > 1]


def in_rust(source: str) -> list[tuple[str, ...]]:
    """Return the pairs of calls in arrays and patterns, besides those of tests."""
    code = source.partition("#[cfg(test)]")[0]
    return [pair for pair in _RUST.findall(code) if set(pair) <= CALLS.keys()]


def test_lists_of_calls_are_seen_in_every_form() -> None:
    assert in_python('A = ("rename", "x", "link")') == [("rename", "link")]
    assert in_python('A = {"fsync": 1, "sync": 2}') == [("fsync", "sync")]
    assert in_python("A = \"WHERE s IN ('open', 'openat')\"") == [("open", "openat")]
    assert in_python('A = ("rename", "x"), ["y", "link"]\nB = "open"') == []
    assert in_rust('match n { "dup" | "dup2" => 1 }') == [("dup", "dup2")]
    assert in_rust('ids_of(["dup",\n "dup3"])') == [("dup", "dup3")]
    assert in_rust('[b"link", b"x"]\n#[cfg(test)]\n["dup", "dup2"]') == []


def test_calls_are_named_side_by_side_only_where_it_is_allowed() -> None:
    found = {
        str(file.relative_to(ROOT))
        for files, seen in ((python_files(), in_python), (rust_files(), in_rust))
        for file in files
        if "tests" not in file.relative_to(ROOT).parts
        and not file.stem.endswith("tests")
        and seen(file.read_text())
    }
    assert sorted(found - ALLOWED.keys()) == [], "derive them from calls.txt: of_kind, of_effect"
    assert sorted(ALLOWED.keys() - found) == [], "these no longer need to be allowed"


def test_no_document_counts_the_calls_by_hand() -> None:
    # docs/hooks.py prints the number; a release note keeps the one of its release.
    documents = [ROOT / name for name in ("README.md", "ARCHITECTURE.md", "CONTRIBUTING.md")]
    documents += [
        *(ROOT / "docs").rglob("*.md"),
        *ROOT.glob("*/README.md"),
        ROOT / "traces/FORMAT.md",
    ]
    counted = re.compile(r"\b1\d\d (kinds of calls|kinds of system calls|system calls|of them)\b")
    assert counted.search("calls.txt, 118 of them")
    assert [str(d.relative_to(ROOT)) for d in documents if counted.search(d.read_text())] == []
