"""Workloads on real filesystems: same calls for the same seed, by strace; final files, by find."""

import json
import os
import re
import subprocess
import sys
from collections import Counter
from pathlib import Path

import pyarrow.parquet as pq
import pytest

from spoolscope.cli.replay_recorder import replay_recorder
from spoolscope.lab.workloads.native import command
from spoolscope.lab.workloads.needs import native_needs
from spoolscope.traces.trace import Trace

pytestmark = [pytest.mark.root, pytest.mark.steady]

CALLS = re.compile(r"^(?P<call>\w+)\((?P<arguments>.*)\) += (?P<result>\S+)")
TRACED = (
    "openat,mkdir,rename,renameat,renameat2,link,linkat,unlink,unlinkat,write,read,fsync,"
    "getdents64,stat,newfstatat,statx,chdir,fcntl,ftruncate"
)

RELATIVE = ("link", "unlink", "rename", "stat")
"""Calls whose arguments may be relative names."""


def step(root: Path, seed: int, workload: str, name: str, *words: str, strace: Path | None = None):
    report = root.parent / "report.json"
    program = command(
        *(workload, name, *words, "--root", str(root), "--report", str(report)),
        *("--scale", "0.002", "--seed", str(seed)),
    )
    if strace is not None:
        program = ["strace", "-ff", "-y", "-o", str(strace), "-e", f"trace={TRACED}", *program]
    subprocess.run(program, check=True)
    return json.loads(report.read_text())


def straced(trace: Path) -> list[re.Match[str]]:
    """Return the calls of all processes; remove the files of strace."""
    found = []
    for file in trace.parent.glob(f"{trace.name}.*"):
        found += [made for made in map(CALLS.match, file.read_text().splitlines()) if made]
        file.unlink()
    return found


def calls_below(trace: Path, root: Path) -> Counter:
    """Count the calls on the load's files, by call, arguments and result, over all processes."""
    found: Counter = Counter()
    for made in straced(trace):
        text = f"{made['arguments']} = {made['result']}".replace(str(root), "ROOT")
        if made["call"] == "getdents64":  # beside other processes it lists some of their names
            text = text.partition(",")[0]
        if "ROOT" in text or made["call"] in RELATIVE:
            found[made["call"], re.sub(r"0x[0-9a-f]+|\{.*\}", "", text)] += 1
    return found


STEPS = [
    ("maildir-io", [("unpack",), ("setup",), ("io",), ("reads",)]),
    ("fsbench", [("setup",), ("stage", "--deliverers", "4")]),
    ("qmail", [("setup",), ("deliver",), ("pop3",)]),
    ("varmail", [("setup",), ("load",)]),
]


@pytest.mark.parametrize(("workload", "steps"), STEPS, ids=[name for name, _ in STEPS])
def test_the_same_seed_makes_the_same_calls(workload, steps, tmp_path, require):
    require("strace")
    made, room = [], native_needs(workload, 0.002)
    for turn, seed in enumerate((1, 1, 2)):
        root = tmp_path / f"root{turn}"
        root.mkdir()
        found: Counter = Counter()
        for words in steps:
            step(root, seed, workload, *words, strace=tmp_path / "strace")
            found += calls_below(tmp_path / "strace", root)
            there = list(root.rglob("*"))
            assert len(there) <= room.names + 2  # and the directories around them
            assert sum(path.stat().st_size for path in there if path.is_file()) <= 2 * room.bytes
        made.append(found)
    assert made[0].total() > 50
    assert made[0] == made[1]
    assert made[0] != made[2]


def test_what_is_reported_is_what_lies_there(tmp_path, require):
    require("strace")
    root = tmp_path / "root"
    root.mkdir()
    step(root, 3, "maildir-io", "unpack")
    mails = list((root / "write_src").iterdir())
    assert len(mails) == round(77_133 * 0.002)
    step(root, 3, "maildir-io", "setup")
    assert len(list(root.glob("boxes/*/*/new"))) == 20
    told = step(root, 3, "maildir-io", "io", strace=tmp_path / "strace")
    written = list(root.glob("boxes/*/*/new/*"))
    assert told["laps"]["write"]["n"] == len(written)
    assert told["laps"]["write"]["n"] + told["laps"]["read"]["n"] == 20
    assert told["counts"]["written_bytes"] == sum(path.stat().st_size for path in written)
    lines = sum(path.read_bytes().count(b"\n") for path in written)
    reported = 2  # the report, and one process's record
    writes = sum(made["call"] == "write" for made in straced(tmp_path / "strace"))
    assert lines <= writes <= lines + reported


def lab(*words: str) -> subprocess.CompletedProcess[str]:
    program = [sys.executable, "-m", "spoolscope.cli.main", "lab", "workload", *words]
    return subprocess.run(program, capture_output=True, text=True, check=False)


def left_below(place: Path) -> list[str]:
    """Return the images below a directory that still have a loop device."""
    files = (
        path.read_text().strip() for path in Path("/sys/block").glob("loop*/loop/backing_file")
    )
    return [file for file in files if file.startswith(str(place))]


def test_candidates_have_their_rounds_and_figures(tmp_path, require):
    require("ext3")
    on = ["--on", "c2004-ext3", "--on", "ext3[-J size=64; data=journal]"]
    out = tmp_path / "out"
    done = lab("maildir-io", *on, "--scale", "0.001", "--rounds", "2", "-o", str(out), "--json")
    assert done.returncode == 0, done.stderr
    told = json.loads(done.stdout)
    assert len(told["runs"]) == len(told["order"]) == 4
    table = pq.read_table(out / "results.parquet").to_pylist()
    assert {row["candidate"] for row in table} == {run["candidate"] for run in told["runs"]}
    for run in told["runs"]:
        kept = json.loads((out / run["run"] / "run.json").read_text())
        assert kept["steps"]["io"]["laps"]["write"]["n"] > 0
        assert {"mkfs_s", "mount_s", "unpack_s", "whole_s", "reads_s"} <= kept["figures"].keys()
        assert kept["life"]["commands"]
        assert kept["host"]["images_on"]
    [then] = [
        figure
        for figure in told["tables"][0]["figures"]
        if (figure["candidate"], figure["metric"]) == ("c2004-ext3", "io_s")
    ]
    assert then["then"] == 946
    assert not left_below(tmp_path)


def test_the_load_goes_to_the_disk_that_is_given(tmp_path, disk, require):
    require("ext4")
    require("btrfs")
    words = ("qmail", "--on", "ext4", "--on", "btrfs", "--scale", "0.001", "--device", str(disk))
    refused = lab(*words, "-o", str(tmp_path / "out"))
    assert f"confirm it with --format-device {disk}" in refused.stderr
    written = Path("/sys/block", disk.name, "stat")
    before = int(written.read_text().split()[6])
    out = tmp_path / "out"
    done = lab(*words, "--format-device", str(disk), "-o", str(out), "--json", "-q")
    assert done.returncode == 0, done.stderr
    runs = json.loads(done.stdout)["runs"]
    mail_bytes = 0
    for run in runs:
        kept = json.loads((out / run["run"] / "run.json").read_text())
        assert [one["name"] for one in kept["devices"]] == [disk.name]
        mail_bytes += kept["steps"]["deliver"]["counts"]["written_bytes"]
    assert len(runs) == 2
    assert (int(written.read_text().split()[6]) - before) * 512 > mail_bytes > 0
    assert not subprocess.run(["wipefs", str(disk)], capture_output=True, check=True).stdout


def test_a_recorded_step_can_be_explained(tmp_path, require):
    require("bpf")
    require("ext4")
    out = tmp_path / "out"
    words = ("--on", "ext4", "--scale", "0.002", "--record", "-o", str(out), "-q")
    done = lab("varmail", *words)
    assert done.returncode == 0, done.stderr
    trace = out / "ext4-r1" / "load.trace"
    program = [sys.executable, "-m", "spoolscope.cli.main", "explain", str(trace), "--json"]
    said = subprocess.run(program, capture_output=True, text=True, check=True).stdout
    assert json.loads(said)["sum_error_ns"] == 0
    calls = pq.read_table(trace / "syscalls.parquet", columns=["syscall"])["syscall"].to_pylist()
    told = json.loads((out / "ext4-r1" / "run.json").read_text())["steps"]["load"]
    # Each loop syncs two files; one count is the recorder's, one the program's.
    assert calls.count("fsync") == 2 * told["laps"]["create"]["n"]


def test_a_device_model_is_played_from_the_first_step_on(tmp_path, require):
    require("ext4")
    if not Path("/dev/fuse").exists():
        require("fuse", "this kernel has no FUSE (/dev/fuse)")
    on = ("--on", "ext4", "--on", "ext4@hdd10k")
    done = lab("qmail", *on, "--scale", "0.001", "-o", str(tmp_path / "out"), "--json", "-q")
    assert done.returncode == 0, done.stderr
    runs = {run["candidate"]: run["figures"] for run in json.loads(done.stdout)["runs"]}
    # Each delivery waits for a turn of the disk, 6 ms, at least once for a sync.
    assert runs["ext4@hdd10k"]["deliver_deliver_ms"] > 6
    assert not left_below(tmp_path)


def test_an_archive_is_the_published_one_and_its_throughput_is_watched(tmp_path, require):
    require("ext4")
    out = tmp_path / "out"
    done = lab("cyrus-archive", "--on", "ext4", "--scale", "0.001", "-o", str(out), "--json", "-q")
    assert done.returncode == 0, done.stderr
    steps = json.loads((out / "ext4-r1" / "run.json").read_text())["steps"]
    assert steps["write"]["counts"]["files"] == 1076
    # tar packs as much as it unpacked, to within a record.
    assert abs(steps["read"]["counts"]["tar_bytes"] - 20_292_014) <= 10_240
    series = pq.read_table(out / "throughput.parquet").to_pylist()
    assert {row["step"] for row in series} == {"write", "read", "remove"}
    assert max(row["written_bytes"] for row in series if row["step"] == "write") > 15e6
    assert max(row["read_bytes"] for row in series if row["step"] == "read") > 15e6
    figures = json.loads(done.stdout)["runs"][0]["figures"]
    assert {"write_s", "read_s", "check_s", "remove_s"} <= figures.keys()


def test_a_file_server_removes_all_that_it_made(tmp_path, require):
    require("xfs")
    out = tmp_path / "out"
    done = lab("file-server", "--on", "xfs", "--scale", "0.002", "-o", str(out), "-q")
    assert done.returncode == 0, done.stderr
    run = json.loads((out / "xfs-r1" / "run.json").read_text())
    before, after = (run["life"]["capacity"][when] for when in ("after_mkfs", "after_removal"))
    assert after["available_bytes"] >= 0.99 * before["available_bytes"]
    found = run["steps"]["find"]["counts"]["found"]
    names = [f"file{number:05}.dat" for number in range(15)]
    assert found == 2 * sum("7" in name.removesuffix(".dat") for name in names)
    assert run["steps"]["tree-copy"]["processes"]["cp"]["minor_faults"] > 0


def test_servers_that_run_already_are_recorded_while_their_client_runs(spool, tmp_path):
    mount, asked, answered = spool("ext4"), tmp_path / "asked", tmp_path / "answered"
    for pipe in (asked, answered):
        os.mkfifo(pipe)
    serves = f"read word <{asked}; mkdir {mount}/served; echo done >{answered}"
    asks = ["timeout", "60", "sh", "-c", f"echo word >{asked}; read word <{answered}; exit 7"]
    with subprocess.Popen(["sh", "-c", serves]) as server:
        recorder = replay_recorder(servers=True)
        status = recorder(mount, asks, tmp_path / "trace", lambda *_: None)
        server.wait(10)
    calls = Trace.open(tmp_path / "trace").table("syscalls", ["syscall", "comm", "ret"]).to_pylist()
    made = [call for call in calls if call["syscall"] == "mkdir" and call["ret"] == 0]
    assert [call["comm"] for call in made] == ["mkdir"]
    assert status == 7
