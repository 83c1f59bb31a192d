"""The permitted imports between components, and limits that keep files readable."""

import ast
import re
import tomllib
from collections import Counter
from collections.abc import Iterator
from importlib.metadata import version
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
NAMES_TWICE = Path(__file__).with_name("names_used_twice.txt")
ENTRANCES = {"__init__", "__main__", "mod", "lib", "main", "cli", "tests"}
COMPONENTS = ("traces", "tracers", "replay", "analysis")

# Package below spoolscope -> packages that it may import. There are no cycles.
ARROWS = {
    "traces": {"traces"},
    "tracers": {"traces", "tracers"},
    "replay": {"traces", "replay"},
    "analysis": {"traces", "analysis"},
    "report": {"traces", "analysis", "report"},
    "export": {"traces", "analysis", "export"},
    "exporter": {"traces", "analysis", "export", "exporter"},
    # The lab records, replays and explains, as the command line does; it prints nothing.
    "lab": {"traces", "tracers", "replay", "analysis", "lab"},
    "cli": {
        "traces",
        "tracers",
        "replay",
        "analysis",
        "report",
        "export",
        "exporter",
        "lab",
        "cli",
    },
}
CRATE_ARROWS = {
    "traces": set(),
    "tracers": {"spoolscope-traces"},
    "replay": {"spoolscope-traces"},
    "analysis": {"spoolscope-traces"},
}
GENERIC = {"utils", "util", "helpers", "helper", "common", "misc", "manager"}
SUFFIXES = {".py", ".rs", ".c", ".h", ".sh"}
# A file that is longer than the first number is listed; one longer than the second fails.
LINES = {
    ".py": (400, 800),
    ".rs": (500, 800),
    ".c": (400, 800),
    ".h": (500, 800),
    ".sh": (120, 250),
}
TEST_LINES = (600, 900)
# Lines of a function: the longest one, and that which 99 of 100 do not exceed.
FUNCTION_LINES = {".py": (101, 45), ".rs": (82, 48)}


def python_files() -> list[Path]:
    return sorted(f for c in COMPONENTS for f in (ROOT / c / "python").rglob("*.py"))


def source_files() -> list[Path]:
    files = (f for c in COMPONENTS for f in (ROOT / c).rglob("*") if f.suffix in SUFFIXES)
    return sorted(f for f in files if "target" not in within(f))  # build output of fuzzing


def within(file: Path) -> tuple[str, ...]:
    """Return the names below the checkout, which may itself be called spoolscope or tests."""
    return file.relative_to(ROOT).parts


def package_of(file: Path) -> str:
    parts = within(file)
    return parts[parts.index("spoolscope") + 1]


def imported_packages(source: str) -> set[str]:
    found = set()
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.ImportFrom) and node.module:
            names = [f"{node.module}.{alias.name}" for alias in node.names]
        elif isinstance(node, ast.Import):
            names = [alias.name for alias in node.names]
        else:
            continue
        found |= {n.split(".")[1] for n in names if n.startswith("spoolscope.")}
    return found


def test_imported_packages_sees_every_form_of_import() -> None:
    source = "import spoolscope.replay.run\nfrom spoolscope import cli\n"
    source += "def f():\n    from spoolscope.tracers.session import record\n"
    assert imported_packages(source) == {"replay", "cli", "tracers"}


@pytest.mark.parametrize("file", python_files(), ids=lambda f: str(f.relative_to(ROOT)))
def test_imports_follow_the_arrows(file: Path) -> None:
    package = package_of(file)
    assert imported_packages(file.read_text()) <= ARROWS[package]


@pytest.mark.parametrize("crate", CRATE_ARROWS)
def test_crates_follow_the_arrows(crate: str) -> None:
    manifest = tomllib.loads((ROOT / crate / "Cargo.toml").read_text())
    depends = {name for name in manifest.get("dependencies", {}) if name.startswith("spoolscope")}
    assert depends <= CRATE_ARROWS[crate]


def test_the_version_of_cargo_toml_is_everywhere() -> None:
    stated = tomllib.loads((ROOT / "Cargo.toml").read_text())["workspace"]["package"]["version"]
    assert version("spoolscope") == stated
    assert re.search(rf"^## {re.escape(stated)}", (ROOT / "CHANGELOG.md").read_text(), re.M)


def test_news_go_below_the_title_of_the_changelog() -> None:
    """Without its own mark towncrier writes them above the title."""
    mark = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["towncrier"]["start_string"]
    head, found, sections = (ROOT / "CHANGELOG.md").read_text().partition(mark)
    assert (head.startswith("# "), found, sections.startswith("\n## ")) == (True, mark, True)


def test_no_file_is_named_after_nothing() -> None:
    assert [f for f in source_files() if f.stem in GENERIC] == []


def test_files_stay_small(capsys: pytest.CaptureFixture[str]) -> None:
    """Files above the first limit are only printed: a line saved by force helps nobody."""
    soft, hard = {}, {}
    for file in source_files():
        lines = len(file.read_text().splitlines())
        wanted, limit = TEST_LINES if "tests" in within(file) else LINES[file.suffix]
        if lines > wanted:
            (hard if lines > limit else soft)[str(file.relative_to(ROOT))] = lines
    if soft:
        with capsys.disabled():
            print("\nlong files:", *(f"  {n} {name}" for name, n in soft.items()), sep="\n")
    assert hard == {}


def functions(file: Path) -> Iterator[tuple[int, str]]:
    """Yield the length of every function of a file, and its name."""
    source = file.read_text()
    if file.suffix == ".py":
        for node in ast.walk(ast.parse(source)):
            if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
                yield (node.end_lineno or 0) - node.lineno + 1, f"{file.name}: {node.name}"
        return
    for head in re.finditer(r"^( *)(?:[\w(): ]* )?fn (\w+)[^;{]*\{$", source, re.M):
        body = source[head.start() : source.index(f"\n{head[1]}}}", head.end())]
        yield body.count("\n") + 2, f"{file.name}: {head[2]}"


def test_functions_of_rust_are_measured(tmp_path: Path) -> None:
    file = tmp_path / "a.rs"
    file.write_text(
        "impl A {\n    pub(crate) fn b(\n        c: u8,\n    ) -> u8 {\n        c\n    }\n}\n"
    )
    assert list(functions(file)) == [(5, "a.rs: b")]


@pytest.mark.parametrize("suffix", FUNCTION_LINES)
def test_functions_stay_short(suffix: str) -> None:
    files = [f for f in source_files() if f.suffix == suffix and "tests" not in within(f)]
    lengths = sorted(one for file in files for one in functions(file))
    longest, usual = FUNCTION_LINES[suffix]
    assert [one for one in lengths if one[0] > longest] == []
    assert lengths[len(lengths) * 99 // 100][0] <= usual


def test_base_names_are_used_once() -> None:
    """A name means one thing. The list has what is left; a line may only leave it."""
    listed = {
        name: int(n) for name, n in map(str.split, NAMES_TWICE.read_text().strip().splitlines())
    }
    sources = [f for f in source_files() if not {"tests", "fuzz"} & set(within(f))]
    stems = Counter(f.name.partition(".")[0] for f in sources)
    found = {name: n for name, n in stems.items() if n > 1 and name not in ENTRANCES}
    assert {name: n for name, n in found.items() if n > listed.get(name, 1)} == {}, "name it apart"
    assert listed == {n: found.get(n, 0) for n in listed}, f"shorten {NAMES_TWICE.name}"


def is_table(statement: ast.stmt) -> bool:
    """Return whether a statement lays out rows: a collection of several lines, or a constant."""
    if isinstance(statement, ast.Assign) and statement.col_offset == 0:
        return True
    shown = (
        n for n in ast.walk(statement) if isinstance(n, ast.List | ast.Tuple | ast.Set | ast.Dict)
    )
    return any((n.end_lineno or 0) > n.lineno for n in shown)


@pytest.mark.parametrize("component", COMPONENTS)
def test_only_tables_are_laid_out_by_hand(component: str) -> None:
    wrong = []
    for file in (ROOT / component / "python").rglob("*.py"):
        source = file.read_text()
        if "# fmt: " not in source:
            continue
        assert "# fmt: off" not in source, file
        statements = [n for n in ast.walk(ast.parse(source)) if isinstance(n, ast.stmt)]
        for number, line in enumerate(source.splitlines(), 1):
            if "# fmt: skip" in line:
                around = [n for n in statements if n.lineno <= number <= (n.end_lineno or 0)]
                if not is_table(max(around, key=lambda n: n.lineno)):
                    wrong.append(f"{file.relative_to(ROOT)}:{number}")
    assert wrong == []


# -- circles -----------------------------------------------------------------------------------

Graph = dict[str, set[str]]
RUST_TESTS = re.compile(r"#\[cfg\(test\)\]\s*(?:pub(?:\(crate\))? )?mod (\w+)(;| \{)")
# Modules that import one another, by crate or package. Meant to be empty.
CIRCLES: dict[str, list[set[str]]] = {}


def circles(graph: Graph) -> list[set[str]]:
    """Return the sets of modules that reach one another."""
    reached: Graph = {}
    for module in graph:
        seen, pending = set(), [module]
        while pending:
            new = graph[pending.pop()] - seen
            seen |= new
            pending += new
        reached[module] = seen
    found = {frozenset(o for o in reached[m] if m in reached[o]) for m in graph if m in reached[m]}
    return [set(one) for one in found]


def test_circles_are_found() -> None:
    graph = {"a": {"b"}, "b": {"c"}, "c": {"b", "d"}, "d": {"e"}, "e": {"d"}, "f": {"a"}}
    assert sorted(map(sorted, circles(graph))) == [["b", "c"], ["d", "e"]]


def python_graph() -> Graph:
    """Return the imports of all modules; those in functions and under TYPE_CHECKING count."""
    files = {}
    for file in python_files():
        parts = file.relative_to(ROOT).with_suffix("").parts[2:]
        files[".".join(parts[:-1] if parts[-1] == "__init__" else parts)] = file
    return {
        module: {name for name in imported_names(file.read_text(), set(files)) if name != module}
        for module, file in files.items()
    }


def imported_names(source: str, modules: set[str]) -> set[str]:
    found = set()
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.ImportFrom) and node.module:
            names = {f"{node.module}.{alias.name}" for alias in node.names}
            found |= {name if name in modules else node.module for name in names}
        elif isinstance(node, ast.Import):
            found |= {alias.name for alias in node.names}
    return found & modules


@pytest.mark.slow
def test_no_python_modules_import_one_another() -> None:
    assert in_order(circles(python_graph())) == in_order(CIRCLES.get("python", []))


def in_order(found: list[set[str]]) -> list[list[str]]:
    return sorted(map(sorted, found))


def rust_graph(sources: dict[str, str]) -> Graph:
    """Return which modules of a crate use which, by ``crate::`` and ``super::``.

    A module names its own children without either: that is no use. Modules of tests do not count.
    """
    tests = {
        f"{module}::{name}".removeprefix("::")
        for module, source in sources.items()
        for name, _ in RUST_TESTS.findall(source)
    }
    modules = {m for m in sources if m and m not in tests}
    graph: Graph = {}
    for module in modules:
        source = without_tests(re.sub(r"//.*", "", sources[module]))
        used = {nearest(path, module, modules) for path in used_paths(source)}
        graph[module] = {name for name in used if name and name != module}
    return graph


def without_tests(source: str) -> str:
    """Remove the modules of tests at the end of a file."""
    inner = next((found for found in RUST_TESTS.finditer(source) if found[2] != ";"), None)
    return source[: inner.start()] if inner else source


def used_paths(source: str) -> Iterator[str]:
    for path in re.findall(r"\buse\s+([^;]+);", source):
        yield from unfolded(re.sub(r"\s+", "", re.sub(r"\bas\s+\w+", "", path)))
    rest = re.sub(r"\buse\s+[^;]+;", "", source)
    yield from re.findall(r"\b(?:crate|super)(?:::\w+)+", rest)


def unfolded(path: str) -> list[str]:
    """Return the paths of a use with braces."""
    before, brace, rest = path.partition("{")
    if not brace:
        return [path]
    parts, depth, begin = [], 0, 0
    for at, letter in enumerate(rest):
        if letter in ",}" and depth == 0:
            parts.append(rest[begin:at])
            begin = at + 1
        depth += (letter == "{") - (letter == "}")
    return [one for part in parts if part for one in unfolded(before + part)]


def nearest(path: str, module: str, modules: set[str]) -> str:
    """Return the module that a path leads into; empty if it is of another crate, or the root."""
    parts, above = path.split("::"), module.split("::")
    if parts[0] not in ("crate", "super"):
        return ""
    while parts and parts[0] in ("crate", "super"):
        above = [] if parts.pop(0) == "crate" else above[:-1]
    parts = above + parts
    while parts and "::".join(parts) not in modules:
        parts.pop()
    return "::".join(parts)


def test_uses_of_rust_are_read() -> None:
    sources = {
        "": "mod a;\nmod b;\n",
        "a": "use crate::b::{Thing, inner::{self, Other}};\n"
        "#[cfg(test)]\nmod tests {\n    use crate::c::X;\n}",
        "b": "mod inner;\nfn f() { crate::c::g(); } // crate::a::x",
        "b::inner": "use super::super::a::Y;\nuse std::fmt;",
        "c": "#[cfg(test)]\nmod checks;\n",
        "c::checks": "use crate::a::Z;",
    }
    wanted = {"a": {"b", "b::inner"}, "b": {"c"}, "b::inner": {"a"}, "c": set()}
    assert rust_graph(sources) == wanted


@pytest.mark.parametrize("crate", CRATE_ARROWS)
def test_no_rust_modules_use_one_another(crate: str) -> None:
    sources = {}
    for file in (ROOT / crate / "src").rglob("*.rs"):
        parts = file.relative_to(ROOT / crate / "src").with_suffix("").parts
        named = parts[:-1] if parts[-1] in ("mod", "lib", "main") else parts
        sources["::".join(named)] = file.read_text()
    assert in_order(circles(rust_graph(sources))) == in_order(CIRCLES.get(crate, []))
