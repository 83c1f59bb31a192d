"""Leftovers of a replay on disks that is killed at any time are named, and clean removes them."""

import json
import os
import random
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

pytestmark = [pytest.mark.root, pytest.mark.steady]
SAMPLE = Path(__file__).resolve().parents[3] / "traces" / "samples" / "postfix-dovecot"
MAIN = [sys.executable, "-m", "spoolscope.cli.main"]
LONGEST_S = 6.0
"""Approximate length of a replay of one round."""


@pytest.fixture
def disk(tmp_path: Path, require) -> Iterator[Path]:
    require("xfs")
    with (tmp_path / "disk").open("wb") as file:
        file.truncate(1100 << 20)
    device = run("losetup", "--find", "--show", str(tmp_path / "disk")).strip()
    yield Path(device)
    run("losetup", "--detach", device)


def run(*words: str) -> str:
    return subprocess.run(words, check=True, capture_output=True, text=True).stdout


def spoolscope(*words: object) -> subprocess.CompletedProcess[str]:
    return subprocess.run([*MAIN, *map(str, words)], capture_output=True, text=True, check=False)


def is_used(disk: Path) -> bool:
    try:
        os.close(os.open(disk, os.O_RDONLY | os.O_EXCL))
    except OSError:
        return True
    return False


def mounting_processes(disk: Path) -> list[str]:
    """Return the processes whose namespaces have a disk mounted."""
    found = []
    for file in Path("/proc").glob("[0-9]*/mounts"):
        try:
            if any(line.startswith(f"{disk} ") for line in file.read_text().splitlines()):
                found.append(file.parts[2])
        except OSError:
            continue
    return found


def test_a_kill_at_a_random_moment(disk: Path, tmp_path: Path) -> None:
    seed = int(os.environ.get("SPOOLSCOPE_SEED", time.time_ns() % 1_000_000))
    delay_s = random.Random(seed).uniform(0.3, LONGEST_S)
    print(f"SPOOLSCOPE_SEED={seed}: killed after {delay_s:.2f} s")
    out = tmp_path / "out"
    words = ["replay", SAMPLE, "--slice", "..2s", "--on", "xfs", "--rounds", "9", "-o", out,
             "--device", disk, "--format-device", disk]  # fmt: skip
    with subprocess.Popen([*MAIN, *map(str, words)], stderr=subprocess.PIPE) as process:
        time.sleep(delay_s)
        process.kill()
    assert process.returncode == -signal.SIGKILL
    deadline = time.monotonic() + 30
    while is_used(disk) and time.monotonic() < deadline:
        time.sleep(0.05)  # until the last of its processes has ended
    time.sleep(0.5)  # for mkfs, which is not in that list
    holds = json.loads(run("wipefs", "-J", str(disk)) or '{"signatures": []}')["signatures"]
    assert {one["label"] for one in holds} <= {"spsc-replay"}
    named = spoolscope("info", SAMPLE).stderr
    if left := list(out.glob(".spoolscope-*")):
        assert f"left behind: {left[0]}, the plan and images, what is on {disk}" in named
    cleaned = spoolscope("clean")
    assert cleaned.returncode == 0, cleaned.stderr
    assert (f"Wiped {disk}" in cleaned.stderr) == bool(holds)
    assert run("wipefs", str(disk)) == ""
    assert list(out.glob(".spoolscope-*")) == []
    assert mounting_processes(disk) == []
    assert "left behind" not in spoolscope("info", SAMPLE).stderr
    again = spoolscope(*words[:-4], "--force", *words[-4:], "--no-record", "--rounds", "1")
    assert again.returncode == 0, again.stderr
    assert run("wipefs", str(disk)) == ""


def begun_and_killed(disk: Path, out: Path) -> list[object]:
    """Begin a replay on a disk, kill it when the disk is mounted; return its words."""
    words = ["replay", SAMPLE, "--slice", "..2s", "--on", "xfs", "--no-record", "-o", out,
             "--device", disk, "--format-device", disk]  # fmt: skip
    with subprocess.Popen([*MAIN, *map(str, words)], stderr=subprocess.PIPE, text=True) as process:
        assert process.stderr
        assert any("building the fixture" in line for line in process.stderr)
        process.kill()
    while is_used(disk):
        time.sleep(0.05)
    return words


def test_what_was_put_there_since_stays(disk: Path, tmp_path: Path) -> None:
    out = tmp_path / "out"
    begun_and_killed(disk, out)
    run("wipefs", "--all", str(disk))
    run("mkfs.ext4", "-q", "-F", "-L", "mail", str(disk))
    assert spoolscope("clean").returncode == 0
    assert run("blkid", "-p", "-o", "value", "-s", "LABEL", str(disk)) == "mail\n"
    assert list(out.glob(".spoolscope-*")) == []


def test_a_resume_that_is_refused_forgets_no_disk(disk: Path, tmp_path: Path) -> None:
    words = begun_and_killed(disk, tmp_path / "out")
    assert "LABEL" in run("blkid", "-p", str(disk))
    refused = spoolscope(*words, "--resume", "--pace", "afap")
    assert refused.returncode == 2
    # Removing the note of a disk wipes the disk.
    assert run("wipefs", str(disk)) == ""
    assert "left behind" not in spoolscope("info", SAMPLE).stderr


def test_a_disk_that_could_not_be_wiped_is_known_to_clean(
    disk: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Let wipefs fail after the run, when it first finds the signature of mkfs."""
    (tmp_path / "bin").mkdir()
    planted = tmp_path / "bin" / "wipefs"
    finds = f'[ "$1" = --all ] && [ -e {tmp_path}/made ] && exit 1; exec /sbin/wipefs "$@"'
    planted.write_text(f"#!/bin/sh\n{finds}\n")
    mkfs = tmp_path / "bin" / "mkfs.xfs"
    mkfs.write_text(f'#!/bin/sh\ntouch {tmp_path}/made; exec /sbin/mkfs.xfs "$@"\n')
    for program in (planted, mkfs):
        program.chmod(0o755)
    out, path = tmp_path / "out", os.environ["PATH"]
    monkeypatch.setenv("PATH", f"{tmp_path / 'bin'}:{path}")
    failed = spoolscope("replay", SAMPLE, "--slice", "..2s", "--on", "xfs", "--no-record", "--pace",
                        "afap", "--no-life", "-q", "-o", out, "--device", disk,
                        "--format-device", disk)  # fmt: skip
    assert failed.returncode == 1
    assert "wipefs --all" in failed.stderr
    monkeypatch.setenv("PATH", path)
    run("mkfs.xfs", "-q", "-f", "-L", "spsc-replay", str(disk))  # as if nothing had been wiped
    (left,) = out.glob(".spoolscope-*")
    assert (
        f"left behind: {left}, the plan and images, what is on {disk}"
        in spoolscope("info", SAMPLE).stderr
    )
    cleaned = spoolscope("clean")
    assert f"Wiped {disk}" in cleaned.stderr
    assert run("wipefs", str(disk)) == ""
    assert not left.exists()
