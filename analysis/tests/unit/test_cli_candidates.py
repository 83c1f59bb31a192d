"""The output of `spoolscope candidates`: the list, one candidate, the same as JSON."""

import json
from pathlib import Path

import pytest
from click.testing import CliRunner

from spoolscope.cli.candidates import command
from spoolscope.replay.presets import presets


def said(*words: str) -> str:
    result = CliRunner().invoke(command, list(words), standalone_mode=False)
    assert result.exception is None
    return result.output


def test_the_list_has_all_of_them_within_80_columns():
    lines = said().splitlines()
    # The last line but one is the path of a file, which may be long.
    assert max(map(len, [*lines[:-2], lines[-1]])) <= 80
    assert [line.split()[0] for line in lines[:-2] if line[0] != " "] == list(presets())


def test_programs_are_told_what_people_are():
    found = {c["name"]: c for c in json.loads(said("--json"))["candidates"]}
    assert found.keys() == presets().keys()
    assert found["c2007-jfs"]["mkfs"] == ["mkfs.jfs", "-q", "-s", "64"]
    assert "reiser4 patch" in found["c2004-reiser4"]["why_not_here"]
    assert not found["c2004-reiser4"]["kernels"]
    assert found["ext4-dm-crypt"]["on"] == ["dm-crypt"]
    for facts in found.values():
        assert facts["here"] == (facts["why_not_here"] == "")


@pytest.mark.parametrize(
    ("name", "commands"),
    [
        (
            "c2004-raid5-xfs",
            [
                "mkfs.xfs -f -b size=1024 -d su=16k,sw=3 -l logdev=JOURNAL,size=134217728 DEVICE",
                "mount -t xfs -o logdev=JOURNAL,strictatime,nosuid,nodev DEVICE DIRECTORY",
            ],
        ),
        (
            "ext4-external-journal",
            [
                "mkfs.ext4 -F -b 4096 -O journal_dev JOURNAL 32768",
                "mkfs.ext4 -F -E lazy_itable_init=0,lazy_journal_init=0 -b 4096"
                " -J device=JOURNAL DEVICE",
                "mount -t ext4 -o journal_path=JOURNAL,noatime,nosuid,nodev DEVICE DIRECTORY",
            ],
        ),
        (
            "nfs4-async",
            [
                "mkfs.ext4 -F -E lazy_itable_init=0,lazy_journal_init=0 DEVICE",
                "mount -t ext4 -o noatime,nosuid,nodev DEVICE EXPORTED",
                "exportfs -i -o async,rw,no_root_squash,no_subtree_check,fsid=0 127.0.0.1:EXPORTED",
                "mount -t nfs4 -o noatime,vers=4.2,proto=tcp,nosuid,nodev 127.0.0.1:/ DIRECTORY",
            ],
        ),
        (
            "zfs-lz4",
            [
                "zpool create -f -m legacy -o cachefile=none -o ashift=12 -O atime=off -O xattr=sa"
                " -O sync=standard -O compression=lz4 spoolscope DEVICE",
                "zpool export spoolscope",
                "zpool import -o cachefile=none -d DEVICE spoolscope",
                "mount -t zfs -o noatime,nosuid,nodev spoolscope DIRECTORY",
            ],
        ),
    ],
)
def test_a_name_shows_the_commands_in_their_order(name: str, commands: list[str]):
    shown = [line.strip() for line in said(name).splitlines() if line.startswith("    ")]
    assert [
        line
        for line in shown
        if line.split()[0] in ("mount", "zpool", "exportfs") or "mkfs" in line
    ][-len(commands) :] == commands


def test_ones_own_are_listed(tmp_path: Path):
    file = tmp_path / "own.toml"
    file.write_text('[ours]\nlike = "xfs"\nmkfs = "-l size=256m"\nreason = "What we run."')
    assert "ours: What we run." in said("--candidates", str(file), "ours")
    assert json.loads(said("--json", "xfs[; lazytime]"))["candidates"][0]["durability"] == (
        "not stated"
    )
