"""Wrong use of record prints one line with the remedy, and changes nothing on disk."""

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pyarrow.parquet as pq
import pytest


def spoolscope(*words: object, env: dict[str, str] | None = None) -> subprocess.CompletedProcess:
    command = [sys.executable, "-m", "spoolscope.cli.main", *map(str, words)]
    return subprocess.run(
        command, capture_output=True, text=True, env={**os.environ, **(env or {})}, check=False
    )


def refused(done: subprocess.CompletedProcess, code: int, *hints: str) -> None:
    lines = done.stderr.strip().splitlines()
    assert done.returncode == code, done.stderr
    assert len(lines) == 1, done.stderr
    assert lines[0].startswith("spoolscope: error: ")
    for hint in hints:
        assert hint in lines[0]


@pytest.mark.root
@pytest.mark.steady
def test_unknown_spools(tmp_path):
    output = tmp_path / "trace"
    refused(
        spoolscope("record", "-q", "--spool", tmp_path / "no", "-o", output, "-d", "1"),
        2,
        "no such directory",
        "mount point",
    )
    refused(
        spoolscope("record", "-q", "--spool", "/etc/passwd", "-o", output, "-d", "1"),
        2,
        "no such directory",
    )
    assert list(tmp_path.iterdir()) == []


@pytest.mark.root
@pytest.mark.steady
def test_output_on_the_spool_itself(spool):
    mount = spool("ext4")
    before = sorted(mount.iterdir())
    refused(
        spoolscope("record", "-q", "--spool", mount, "-o", mount / "trace", "-d", "1"),
        1,
        "lies on the spool",
        "-o",
    )
    assert sorted(mount.iterdir()) == before


def test_output_that_exists(tmp_path):
    taken = tmp_path / "trace"
    taken.mkdir()
    (taken / "mine").write_text("keep")
    refused(
        spoolscope("record", "-q", "--spool", "/", "-o", taken, "-d", "1"), 2, "exists", "--force"
    )
    refused(
        spoolscope("record", "-q", "--force", "--spool", "/", "-o", taken, "-d", "1"),
        2,
        "did not write",
    )
    assert (taken / "mine").read_text() == "keep"


def test_no_root(tmp_path):
    nobody = ["setpriv", "--reuid=65534", "--regid=65534", "--clear-groups"]
    if os.geteuid() != 0:
        nobody = []
    tmp_path.chmod(0o777)
    for parent in tmp_path.parents[:3]:
        parent.chmod(parent.stat().st_mode | 0o011)
    from spoolscope.traces.native import find_binary
    from spoolscope.traces.native_failures import Code

    recorder = [find_binary("spoolscope-record"), "run", "--spool", "/proc"]
    done = subprocess.run(
        [*nobody, *recorder, "--output", tmp_path / "capture"],
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == Code.NOT_PERMITTED
    assert "needs root" in done.stderr
    assert "sudo" in done.stderr
    assert not (tmp_path / "capture").exists()


def test_filters_and_commands_do_not_mix(tmp_path: Path):
    output = tmp_path / "trace"
    refused(
        spoolscope("record", "-q", "--spool", "/", "-o", output, "-p", "1", "--", "true"),
        2,
        "own filter",
    )
    refused(spoolscope("record", "-q", "-o", output), 2, "--spool")


@pytest.mark.root
@pytest.mark.steady
def test_a_full_disk_loses_nothing_that_was_written(spool, tmp_path):
    """The output lies on a tmpfs of 768 KiB; when it is full the capture stays and is recovered."""
    mount = spool("ext4")
    small = tmp_path / "small"
    small.mkdir()
    subprocess.run(["mount", "-t", "tmpfs", "-o", "size=768k", "none", small], check=True)
    try:
        # The load goes on after the recording until the spool is full, too; it must not print that.
        quiet = "exec 2>/dev/null"
        busy = f"{quiet}; i=0; while [ $i -lt 200000 ]; do : > {mount}/f$i; i=$((i+1)); done"
        done = spoolscope(
            "record", "-q", "--spool", mount, "-o", small / "trace", "--", "sh", "-c", busy
        )
        assert done.returncode == 1
        lines = done.stderr.strip().splitlines()
        assert lines[-1].startswith("spoolscope: error: ")
        assert "make room" in lines[-1]
        assert "--recover" in lines[-1]
        [left] = small.glob(".trace.*/capture.seg")
        trace = tmp_path / "recovered"
        done = spoolscope("record", "-q", "--recover", left.parent, "-o", trace)
        assert done.returncode == 3
        info = spoolscope("info", trace, "--json")
        facts = json.loads(info.stdout)
        assert info.returncode == 3
        assert facts["complete"] is False
        assert facts["syscalls"] > 10_000
        assert facts["ended"] == "disk full"
        # Calls before the disk was full are complete; calls after that are located as lost.
        losses = pq.read_table(trace / "losses.parquet").to_pylist()
        last = pq.read_table(trace / "syscalls.parquet", columns=["tid", "seq"]).to_pylist()[-1]
        tails = [loss for loss in losses if loss["kind"] == "syscall"]
        assert sum(tail["n"] for tail in tails) == facts["lost_records"].get("1", 0)
        for tail in tails:
            assert tail["tid"] == last["tid"]
            assert tail["n"] == tail["last_seq"] - tail["first_seq"] + 1 <= facts["lost"]
    finally:
        subprocess.run(["umount", "-l", small], check=True)


def _endless_recording(mount: Path, output: Path, *before: str) -> subprocess.Popen:
    command = [*before, sys.executable, "-m", "spoolscope.cli.main", "record", "-q"]
    command += ["--spool", str(mount), "-o", str(output)]
    process = subprocess.Popen(command, stderr=subprocess.DEVNULL)
    deadline = time.monotonic() + 60
    while not _ready(output) and time.monotonic() < deadline:
        time.sleep(0.05)
    (mount / "seen").touch()
    time.sleep(0.2)
    return process


def _ready(output: Path) -> bool:
    found = output.parent.glob(f".{output.name}.*/capture.json")
    return any("ready" in answers.read_text() for answers in found)


def _recorders(mount: Path) -> list[str]:
    pattern = f"spoolscope-record run.*{mount}"
    found = subprocess.run(["pgrep", "-f", pattern], capture_output=True, text=True, check=False)
    return found.stdout.split()


@pytest.mark.root
@pytest.mark.steady
@pytest.mark.parametrize("name", ["SIGINT", "SIGTERM", "SIGHUP"])
def test_a_signal_ends_the_recording_in_order(name, spool, tmp_path):
    mount, output = spool("ext4"), tmp_path / "trace"
    process = _endless_recording(mount, output)
    process.send_signal(signal.Signals[name])
    assert process.wait(60) == 0
    facts = json.loads(spoolscope("info", output, "--json").stdout)
    assert facts["complete"] is True
    assert facts["syscalls"] > 0
    assert _recorders(mount) == []


@pytest.mark.root
@pytest.mark.steady
def test_a_recording_under_nohup_outlives_its_terminal(spool, tmp_path):
    mount, output = spool("ext4"), tmp_path / "trace"
    process = _endless_recording(mount, output, "sh", "-c", 'trap "" HUP; exec "$@"', "sh")
    for pid in (process.pid, *map(int, _recorders(mount))):
        os.kill(pid, signal.SIGHUP)
    time.sleep(1)
    (mount / "later").touch()
    process.send_signal(signal.SIGTERM)
    assert process.wait(60) == 0
    sql = "SELECT count(DISTINCT path_id) AS n FROM syscalls WHERE syscall = 'openat'"
    assert spoolscope("query", output, sql, "--csv").stdout.split() == ["n", "2"]


@pytest.mark.root
@pytest.mark.steady
def test_a_killed_front_end_leaves_no_recorder_behind(spool, tmp_path):
    mount, output = spool("ext4"), tmp_path / "trace"
    process = _endless_recording(mount, output)
    process.kill()
    process.wait()
    deadline = time.monotonic() + 60
    while _recorders(mount) and time.monotonic() < deadline:
        time.sleep(0.1)
    assert _recorders(mount) == []
    [left] = tmp_path.glob(".trace.*")
    assert spoolscope("record", "-q", "--recover", left, "-o", output).returncode == 0
    assert json.loads(spoolscope("info", output, "--json").stdout)["complete"] is True


@pytest.mark.root
@pytest.mark.steady
def test_no_btf(spool, tmp_path):
    """It runs in a new mount namespace, where /sys/kernel/btf is hidden."""
    mount = spool("ext4")
    words = ["record", "-q", "--spool", str(mount), "-o", str(tmp_path / "trace"), "-d", "1"]
    hidden = 'mount -t tmpfs none /sys/kernel/btf && exec "$@"'
    done = subprocess.run(
        [
            "unshare",
            "-m",
            "sh",
            "-c",
            hidden,
            "-",
            sys.executable,
            "-m",
            "spoolscope.cli.main",
            *words,
        ],
        capture_output=True,
        text=True,
        check=False,
    )
    refused(done, 1, "no BTF", "CONFIG_DEBUG_INFO_BTF")
    assert not (tmp_path / "trace").exists()
