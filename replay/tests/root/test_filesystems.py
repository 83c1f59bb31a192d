"""Real races, recorded and replayed on real filesystems."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from spoolscope.replay.candidates import check, parse
from spoolscope.replay.run import replay
from spoolscope.replay.targets import SMALLEST_BYTES, prepared
from spoolscope.tracers.session import Request, record
from spoolscope.traces.errors import SpoolscopeError

pytestmark = [pytest.mark.root, pytest.mark.steady]
RACE = Path(__file__).with_name("race.py")
FILESYSTEMS = ("ext4", "xfs", "btrfs")
CALLS = 50_000


def left_behind(place: Path) -> list[str]:
    """Return loop devices of files in a directory; they exist as long as a mount of them."""
    done = subprocess.run(["losetup", "-a"], capture_output=True, text=True, check=True)
    return [line for line in done.stdout.splitlines() if str(place) in line]


@pytest.fixture
def race(tmp_path, require):
    """Record the racing program on a fresh ext4 image."""
    require("bpf")
    require("ext4")

    def make(seed: int) -> Path:
        with prepared(parse("ext4"), tmp_path, SMALLEST_BYTES) as target:
            command = [sys.executable, str(RACE), str(target.mount), str(seed)]
            done = record(Request([target.mount], tmp_path / f"race{seed}", command=command))
        assert done.command_status == 0
        assert done.meta["complete"]
        return done.trace

    return make


@pytest.mark.parametrize("seed", [1, 2])
def test_races_have_their_recorded_winners_everywhere(race, tmp_path, require, seed):
    for name in FILESYSTEMS:
        require(name)
    trace = race(seed)
    out = tmp_path / "out"
    rows = replay(trace, list(FILESYSTEMS), out, pace="original" if seed == 1 else "afap")
    assert {row["candidate"] for row in rows} == set(FILESYSTEMS)
    for row in rows:
        listed = (Path(row["run"]) / "divergences.json").read_text()
        assert row["syscalls"] > 5000
        assert row["executed"] == row["syscalls"], listed
        assert row["divergent"] == 0, listed
        assert row["final_state"]["mismatched"] == 0, row["final_state"]
        assert row["orders_given_up"] == 0
        assert row["listings"]["compared"] > 0
        assert row["listings"]["other_names"] == 0
    assert left_behind(tmp_path) == []


def test_recording_a_replay_sees_the_same_calls(race, tmp_path):
    import pyarrow.compute as pc

    from spoolscope.traces.trace import Trace

    def recorder(mount: Path, command: list[str], output: Path, _show: object) -> int:
        request = Request([mount], output, command=command, keep_names=True, snapshot="none")
        return record(request).command_status or 0

    calls = wrong = seed = 0
    # One wrong result in 50,000 is allowed (see test_races.py): more calls show if it is more.
    while not calls or (wrong > calls // CALLS and calls < 4 * CALLS):
        seed += 1
        trace, out = race(2 + seed), tmp_path / f"out{seed}"
        (row,) = replay(trace, ["ext4"], out, pace="afap", recorder=recorder)
        calls += row["syscalls"]
        wrong += row["divergent"]
        print((Path(row["run"]) / "divergences.json").read_text())
        assert row["executed"] == row["syscalls"]
        assert row["orders_given_up"] == 0
        counts = []
        for path in (trace, Path(row["run"]) / "trace"):
            names = pc.value_counts(Trace.open(path).table("syscalls")["syscall"].cast("string"))
            counts.append({n["values"]: n["counts"] for n in names.to_pylist()})
        # A process that got a lock too early released it, and asked again.
        counts[0]["fcntl"] += 2 * row["locks_given_back"]
        for name in ("rename", "unlink", "fcntl", "fsync", "fdatasync", "link", "mkdir", "rmdir"):
            assert counts[1][name] == counts[0][name], name
    assert wrong <= calls // CALLS


@pytest.mark.parametrize("error", [KeyboardInterrupt, RuntimeError])
def test_an_interrupted_candidate_is_removed(tmp_path, require, error):
    require("xfs")
    with (
        pytest.raises(error),
        prepared(parse("xfs"), tmp_path, SMALLEST_BYTES) as target,
        (target.mount / "open").open("w"),
    ):
        raise error
    assert left_behind(tmp_path) == []
    assert list(tmp_path.iterdir()) == []


def test_missing_mkfs_names_its_package(monkeypatch, require):
    require("root")
    monkeypatch.setattr("shutil.which", lambda *_args, **_kwargs: None)
    with pytest.raises(SpoolscopeError) as caught:
        check(parse("xfs"), {})
    assert "xfsprogs" in caught.value.remedy


@pytest.mark.parametrize("fstype", ["ext4", "btrfs"])
def test_a_recorded_spool_is_no_target_under_a_pseudonym_either(fstype, spool):
    mount = spool(fstype)
    below = mount / "empty"
    below.mkdir()
    words = ["findmnt", "-bnro", "MAJ:MIN", mount]
    numbers = subprocess.run(words, capture_output=True, text=True, check=True).stdout
    major, minor = map(int, numbers.split(":"))
    size = os.statvfs(mount).f_blocks * os.statvfs(mount).f_frsize
    hidden = str(mount).replace(fstype, "q" * len(fstype))
    recorded = {"mount": hidden, "dev": major << 20 | minor, "size_bytes": size}
    with pytest.raises(SpoolscopeError, match="the spool this trace was recorded on"):
        check(parse(f"dir:{below}"), {"spools": [recorded]})
    for other in ({"dev": 1}, {"size_bytes": 1}, {"mount": "/q"}):
        check(parse(f"dir:{below}"), {"spools": [recorded | other]})
    part = recorded | {"mount": f"{hidden}/empty", "part": True}
    with pytest.raises(SpoolscopeError, match="the spool this trace was recorded on"):
        check(parse(f"dir:{below}"), {"spools": [part]})
    check(parse(f"dir:{below}"), {"spools": [part | {"mount": f"{hidden}/much/deeper"}]})


def test_there_is_room_for_files_that_only_calls_tell_of(script, tmp_path, require):
    require("ext4")
    size = 700 << 20
    script.call(10, 1, "stat", "mbox", ino=7, obj_mode=0o100600, obj_size=size)
    trace = script.write(tmp_path / "trace")
    (row,) = replay(trace, ["ext4"], tmp_path / "out", pace="afap")
    assert (row["executed"], row["divergent"], row["final_state"]["mismatched"]) == (1, 0, 0)
    assert size > SMALLEST_BYTES / 2
