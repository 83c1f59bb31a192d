"""The recipes of CONTRIBUTING.md work: files that `./new` writes pass the checks and run."""

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

pytestmark = pytest.mark.slow

TOP = Path(__file__).resolve().parents[2]
# Files that a skeleton changes or that check it; the samples are not copied.
COPIED = (
    "new", "pyproject.toml", "traces/filesystems.toml", "traces/calls.txt", "traces/src/calls.rs",
)  # fmt: skip


@pytest.fixture
def tree(tmp_path: Path) -> Path:
    """Copy the files that skeletons may change."""
    for name in COPIED:
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        shutil.copy2(TOP / name, tmp_path / name)
    for component in ("traces", "tracers", "replay", "analysis"):
        shutil.copytree(TOP / component / "python", tmp_path / component / "python")
        for kind in ("unit", "root"):
            (tmp_path / component / "tests" / kind).mkdir(parents=True)
    return tmp_path


def new(tree: Path, *words: str) -> list[Path]:
    done = subprocess.run([sys.executable, tree / "new", *words], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    return [tree / line for line in done.stdout.splitlines()]


def python(tree: Path, code: str) -> str:
    """Run code with the packages of the copy."""
    path = ":".join(
        str(tree / name / "python") for name in ("traces", "tracers", "replay", "analysis")
    )
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True,
        env={**os.environ, "PYTHONPATH": path},
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    return done.stdout


def gates(files: list[Path]) -> None:
    """Check files with the linter and the formatter."""
    ruff = Path(sys.executable).with_name("ruff")
    for words in (["check"], ["format", "--check"]):
        done = subprocess.run([ruff, *words, *files], capture_output=True, text=True)
        assert done.returncode == 0, done.stdout


def test_a_call(tree: Path) -> None:
    new(tree, "call", "probeat")
    shown = python(
        tree,
        "from spoolscope.traces.calls import CALLS as c;"
        "from spoolscope.replay.whatif import HARMLESS;"
        "dense = [one.id for one in c.values()] == [*range(len(c))];"
        "print(dense, c['probeat'].args, 'probeat' in HARMLESS)",
    )
    assert shown == "True ('dirfd', 'path', 'mode', 'flags') True\n"
    rust = (tree / "traces/src/calls.rs").read_text()
    everywhere = rust[rust.index("everywhere {\n") : rust.index("    x86 {\n")]
    assert everywhere.endswith("        probeat SYS_probeat\n    }\n")
    again = subprocess.run([tree / "new", "call", "probeat"], capture_output=True, text=True)
    assert (again.returncode, again.stderr) == (1, "new: traces/calls.txt has probeat already\n")


def test_a_filesystem(tree: Path) -> None:
    new(tree, "filesystem", "probefs")
    shown = python(
        tree,
        "from spoolscope.traces.filesystems import FILESYSTEMS as f;"
        "print(f['probefs'].mkfs, f['probefs'].explained)",
    )
    assert shown == "('mkfs.probefs',) False\n"


def test_a_section(tree: Path) -> None:
    gates(new(tree, "section", "probe"))
    shown = python(
        tree,
        "from spoolscope.report.sections import SECTIONS;"
        "print([one.anchor for one in SECTIONS][-5:])",
    )
    assert "'probe', 'fidelity'" in shown


def test_a_verb(tree: Path) -> None:
    gates(new(tree, "verb", "probe"))
    sample = TOP / "traces/samples/postfix-dovecot"
    shown = python(
        tree,
        "from spoolscope.cli.probe import command;"
        f"command([{str(sample)!r}], standalone_mode=False)",
    )
    assert re.fullmatch(r"\d+(,\d+)* calls\n", shown)


def test_an_exporter(tree: Path) -> None:
    gates(new(tree, "exporter", "probe"))
    shown = python(
        tree, "from spoolscope.export.formats import EXPORTERS; print(list(EXPORTERS)[-1])"
    )
    assert shown == "probe\n"


@pytest.mark.parametrize("name", ["replay/probe", "replay/root/probe", "traces/probe"])
def test_a_test(tree: Path, name: str) -> None:
    (file,) = new(tree, "test", name)
    gates([file])
    assert "raise AssertionError" in file.read_text()


def test_nothing_is_replaced(tree: Path) -> None:
    new(tree, "verb", "probe")
    done = subprocess.run([tree / "new", "verb", "probe"], capture_output=True, text=True)
    assert (done.returncode, done.stderr.split("/")[-1]) == (1, "probe.py is there already\n")


def test_what_the_recipes_name_is_there() -> None:
    named = set(re.findall(r"`([\w./-]+/[\w./-]*)`", (TOP / "CONTRIBUTING.md").read_text()))
    made = ("/", "./", "dist/")
    paths = {name for name in named if "NAME" not in name and not name.startswith(made)}
    bases = (TOP, TOP / "analysis/python/spoolscope", TOP / "build")
    assert len(paths) > 20
    assert [
        name for name in sorted(paths) if not any((base / name).exists() for base in bases)
    ] == []
