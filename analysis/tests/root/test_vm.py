"""Machines that boot another kernel: their end, and a replay in one."""

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from spoolscope.analysis.explain import explain
from spoolscope.lab.vm.running import MachineError, run
from spoolscope.traces.trace import Trace

pytestmark = [pytest.mark.root, pytest.mark.steady]

SAMPLE = Path(__file__).resolve().parents[3] / "traces/samples/postfix-dovecot"
SPOOLSCOPE = Path(sys.executable).with_name("spoolscope")
ENDS_WITHIN_S = 30


def test_a_panic_is_told_with_the_end_of_the_console(lab_machine, tmp_path) -> None:
    crash = ["sh", "-c", "echo the last words >/dev/kmsg; echo c >/proc/sysrq-trigger"]
    with (
        pytest.raises(MachineError, match=r"panicked \(.*sysrq triggered crash\) before its comm"),
        run(lab_machine("6.1"), crash, scratch=False, work=tmp_path),
    ):
        pass
    assert list(tmp_path.iterdir()) == []


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


def test_a_replay_on_another_kernel_is_as_if_made_here(lab_machine, tmp_path) -> None:
    """Check a replay on another kernel; the replayer compares tree and results with the recording.

    Kernel and filesystem are checked by the trace of the run.
    """
    release = lab_machine("6.1").kernel.release
    out = tmp_path / "out"
    command = [SPOOLSCOPE, "replay", SAMPLE, "--on", "jfs", "--on", "nilfs2", "--vm", "6.1"]
    command += ["--slice", "0s..3s", "--pace", "afap", "--json", "-q", "-o", out]
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
