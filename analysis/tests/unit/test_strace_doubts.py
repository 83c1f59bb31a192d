"""Warnings of the import of strace's output."""

import subprocess
import sys
from pathlib import Path

LINES = [
    '7 1700000010.000100 open("/s/a", O_RDWR|O_CREAT|O_EXCL, 0600) = 3 <0.000010>',
    '8 1700000000.000100 open("/s/a", O_RDONLY) = 3 <0.000010>',
    '8 1700000000.000200 unlink("/s/a") = 0 <0.000010>',
]


def warnings(log: Path) -> str:
    verb = [sys.executable, "-m", "spoolscope.cli.main", "import", "strace", log, "--root", "/s"]
    output = log.with_suffix(".trace")
    done = subprocess.run(
        [*verb, "--keep-names", "-o", output], capture_output=True, text=True, check=True
    )
    return done.stderr


def test_a_clock_that_was_set_back_is_said(tmp_path: Path) -> None:
    (tmp_path / "back").write_text("".join(f"{line}\n" for line in LINES))
    assert "the clock was set back" in warnings(tmp_path / "back")
    (tmp_path / "forth").write_text("".join(f"{line}\n" for line in LINES[1:]))
    assert "set back" not in warnings(tmp_path / "forth")
