"""Replays on devices (here loop devices): each round makes them anew, the end leaves them empty."""

import json
import os
import subprocess
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from spoolscope.replay.candidates import parse
from spoolscope.replay.clearing import wipe_left
from spoolscope.replay.disks import Asked
from spoolscope.replay.run import replay
from spoolscope.replay.signatures import LABEL
from spoolscope.traces.errors import SpoolscopeError
from spoolscope.traces.filesystems import FILESYSTEMS

pytestmark = [pytest.mark.root, pytest.mark.steady]
MIB = 1 << 20
JOURNAL_BYTES = 64 * MIB


@pytest.fixture
def disks(tmp_path: Path, require: Callable[..., None]) -> Iterator[tuple[Path, Path]]:
    """Return a device for filesystems, and one for journals."""
    require("ext4")
    require("xfs")
    made = []
    for name, size in (("disk", 1100 * MIB), ("journal", 100 * MIB)):
        with (tmp_path / name).open("wb") as file:
            file.truncate(size)
        made.append(Path(run("losetup", "--find", "--show", tmp_path / name).strip()))
    yield made[0], made[1]
    run("losetup", "--detach", *made)


@pytest.fixture
def trace(script, tmp_path: Path) -> Path:
    script.call(10, 1, "mkdir", "box", mode=0o700)
    return script.write(tmp_path / "trace")


def run(*words: object) -> str:
    return subprocess.run(words, check=True, capture_output=True, text=True).stdout


def lsblk(device: Path) -> dict[str, object]:
    columns = "SIZE,ROTA,SCHED,LOG-SEC,PHY-SEC,DISC-MAX,LABEL,FSTYPE,MODEL"
    (found,) = json.loads(run("lsblk", "-Jbpo", columns, device))["blockdevices"]
    return found


def looking(seen: list[str]) -> Callable[..., int]:
    """Return a recorder that runs a replay, and notes the label that blkid finds meanwhile."""

    def look(mount: Path, command: list[str], _output: Path, _show: object) -> int:
        source = run("findmnt", "-no", "SOURCE", mount).strip()
        seen.append(run("blkid", "-p", "-o", "value", "-s", "LABEL", source).strip())
        return subprocess.run(command, check=False).returncode

    return look


def test_rounds_on_a_disk_with_a_journal_device(
    disks: tuple[Path, Path], trace: Path, tmp_path: Path
) -> None:
    apart = [replace(parse(name), journal=JOURNAL_BYTES) for name in ("ext4", "xfs")]
    asked, seen = Asked(disks[0], disks[1], disks), []
    rows = replay(trace, apart, tmp_path / "out", rounds=2, pace="afap",
                  recorder=looking(seen), devices=asked)  # fmt: skip
    assert len(rows) == 4
    assert seen == 4 * [LABEL]
    for row in rows:
        assert row["executed"] == 1
        assert row["divergent"] == row["final_state"]["mismatched"] == 0
        assert row["life"]["check"]["clean"]
        assert [told["name"] for told in row["devices"]] == [device.name for device in disks]
        for told, device in zip(row["devices"], disks, strict=True):
            found = lsblk(device)
            assert (told["size_bytes"], told["rotational"]) == (found["size"], found["rota"])
            assert told["logical_block_bytes"] == found["log-sec"]
            assert told["physical_block_bytes"] == found["phy-sec"]
            assert (told["scheduler"], told["model"]) == (found["sched"], found["model"])
            assert told["discards"] == told["trimmed"] == bool(found["disc-max"])
            assert told["settled_ns"] > 0
    for device in disks:
        probed = subprocess.run(["blkid", "-p", device], capture_output=True, check=False)
        assert (probed.returncode, probed.stdout) == (2, b"")
        assert not any(device.read_bytes()[:MIB])


def test_a_copy_of_the_mount_may_be_dropped_late(
    disks: tuple[Path, Path], trace: Path, tmp_path: Path
) -> None:
    """A process with a mount namespace of its own keeps the disk in use for a second."""
    holders: list[subprocess.Popen[str]] = []
    place = tmp_path / "copy"
    place.mkdir()

    def hold(mount: Path, command: list[str], _output: Path, _show: object) -> int:
        mounted = f"grep -q {mount} /proc/{os.getpid()}/mounts"
        script = f"mount --bind {mount} {place}; echo; while {mounted}; do sleep 0.1; done; sleep 1"
        words = ["unshare", "--mount", "--propagation", "private", "sh", "-c", script]
        holders.append(subprocess.Popen(words, stdout=subprocess.PIPE, text=True))
        assert holders[0].stdout
        with holders[0].stdout as said:
            said.readline()
        return subprocess.run(command, check=False).returncode

    (row,) = replay(trace, ["ext4"], tmp_path / "out", pace="afap", recorder=hold,
                    devices=Asked(disks[0], None, disks[:1]))  # fmt: skip
    assert holders[0].wait() == 0
    assert row["executed"] == 1
    assert subprocess.run(["blkid", "-p", disks[0]], check=False).returncode == 2


def test_an_overlay_is_known_by_what_is_below(
    disks: tuple[Path, Path], trace: Path, tmp_path: Path, require: Callable[..., None]
) -> None:
    if "overlay" not in Path("/proc/filesystems").read_text():
        require("overlay", "this kernel has no overlay")
    seen: list[str] = []

    def look(mount: Path, command: list[str], _output: Path, _show: object) -> int:
        seen.extend(run("findmnt", "-no", "FSTYPE", mount).split())
        seen.append(run("blkid", "-p", "-o", "value", "-s", "LABEL", disks[0]).strip())
        return subprocess.run(command, check=False).returncode

    (row,) = replay(trace, ["overlay-ext4"], tmp_path / "out", pace="afap", recorder=look,
                    devices=Asked(disks[0], None, disks[:1]))  # fmt: skip
    assert row["final_state"]["mismatched"] == 0
    assert seen[-2:] == ["overlay", LABEL]
    (again,) = replay(trace, ["overlay-ext4"], tmp_path / "out", pace="afap", recorder=look,
                      devices=Asked(disks[0], None, disks[:1]), resume=True)  # fmt: skip
    assert again["digests"] == row["digests"], "a finished run is not made again"
    assert run("wipefs", disks[0]) == ""


def test_what_cannot_be_marked_is_refused(
    disks: tuple[Path, Path], trace: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    plain = replace(FILESYSTEMS["ext4"], label=())
    monkeypatch.setitem(FILESYSTEMS, "ext4", plain)
    with pytest.raises(SpoolscopeError, match="without a label"):
        replay(trace, ["ext4"], tmp_path / "out", devices=Asked(disks[0], None, disks[:1]))


def test_a_link_that_changes_between_rounds(
    disks: tuple[Path, Path], trace: Path, tmp_path: Path
) -> None:
    link, other = tmp_path / "by-name", disks[1]
    link.symlink_to(disks[0])

    def change(_mount: Path, command: list[str], _output: Path, _show: object) -> int:
        link.unlink()
        link.symlink_to(other)
        return subprocess.run(command, check=False).returncode

    with pytest.raises(SpoolscopeError, match=f"{link} has changed meanwhile"):
        replay(trace, ["ext4"], tmp_path / "out", rounds=2, pace="afap", recorder=change,
               devices=Asked(link, None, [link]))  # fmt: skip
    assert not any(other.read_bytes())
    assert run("wipefs", disks[0]) == ""
    assert len(json.loads((tmp_path / "out" / "replay.json").read_text())["runs"]) == 1


def test_a_disk_that_is_too_small_is_not_touched(
    disks: tuple[Path, Path], trace: Path, tmp_path: Path
) -> None:
    small = disks[1]
    with pytest.raises(SpoolscopeError, match="has 100 MiB, but this replay needs 1024 MiB"):
        replay(trace, ["ext4"], tmp_path / "out", devices=Asked(small, None, [small]))
    assert not any(small.read_bytes())


def test_candidates_and_devices_belong_together(
    disks: tuple[Path, Path], trace: Path, tmp_path: Path
) -> None:
    empty = tmp_path / "empty"
    empty.mkdir()
    with pytest.raises(SpoolscopeError, match="directories lie where they are"):
        replay(trace, [f"dir:{empty}"], tmp_path / "out", devices=Asked(disks[0], None, disks[:1]))
    with pytest.raises(SpoolscopeError, match=f"plays another disk than {disks[0]}"):
        replay(trace, ["ext4"], tmp_path / "out", device_model="nvme",
               devices=Asked(disks[0], None, disks[:1]))  # fmt: skip
    with pytest.raises(SpoolscopeError, match="none has a separate journal"):
        replay(trace, ["ext4"], tmp_path / "out", devices=Asked(*disks, disks))
    large = [replace(parse("ext4"), journal=101 * MIB)]
    with pytest.raises(SpoolscopeError, match="no device is given for it"):
        replay(trace, large, tmp_path / "out", devices=Asked(disks[0], None, disks[:1]))
    with pytest.raises(SpoolscopeError, match="its journal needs 101 MiB"):
        replay(trace, large, tmp_path / "out", devices=Asked(*disks, disks))


def test_what_a_replay_has_is_not_wiped_by_another_command(
    disks: tuple[Path, Path], trace: Path, tmp_path: Path
) -> None:
    """``clean`` may have the disk in a note of a replay that was killed before this one."""
    disk, refusals = disks[0], []

    def clean(_mount: Path, command: list[str], _output: Path, _show: object) -> int:
        with pytest.raises(SpoolscopeError) as refused:
            wipe_left([disk])
        refusals.append(refused.value.message)
        return subprocess.run(command, check=False).returncode

    asked = Asked(disk, formatted=[disk])
    rows = replay(trace, [parse("ext4")], tmp_path / "out", recorder=clean, devices=asked)
    assert refusals == [f"another command has locked device {disk}"]
    assert rows[0]["final_state"]["mismatched"] == 0
    assert wipe_left([disk]) == []  # it is empty by now
