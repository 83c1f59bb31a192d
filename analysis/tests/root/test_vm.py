"""Machines that boot another kernel: their end, and replays in them."""

import io
import json
import os
import re
import signal
import subprocess
import sys
import time
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from spoolscope.analysis.explain import explain
from spoolscope.lab.vm import zfs
from spoolscope.lab.vm.running import MachineError, run
from spoolscope.traces.trace import Trace

pytestmark = [pytest.mark.root, pytest.mark.slow, pytest.mark.steady]

SAMPLE = Path(__file__).resolve().parents[3] / "traces/samples/postfix-dovecot"
SPOOLSCOPE = Path(sys.executable).with_name("spoolscope")
SERVED = Path(__file__).with_name("served.py")
LAYERED = Path(__file__).with_name("layered.py")
NOTHING = {"running": [], "loops": "", "mounts": [], "places": []}
# One process for all files: each import takes an emulator long.
ALL = """
import runpy, sys
from spoolscope.cli.no_pandas import hide_pandas
hide_pandas()
for file in sys.argv[1:]:
    runpy.run_path(file, run_name="__main__")
"""
ENDS_WITHIN_S = 30
# Prints the CPU seconds of many calls by the kernel's own accounting.
STATS = """
import os, resource
def spent():
    used = resource.getrusage(resource.RUSAGE_SELF)
    return used.ru_utime + used.ru_stime
for n in range(2000):
    os.stat("/etc/passwd")
began = spent()
for n in range(20000):
    os.stat("/etc/passwd")
print(spent() - began)
"""
ALIKE = 0.005


@pytest.fixture(scope="module")
def crashed(lab_machine, require_layers, tmp_path_factory) -> tuple[list[Any], str, list[Path]]:
    """Return what a machine printed, how it ended, and what is left.

    It serves NFS, makes layers of devices, then panics.
    """
    require_layers()
    said, place = io.BytesIO(), tmp_path_factory.mktemp("crashed")
    crash = "echo the last words >/dev/kmsg; sleep 1; echo c >/proc/sysrq-trigger"
    words = ["sh", "-c", f'"$@"; {crash}', "sh", sys.executable, "-c", ALL, SERVED, LAYERED]
    with (
        pytest.raises(MachineError) as ended,
        run(lab_machine("6.1"), words, work=place, out=said),
    ):
        pass
    lines = said.getvalue().decode().splitlines()
    return [json.loads(line) for line in lines], ended.value.message, list(place.iterdir())


def test_a_panic_is_told_with_the_end_of_the_console(crashed) -> None:
    _, message, left = crashed
    assert re.search(r"panicked \(.*sysrq triggered crash\) before its comm", message)
    assert left == []


def test_a_server_is_taken_down_in_every_way_out(crashed) -> None:
    """Check processes, mounts and loop devices of a machine that makes NFS candidates."""
    killed, told, _ = crashed[0]
    assert killed["below"] == "mail"
    assert killed["running"] == ["lockd", "nfsd", "rpc.mountd", "rpc.statd", "rpcbind"]
    assert killed["places"] == ["1", "2", "nfs"]
    # The kernel's threads, and what they have open, outlive the command; its programs do not.
    assert told["left"]["running"] == ["lockd", "nfsd"]
    assert told["left"]["loops"]
    assert "Removing " in told["cleaned"]
    assert told["after"] == NOTHING
    assert told["refused"] == "another NFS server runs in this machine"
    assert told["made"]["below"] == "mail"
    assert told["made"]["mounts"][0].split()[2] == "nfs4"
    assert told["at last"] == NOTHING


def test_layers_wait_for_a_device_in_use_and_for_nothing_else(crashed) -> None:
    """Check attempts that the machine's own programs needed, and devices by its /sys."""
    _, _, told = crashed[0]
    assert told["held"] == {"ext4-lvm": 2, "ext4-dm-crypt": 2, "ext4-md-raid1": 2}
    assert [*told["gone"]] == ["ext4-lvm", "ext4-dm-crypt"]
    for tried, error in told["gone"].values():
        assert tried == 1, error
        assert error.startswith("a layer below the filesystem stays: ")
    assert told["left"] == []


def test_a_machine_ends_with_its_front_end(lab_machine, tmp_path) -> None:
    lab_machine("6.1")
    command = [SPOOLSCOPE, "lab", "vm", "-q", "--", "sh", "-c", "echo up; sleep 1000"]
    env = os.environ | {"TMPDIR": str(tmp_path)}
    with subprocess.Popen(command, stdout=subprocess.PIPE, env=env) as front:
        assert front.stdout.read(3) == b"up\n"
        children = Path(f"/proc/{front.pid}/task/{front.pid}/children").read_text().split()
        [qemu] = [pid for pid in children if b"qemu" in Path(f"/proc/{pid}/cmdline").read_bytes()]
        front.send_signal(signal.SIGKILL)
    until = time.monotonic() + ENDS_WITHIN_S
    while Path(f"/proc/{qemu}/exe").exists() and time.monotonic() < until:
        time.sleep(0.1)
    assert not Path(f"/proc/{qemu}/exe").exists()
    assert list(tmp_path.iterdir()) == []


def test_instructions_are_as_many_in_every_boot(lab_machine, tmp_path) -> None:
    machine = replace(lab_machine("6.1"), cpus=1, icount=True)
    options = {"environment": os.environ | machine.environment, "scratch": False}
    took_s = []
    for _ in range(2):
        said = io.BytesIO()
        with run(machine, [sys.executable, "-c", STATS], work=tmp_path, out=said, **options):
            took_s.append(float(said.getvalue()))
    assert took_s[0] > 0.02
    assert took_s[1] == pytest.approx(took_s[0], rel=ALIKE)


def test_a_replay_on_another_kernel_is_as_if_made_here(lab_machine, few_files, tmp_path) -> None:
    """Check a replay on another kernel; the replayer compares tree and results with the recording.

    Kernel and filesystem are checked by the trace of the run.
    """
    release = lab_machine("6.1").kernel.release
    out = tmp_path / "out"
    command = [SPOOLSCOPE, "replay", few_files, "--on", "jfs", "--on", "nilfs2", "--vm", "6.1"]
    command += ["--repeats", "0", "--pace", "afap", "--json", "-q", "-o", out]
    done = subprocess.run(command, stdout=subprocess.PIPE, check=False, cwd=tmp_path)
    told = json.loads(done.stdout)
    assert [name for name in ("jfs", "nilfs2") if (out / f"{name}-r1/run.json").exists()] == [
        "jfs",
        "nilfs2",
    ]
    for row in told["runs"]:
        assert row["executed"] > 1000
        assert (row["divergent"], row["skipped"]) == (0, 0), row["divergences"]
        assert row["final_state"]["mismatched"] == 0
        assert row["kernel"] == row["machine"]["kernel"] == release
        assert row["machine"]["host"]["kernel"] == os.uname().release
        trace = Trace.open(out / f"{row['candidate']}-r1" / "trace")
        assert trace.meta["kernel"] == release
        assert [spool["fstype"] for spool in trace.meta["spools"]] == [row["candidate"]]
        assert explain(trace).split.blocked_ns > 0
    assert done.returncode == 0


def test_zfs_is_made_used_and_explained(lab_machine, tmp_path) -> None:
    """Check a replay on zfs where its module is built: that takes minutes, so CI does not."""
    kernel = lab_machine("6.1").kernel
    if not zfs.is_built(kernel):
        pytest.skip(f"no zfs module for kernel {kernel.release}: 'spoolscope lab zfs' builds it")
    out = tmp_path / "out"
    command = [SPOOLSCOPE, "replay", SAMPLE, "--on", "zfs", "--vm", "6.1", "--slice", "1s..2s"]
    command += ["--pace", "afap", "--no-life", "--json", "-q", "-o", out]
    done = subprocess.run(command, stdout=subprocess.PIPE, check=False, cwd=tmp_path)
    [row] = json.loads(done.stdout)["runs"]
    assert done.returncode == 0
    assert row["executed"] > 1000
    assert (row["divergent"], row["skipped"]) == (0, 0), row["divergences"]
    assert row["final_state"]["mismatched"] == 0
    life = json.loads((out / "zfs-r1/run.json").read_text())["life"]
    assert life["device"]["replay"]["flushes"] > 0
    explained = explain(Trace.open(out / "zfs-r1/trace"))
    assert explained.split.blocked_ns > 0
    assert explained.named_share >= 0.97
