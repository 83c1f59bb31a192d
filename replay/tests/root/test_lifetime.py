"""The life of a filesystem in run.json, compared with other sources and planted faults."""

import os
import re
import subprocess
from dataclasses import replace
from pathlib import Path

import pytest

from spoolscope.replay.run import replay
from spoolscope.traces.filesystems import FILESYSTEMS

pytestmark = pytest.mark.root
REG, DIR = 0o100640, 0o040750
MIB = 1 << 20
MAIL, MAILS = 64 << 10, 40


@pytest.fixture
def trace(script, tmp_path) -> Path:
    """Return a trace that adds 40 synced mails of 64 KiB to a box of 40 files of 1 MiB."""
    script.entry("box", ino=2, mode=DIR)
    for number in range(40):
        script.entry(f"box/m{number}", ino=100 + number, mode=REG, size=MIB)
    for number in range(MAILS):
        at, name, ino = 10 * number + 1, f"box/n{number}", 200 + number
        script.call(10, at, "openat", name, ret=3, flags=0o301, mode=0o600, ino=ino,
                    obj_mode=REG, obj_size=0)  # fmt: skip
        script.call(10, at + 1, "write", name, ret=MAIL, base=0, fd=3, size=MAIL, offset=0, ino=ino,
                    obj_mode=REG, obj_size=MAIL)  # fmt: skip
        script.call(10, at + 2, "fsync", name, base=0, fd=3, ino=ino, obj_mode=REG, obj_size=MAIL)
        script.call(10, at + 3, "close", name, base=0, fd=3, ino=ino)
    return script.write(tmp_path / "trace")


def sectors_written(mount: Path) -> int:
    """Return the sectors written, from /proc/diskstats, the source of iostat."""
    device = mount.stat().st_dev
    number = f"{os.major(device)} {os.minor(device)}".split()
    lines = Path("/proc/diskstats").read_text().splitlines()
    return next(int(line.split()[9]) for line in lines if line.split()[:2] == number)


def test_what_is_written_is_what_diskstats_and_du_say(trace, tmp_path, require):
    require("ext4")
    seen: dict[str, int] = {}

    def look(mount: Path, command: list[str], _output: Path, _show: object) -> int:
        words = ["du", "-s", "--block-size=1", "--apparent-size", *mount.glob("box/*")]
        told = subprocess.run(words, capture_output=True, text=True, check=True).stdout
        seen["fixture"] = sum(int(line.split()[0]) for line in told.splitlines())
        before = sectors_written(mount)
        status = subprocess.run(command, check=False).returncode
        subprocess.run(["sync", "-f", mount], check=True)
        seen["written"] = 512 * (sectors_written(mount) - before)
        return status

    (row,) = replay(trace, ["ext4"], tmp_path / "out", pace="afap", recorder=look)
    life = row["life"]
    assert life["mail_bytes"] == {"fill": seen["fixture"], "replay": MAILS * MAIL}
    assert life["device"]["fill"]["written_bytes"] >= seen["fixture"]
    # The unmount also writes the superblock, and blocks that only the journal had.
    more = life["device"]["replay"]["written_bytes"] - seen["written"]
    assert 0 <= more < 0.2 * seen["written"]
    assert seen["written"] >= MAILS * MAIL
    assert life["device"]["replay"]["flushes"] >= MAILS
    assert life["dirty"]["peak_bytes"] >= life["dirty"]["before_bytes"]


@pytest.mark.parametrize("fstype", ["ext4", "xfs", "btrfs"])
def test_every_step_is_measured_and_nothing_stays(fstype, trace, tmp_path, require):
    require(fstype)
    rows = replay(trace, [fstype], tmp_path / "out", rounds=2, pace="afap")
    steps = {"mount_filled", "umount", "check", "remove"}
    assert set(rows[0]["life"]["steps"]) == steps | {"mkfs", "mount", "fill"}
    # A copied image was made and filled in the first round.
    assert set(rows[1]["life"]["steps"]) == steps | {"mount_copied"}
    size = rows[0]["life"]["capacity"]
    lost = size["after_mkfs"]["available_bytes"] - size["after_removal"]["available_bytes"]
    assert abs(lost) < 4 * MIB  # the 42 MiB of files are gone
    for row in rows:
        assert row["life"]["check"]["clean"]
        for took in row["life"]["steps"].values():
            assert took["cpu_ns"] > 0
            assert 0 < took["ns"] < row["wall_ns"]


def planted(place: Path, monkeypatch: pytest.MonkeyPatch, name: str, script: str) -> None:
    """Put a program of that name before the system's."""
    (place / "bin").mkdir()
    (place / "bin" / name).write_text(f"#!/bin/bash\n{script}\n")
    (place / "bin" / name).chmod(0o755)
    monkeypatch.setenv("PATH", f"{place / 'bin'}:{os.environ['PATH']}:/usr/sbin:/sbin")


def test_a_slow_mkfs_shows_in_seconds_and_a_busy_one_in_cpu(trace, tmp_path, require, monkeypatch):
    require("ext4")
    # It is also asked for its version. "times" prints the CPU seconds of the shell, and of all
    # programs that it has waited for.
    script = f"""
        real() {{ PATH=${{PATH#*:}} mkfs.ext4 "$@"; }}
        [ "$1" != -V ] || {{ real -V; exit; }}
        sleep 0.4
        {{ bash -c 'ulimit -t 1; while :; do :; done'; }} 2>/dev/null
        real "$@" && times >{tmp_path}/took
    """
    planted(tmp_path, monkeypatch, "mkfs.ext4", script)
    (row,) = replay(trace, ["ext4"], tmp_path / "out", pace="afap")
    mkfs = row["life"]["steps"]["mkfs"]
    took = re.findall(r"(\d+)m(\d+\.\d+)s", (tmp_path / "took").read_text())
    assert len(took) == 4
    busy_ns = sum(60e9 * int(minutes) + 1e9 * float(seconds) for minutes, seconds in took)
    assert busy_ns > 0.5e9
    assert mkfs["ns"] >= 0.4e9 + busy_ns
    assert busy_ns - 4e6 <= mkfs["cpu_ns"] < busy_ns + 0.1e9  # bash rounds each to ms


def test_a_damaged_filesystem_is_not_called_clean(trace, tmp_path, require, monkeypatch):
    require("ext4")
    planted(tmp_path, monkeypatch, "e2fsck",
            'PATH=${PATH#*:}; debugfs -w -R "clri <12>" "${!#}"; exec e2fsck "$@"')  # fmt: skip
    (row,) = replay(trace, ["ext4"], tmp_path / "out", pace="afap")
    found = row["life"]["check"]
    assert not found["clean"]
    assert found["status"] & 4  # e2fsck(8): errors left uncorrected
    assert found["said"]


def test_what_is_missing_is_said(trace, tmp_path, require, monkeypatch):
    require("ext4")
    ext4 = replace(FILESYSTEMS["ext4"], fsck=("no-such-fsck",))
    monkeypatch.setitem(FILESYSTEMS, "ext4", ext4)
    (row,) = replay(trace, ["ext4"], tmp_path / "out", pace="afap")
    assert row["life"]["left_out"] == {"check": "program no-such-fsck is missing"}
    assert "remove" in row["life"]["steps"]


def test_check_and_removal_can_be_left_out(trace, tmp_path, require):
    require("ext4")
    (row,) = replay(trace, ["ext4"], tmp_path / "out", pace="afap", whole_life=False)
    assert set(row["life"]["steps"]) == {"mkfs", "mount", "fill", "mount_filled", "umount"}
    assert row["life"]["left_out"] == {"check": "not asked for", "remove": "not asked for"}
    assert set(row["life"]["capacity"]) == {"after_mkfs"}
