"""Every candidate that can run here is made and mounted; the others have a known reason."""

import re
import subprocess
from pathlib import Path

import pytest

from spoolscope.replay import mount_points
from spoolscope.replay.candidates import check, parse
from spoolscope.replay.commands import carried_out, formatting
from spoolscope.replay.lifetime import Lifetime
from spoolscope.replay.presets import presets
from spoolscope.replay.run import replay
from spoolscope.replay.targets import prepared
from spoolscope.replay.where import why_not_here
from spoolscope.traces.errors import SpoolscopeError
from spoolscope.traces.filesystems import FILESYSTEMS

pytestmark = [pytest.mark.root, pytest.mark.steady]
SIZE = 1 << 30
HERE = ("ext4", "xfs", "btrfs")
# Options that the kernel takes and does not list, and the form in which it lists others.
UNLISTED = {"logbufs=8", "nodiratime", "data=ordered", "noatime", "strictatime", "vers=3"}
LISTED = {
    "logbsize=131072": "logbsize=128k",
    "nodatacow": "nodatacow",
    "space_cache=v1": "space_cache",
    "compress=zstd": "compress=zstd:3",
}


def said(*words: object) -> str:
    return subprocess.run(list(map(str, words)), capture_output=True, text=True, check=True).stdout


def mounted(place: Path) -> tuple[str, str, set[str]]:
    """Return type, device and options of the last mount at a place, by the kernel."""
    lines = Path("/proc/self/mountinfo").read_text().splitlines()
    fields = [line.split(" ") for line in lines if line.split(" ")[4] == str(place)][-1]
    fstype, source, options = fields[fields.index("-") + 1 :]
    return fstype, source, {*fields[5].split(","), *options.split(",")}


def words_after(candidate, option: str) -> str:
    words = list(candidate.mkfs)
    return words[words.index(option) + 1] if option in words else ""


def check_ext(candidate, device: str) -> None:
    """Check by dumpe2fs that the superblock has the options given to mke2fs."""
    told = said("dumpe2fs", "-h", device)
    (line,) = re.findall(r"^Filesystem features: +(.*)$", told, re.M)
    features = set(line.split())
    for feature in filter(None, words_after(candidate, "-O").split(",")):
        assert (feature.lstrip("^") in features) != feature.startswith("^"), feature
    if size := re.search(r"size=(\d+)", words_after(candidate, "-J")):
        ((has, unit),) = re.findall(r"^Total journal size: +(\d+)([kM])$", told, re.M)
        assert int(has) == int(size[1]) * (1024 if unit == "k" else 1)
    assert ("Journal device" in told) == bool(candidate.journal)


def check_xfs(candidate, place: Path) -> None:
    """Check by xfs_info that the geometry has the options given to mkfs.xfs."""
    told = said("xfs_info", place)
    log = re.search(r"^log +=(\S+)(?: log)? +bsize=(\d+) +blocks=(\d+)", told, re.M)
    assert log
    internal, block, blocks = log.groups()
    assert (internal == "internal") != bool(candidate.journal)
    size = words_after(candidate, "-l").split(",")[0].removeprefix("size=")
    units = {"m": 1 << 20, "g": 1 << 30, "b": 4096}
    if size:
        assert int(block) * int(blocks) == int(size[:-1]) * units[size[-1]]
    if "reflink=" in (asked := words_after(candidate, "-m")):
        assert re.search(rf"\b{asked}\b", told)


@pytest.mark.parametrize("name", presets())
def test_a_candidate_is_made_mounted_and_used_here(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    # Another test's command could take the mount point as soon as it is free.
    monkeypatch.setattr(mount_points, "RUN", tmp_path / "run")
    candidate = presets()[name]
    if why := why_not_here(candidate):
        with pytest.raises(SpoolscopeError, match=re.escape(why.reason)):
            check(candidate, {})
        assert candidate.fstype not in HERE or candidate.layers, why.reason
        pytest.skip(f"{name}: {why.reason}")
    life = Lifetime()
    with prepared(candidate, tmp_path, SIZE, life=life) as target:
        mail = target.mount / "mail"
        mail.write_bytes(b"From \n" * 1000)
        fstype, device, options = mounted(target.mount)
        assert fstype == candidate.fstype
        asked = set(candidate.mount_options.split(","))
        assert {"nosuid", "nodev"} <= options
        assert {LISTED.get(one, one) for one in asked - UNLISTED} <= options
        assert ("noatime" in asked) == ("noatime" in options)
        if fstype in ("ext2", "ext3", "ext4"):
            check_ext(candidate, device)
        if fstype == "xfs":
            check_xfs(candidate, target.mount)
    assert all(re.search(r"\d\.\d", said) for said in life.as_dict()["versions"].values())
    commands = [" ".join(one["command"]) for one in life.as_dict()["commands"]]
    assert commands[0].startswith(candidate.mkfs[0])
    assert sum(command.startswith("mount ") for command in commands) == 1 + bool(candidate.below)
    assert not target.mount.exists()


@pytest.mark.parametrize(
    ("text", "own"),
    [
        ("ext4[-J size=9999]", "Total journal size too big for filesystem"),
        ("ext4[-O nonsense]", "Invalid filesystem option set: nonsense"),
        ("xfs[-l size=8m]", "Log size must be at least 64MB"),
        ("btrfs[-O foo]", "unrecognized filesystem feature 'foo'"),
        ("ext4[; data=nonsense]", "wrong fs type, bad option"),
    ],
)
def test_what_mkfs_or_mount_refuses_is_said_in_its_own_words(text, own, tmp_path, require):
    require(text.partition("[")[0])
    with pytest.raises(SpoolscopeError) as error, prepared(parse(text), tmp_path, SIZE):
        pass
    assert own in error.value.message
    assert "Usage" not in error.value.message
    assert "\n" not in error.value.message
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize("fstype", ["jfs", "reiserfs", "f2fs", "nilfs2", "exfat"])
def test_what_only_other_kernels_mount_is_made_here(fstype, tmp_path, require):
    """mkfs takes the words of every candidate; another kernel mounts it in the lab VM."""
    program = FILESYSTEMS[fstype].mkfs[0]
    try:
        subprocess.run([program, "-V"], capture_output=True, check=False)
    except FileNotFoundError:
        require(fstype, f"no program {program}")
    for candidate in presets().values():
        if candidate.fstype == fstype and not candidate.journal:
            image = tmp_path / "image"
            with image.open("wb") as file:
                file.truncate(SIZE)
            (made,) = carried_out(formatting(candidate, str(image)))
            assert made["command"][-1] == str(image)
            assert said("blkid", "-o", "value", "-s", "TYPE", image).strip() == fstype


def test_a_run_says_how_its_filesystem_was_made(script, tmp_path):
    """The log has its own disk; the overlay has two mounts; all commands are in run.json."""
    script.call(10, 1, "mkdir", "box", mode=0o700)
    script.call(10, 2, "openat", "box/1", ret=3, flags=0o301, mode=0o600, ino=9)
    out = tmp_path / "out"
    names = ["c2004-raid5-xfs", "overlay-ext4", "ext3[-O ^dir_index; data=journal]"]
    rows = replay(script.write(tmp_path / "trace"), names, out, pace="afap")
    by = {row["candidate"]: row for row in rows}
    assert set(by) == set(names)
    for row in rows:
        assert (row["divergent"], row["final_state"]["mismatched"]) == (0, 0)
        assert row["life"]["check"]["clean"]
        kernel = Path("/proc/sys/kernel/osrelease").read_text().strip()
        assert row["kernel"] == kernel
        made, *_ = (one for one in row["life"]["commands"] if one["command"][0] != "mount")
        assert made["command"][0] in row["life"]["versions"]
        assert made["said"], "all that mkfs said"
    assert by[names[0]]["source"].startswith("C2004, RAID5")
    assert "version 5" in by[names[0]]["instead"]
    assert by[names[1]]["on"] == ["ext4"]
    assert by[names[2]]["durability"] == "not stated"
