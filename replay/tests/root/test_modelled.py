"""Replays on a device model: as slow as the model, as faithful as without it, and named so."""

import json
import subprocess
import sys
from pathlib import Path

import pytest

pytestmark = [pytest.mark.root, pytest.mark.times]
SPOOLSCOPE = Path(sys.executable).with_name("spoolscope")
SAMPLE = Path(__file__).parents[3] / "traces/samples/postfix-dovecot"


def replayed(out: Path, *more: str) -> dict:
    words = [SPOOLSCOPE, "replay", SAMPLE, "--slice", "5s..5.3s", "--on", "ext4", "--pace", "afap"]
    words += ["--no-record", "--no-life", "--repeats", "0", "--quiet", "-o", out, *more]
    subprocess.run(words, check=True, capture_output=True)
    (run,) = json.loads((out / "replay.json").read_text())["runs"]
    return run


def test_a_replay_on_a_modelled_disk_is_slow_true_and_named(tmp_path, require):
    require("ext4")
    if not Path("/dev/fuse").exists():
        require("fuse", reason="this kernel has no FUSE (/dev/fuse)")
    plain = replayed(tmp_path / "plain")
    slow = replayed(tmp_path / "slow", "--device-model", "hdd10k")
    for run in (plain, slow):
        assert (run["divergent"], run["final_state"]["mismatched"]) == (0, 0)
    assert slow["candidate"] == "ext4@hdd10k"
    assert (plain["device_model"], slow["device_model"]) == ("", "hdd10k")
    # Each flush on ext4 writes a journal block at another place than the one before. So there are
    # as many writes as the disk counts flushes, and most of them wait for half a turn at least.
    flushes = slow["life"]["device"]["replay"]["flushes"]
    assert slow["makespan_ns"] > plain["makespan_ns"] + flushes * 1e6
    told = subprocess.run(
        [SPOOLSCOPE, "compare", tmp_path / "slow"], capture_output=True, text=True
    )
    assert "the device model hdd10k, not of a disk" in " ".join(told.stdout.split())


def test_a_directory_plays_no_model(tmp_path):
    words = [SPOOLSCOPE, "replay", SAMPLE, "--on", f"dir:{tmp_path}", "--device-model", "nvme"]
    done = subprocess.run(words, capture_output=True, text=True)
    assert done.returncode == 2
    assert "cannot play nvme" in done.stderr
