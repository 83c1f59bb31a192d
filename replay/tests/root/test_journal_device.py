"""A candidate whose journal or log has a device of its own, by the filesystem's own tools."""

import re
import subprocess
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

from spoolscope.replay.candidates import parse
from spoolscope.replay.run import replay

pytestmark = [pytest.mark.root, pytest.mark.steady]
JOURNAL_BYTES = 64 << 20
LOOP = 7
"""Major number of loop devices."""


def said(*words: object) -> str:
    return subprocess.run(words, capture_output=True, text=True, check=True).stdout


def log_of(mount: Path) -> tuple[str, int]:
    """Return the device of a log, and the log's size."""
    (line,) = re.findall(r"^log +=(\S+) +bsize=(\d+) +blocks=(\d+)", said("xfs_info", mount), re.M)
    return line[0], int(line[1]) * int(line[2])


def superblock(device: object) -> dict[str, str]:
    lines = said("dumpe2fs", "-h", device).splitlines()
    fields = (line.split(":", 1) for line in lines if ":" in line)
    return {name: value.strip() for name, value in fields}


def journal_of(mount: Path) -> tuple[str, int]:
    """Return the device of a journal that the superblock names, and the journal's size."""
    fields = superblock(said("findmnt", "-no", "SOURCE", mount).strip())
    assert "Journal inode" not in fields
    number = int(fields["Journal device"], 16)
    assert number >> 8 == LOOP
    journal = f"/dev/loop{number & 0xFF}"
    of_it = superblock(journal)
    assert of_it["Filesystem UUID"] == fields["Journal UUID"]
    return journal, int(of_it["Block count"]) * int(of_it["Block size"])


@pytest.mark.parametrize(
    ("fstype", "apart"), [("ext4", journal_of), ("ext3", journal_of), ("xfs", log_of)]
)
def test_it_is_made_used_and_copied(
    fstype: str,
    apart: Callable[[Path], tuple[str, int]],
    script,
    tmp_path: Path,
    require: Callable[..., None],
) -> None:
    require(fstype)
    chosen = replace(parse(fstype), journal=JOURNAL_BYTES)
    script.call(10, 1, "mkdir", "box", mode=0o700)
    seen = []

    def look(mount: Path, command: list[str], _output: Path, _show: object) -> int:
        device, size = apart(mount)
        before = written(device)
        status = subprocess.run(command, check=False).returncode
        said("sync", "-f", mount)
        backing = Path("/sys/block", Path(device).name, "loop/backing_file").read_text()
        seen.append((size, written(device) > before, Path(backing).name.strip()))
        return status

    rows = replay(script.write(tmp_path / "trace"), [chosen], tmp_path / "out", rounds=2,
                  pace="afap", recorder=look)  # fmt: skip
    assert seen == 2 * [(JOURNAL_BYTES, True, f"{fstype}.journal.img")]
    assert [row["fixture"] for row in rows] == ["built", "copied"]
    assert {row["life"]["check"]["clean"] for row in rows} == {True}
    assert str(tmp_path) not in said("losetup", "--all")


def written(device: str) -> int:
    """Return the sectors written to a device."""
    return int(Path("/sys/block", Path(device).name, "stat").read_text().split()[6])
