"""Signatures at a device's end, in partitions and in separate journals: found, and wiped."""

import hashlib
import struct
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from spoolscope.replay.clearing import clear, wipe_left
from spoolscope.replay.devices import Device
from spoolscope.replay.disks import Asked, given
from spoolscope.replay.lifetime import Lifetime
from spoolscope.replay.signatures import LABEL, signatures, wipe
from spoolscope.traces.errors import SpoolscopeError

pytestmark = [pytest.mark.root, pytest.mark.steady]
KIB, MIB = 1 << 10, 1 << 20
SIZE = 64 * MIB
MD_MAGIC = struct.pack("<I", 0xA92B4EFC)
Loop = Callable[..., Path]


def run(*words: object) -> str:
    return subprocess.run(words, check=True, capture_output=True, text=True).stdout


def put(device: Path, at: int, data: bytes) -> None:
    with device.open("r+b") as disk:
        disk.seek(at)
        disk.write(data)


AT_THE_END: dict[str, Callable[[Path], None]] = {
    "the backup of GPT": lambda device: put(device, SIZE - 512, b"EFI PART\0\0\1\0"),
    "md 0.90": lambda device: put(device, SIZE - 64 * KIB, MD_MAGIC + bytes(4) + b"\x5a" * 4),
    "md 1.0": lambda device: put(device, SIZE - 8 * KIB, MD_MAGIC + b"\1\0\0\0"),
    "a label of zfs": lambda device: put(device, SIZE - 512 * KIB + 16 * KIB, b"pool"),
}


@pytest.mark.parametrize("what", AT_THE_END)
def test_what_is_at_the_end_only_is_not_overwritten(what: str, loop: Loop) -> None:
    device = loop(size_bytes=SIZE)
    AT_THE_END[what](device)
    held = hashlib.sha256(device.read_bytes()).digest()
    with pytest.raises(SpoolscopeError, match=f"device {device} holds .*did not write"):
        given(Asked(device, None, [device]))
    assert wipe_left([device]) == []
    assert hashlib.sha256(device.read_bytes()).digest() == held
    wipe(Device.at(device))
    assert signatures(Device.at(device)) == []
    assert not any(device.read_bytes()[-MIB:])


@pytest.mark.parametrize(("label", "wiped"), [(LABEL, True), ("mail", False)])
def test_a_journal_of_reiserfs_is_known_by_its_filesystem(
    label: str, wiped: bool, loop: Loop, require: Callable[..., None]
) -> None:
    """debugreiserfs reads such a journal; wipefs and blkid know neither it nor its filesystem."""
    try:
        subprocess.run(["mkfs.reiserfs", "-V"], capture_output=True, check=False)
    except FileNotFoundError:
        require("reiserfs", "no program mkfs.reiserfs")
    main, journal = loop("main", 96 * MIB), loop("journal")
    run("mkfs.reiserfs", "-q", "-f", "-l", label, "-j", journal, "-s", "8193", main)
    assert f"LABEL: {label}" in run("debugreiserfs", "-J", "-j", journal, main)
    put(journal, 0, b"a transaction")  # the kernel writes them from the begin on
    assert [one.type for one in signatures(Device.at(journal))] == ["data"]
    assert wipe_left([main, journal]) == ([main, journal] if wiped else [])
    for device in (main, journal):
        assert any(device.read_bytes()[:MIB]) != wiped


OPEN_FOR_A_WHILE = "import sys, time; file = open(sys.argv[1]); print(flush=True); time.sleep(0.6)"


def test_a_part_that_a_program_looks_at_is_gone_after_a_wipe(parted: tuple[Path, Path]) -> None:
    """The kernel keeps partitions while one is open, as udev has one after a write."""
    disk, partition = parted
    words = [sys.executable, "-c", OPEN_FOR_A_WHILE, partition]
    with subprocess.Popen(words, stdout=subprocess.PIPE) as looking:
        assert looking.stdout
        looking.stdout.readline()
        wipe(Device.at(disk))
        assert not partition.exists()
        assert looking.wait() == 0


def test_flushes_of_a_part_are_not_known(parted: tuple[Path, Path]) -> None:
    """The kernel counts flushes for the whole disk: for a partition it always has 0."""
    lives = []
    for device in parted:
        life = Lifetime()
        life.watch([device])
        run("dd", "if=/dev/zero", f"of={parted[1]}", "bs=64K", "count=1", "conv=fsync")
        life.count("replay")
        lives.append(life.device["replay"])
    assert lives[0]["flushes"] == 1
    assert lives[1]["flushes"] is None
    assert lives[0]["written_bytes"] == lives[1]["written_bytes"] == 64 * KIB


def test_what_is_cleared_may_be_named_by_a_link(tmp_path: Path) -> None:
    place, link = tmp_path / "place", tmp_path / "link"
    place.mkdir()
    link.symlink_to(tmp_path)
    (place / "image").write_bytes(bytes(MIB))
    run("losetup", "--find", place / "image")
    clear(link / "place")
    assert str(place) not in run("losetup", "--all")
    assert not place.exists()
