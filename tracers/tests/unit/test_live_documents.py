"""The live tools are documented like those of bpftrace and BCC, and equal where they overlap."""

import re
import shutil
import subprocess
from pathlib import Path

import pytest

LIVE = Path(__file__).resolve().parents[2] / "live"
SCRIPTS = sorted(LIVE.glob("*.bt"))
CONSOLE = [LIVE / "kjournaltop.py", LIVE / "spooltop.py"]
TOOLS = SCRIPTS + CONSOLE


def page_of(tool: Path) -> Path:
    """Return the man page; as usual, its name has .bt for scripts, and no suffix for BCC tools."""
    return LIVE / "man" / f"{tool.name.removesuffix('.py')}.8"


def blocks(script: str) -> list[str]:
    """Return the probes of a script with their attach points, without comments."""
    text = re.sub(r"/\*.*?\*/", "", (LIVE / script).read_text(), flags=re.DOTALL)
    return [block.strip() for block in re.findall(r"^(?:tracepoint:.*?)^}", text, re.M | re.S)]


@pytest.mark.parametrize("tool", TOOLS, ids=lambda tool: tool.name)
def test_every_tool_has_its_page_and_its_example(tool: Path):
    page = page_of(tool).read_text()
    for section in ("NAME", "SYNOPSIS", "DESCRIPTION", "EXAMPLES", "FIELDS", "OVERHEAD", "CAVEATS"):
        assert f"\n.SH {section}\n" in page
    example = (LIVE / f"{tool.stem}_example.txt").read_text()
    assert re.search(rf"(# (\./)?|&& ){re.escape(tool.name)}", example)
    heading = tool.read_text()[:1500]
    assert "USAGE: " in heading


@pytest.mark.parametrize("tool", TOOLS, ids=lambda tool: tool.name)
def test_every_page_renders(tool: Path, require):
    if not shutil.which("mandoc"):
        require("mandoc", reason="no program mandoc on PATH")
    page = page_of(tool)
    lint = subprocess.run(
        ["mandoc", "-T", "lint", "-W", "warning", page], capture_output=True, text=True, check=False
    )
    assert lint.stdout + lint.stderr == ""


def test_calls_are_entered_alike_in_both_scripts_of_calls():
    entered = {
        script: [block for block in blocks(script) if "syscalls:sys_enter" in block]
        for script in ("spoolsnoop.bt", "spoollat.bt")
    }
    assert len(entered["spoolsnoop.bt"]) > 15
    assert entered["spoolsnoop.bt"] == entered["spoollat.bt"]


@pytest.mark.parametrize("tool", CONSOLE, ids=lambda tool: tool.name)
def test_every_option_is_in_page_and_example(tool: Path):
    usage = subprocess.run([tool, "-h"], capture_output=True, text=True, check=True).stdout
    # Newer versions of Python format the options differently.
    example = (LIVE / f"{tool.stem}_example.txt").read_text()
    assert usage.partition("examples:")[2].strip() in example
    page = page_of(tool).read_text()
    for option in re.findall(r"^  (-\w)\b", usage, re.M):
        assert f"\n\\{option}" in page
