"""The permitted imports between components, and limits that keep files readable."""

import ast
import re
import tomllib
from importlib.metadata import version
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
COMPONENTS = ("traces", "tracers", "replay", "analysis")

# Package below spoolscope -> packages that it may import. There are no cycles.
ARROWS = {
    "traces": {"traces"},
    "tracers": {"traces", "tracers"},
    "replay": {"traces", "replay"},
    "analysis": {"traces", "analysis"},
    "report": {"traces", "analysis", "report"},
    "export": {"traces", "analysis", "export"},
    # The lab records, replays and explains, as the command line does; it prints nothing.
    "lab": {"traces", "tracers", "replay", "analysis", "lab"},
    "cli": {"traces", "tracers", "replay", "analysis", "report", "export", "lab", "cli"},
}
CRATE_ARROWS = {
    "traces": set(),
    "tracers": {"spoolscope-traces"},
    "replay": {"spoolscope-traces"},
    "analysis": set(),
}
GENERIC = {"utils", "util", "helpers", "helper", "common", "misc", "manager"}
MAX_LINES = {".py": 400, ".rs": 500, ".c": 400, ".h": 500, ".sh": 120}
TEST_MAX_LINES = 600


def python_files() -> list[Path]:
    return sorted(f for c in COMPONENTS for f in (ROOT / c / "python").rglob("*.py"))


def source_files() -> list[Path]:
    files = (f for c in COMPONENTS for f in (ROOT / c).rglob("*") if f.suffix in MAX_LINES)
    return sorted(f for f in files if "target" not in f.parts)  # build output of fuzzing


def package_of(file: Path) -> str:
    parts = file.relative_to(ROOT).parts  # the checkout itself may be called spoolscope
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


def test_no_file_is_named_after_nothing() -> None:
    assert [f for f in source_files() if f.stem in GENERIC] == []


def test_files_stay_small() -> None:
    long = {}
    for file in source_files():
        in_tests = "tests" in file.parts
        limit = TEST_MAX_LINES if in_tests else MAX_LINES[file.suffix]
        lines = len(file.read_text().splitlines())
        if lines > limit:
            long[str(file.relative_to(ROOT))] = lines
    assert long == {}
