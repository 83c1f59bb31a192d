"""The benchmark runs from end to end; its counts agree with those of the loads."""

import json
import subprocess
import sys
from pathlib import Path

import kernel_time
import pytest
import stream
from recorder import Recorder
from workloads import WORKLOADS, Ground, compile_loads

SCRIPT = Path(kernel_time.__file__).with_name("overhead.py")
pytestmark = [pytest.mark.root, pytest.mark.steady]
SETUP_CALLS = 1000  # calls that make the load's directories before it and remove them afterwards


@pytest.fixture
def ground(spool, tmp_path):
    compile_loads(tmp_path)
    return Ground(tmp_path, spool("ext4"))


def overhead(*words: str) -> str:
    command = [sys.executable, SCRIPT, "--quick", *words]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return done.stdout


@pytest.mark.slow
def test_every_tool_has_figures_or_a_reason(require):
    for capability in ("bpf", "ext4", "strace", "bpftrace"):
        require(capability)
    result = json.loads(overhead("--only", "delivery", "--only", "elsewhere", "--json"))
    for load in result["series"].values():
        measured = {name for name, tool in load["tools"].items() if tool["n"]}
        assert {"untraced", "filtered out", "spoolscope", "strace -f", "bpftrace"} <= measured
        assert measured | result["missing"].keys() >= {"strace %file", "perf trace", "perf record"}


@pytest.mark.slow
def test_the_mail_servers_have_figures_or_a_reason(require):
    require("ext4")
    result = json.loads(overhead("--ours", "--only", "rig", "--json"))
    if "rig" in result["missing"]:
        assert result["missing"]["rig"]
    else:
        assert all(tool["n"] == 1 for tool in result["series"]["rig"]["tools"].values())


def test_a_process_outside_any_session_is_measured(require, tmp_path):
    for capability in ("bpf", "ext4"):
        require(capability)
    none = tmp_path / "autogroup"  # the file is empty if no ancestor called setsid(2)
    none.touch()
    script = (
        f'mount --bind {none} /proc/$$/autogroup && test -z "$(</proc/$$/autogroup)" && exec "$@"'
    )
    command = [sys.executable, SCRIPT, "--quick", "--ours", "--only", "elsewhere", "--json"]
    shell = ["unshare", "--mount", "bash", "-c", script, "bash"]
    done = subprocess.run([*shell, *command], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout)["series"]["elsewhere"]["tools"]["spoolscope"]["n"] == 1


def test_the_parts_without_other_tools(require):
    for capability in ("bpf", "ext4"):
        require(capability)
    parts = ("metadata", "kernel", "consumer", "firehose")
    words = [word for part in parts for word in ("--only", part)]
    result = json.loads(overhead("--ours", "--json", *words))
    programs = result["kernel"]["traced"]["metadata"]["programs"]
    assert programs.keys() <= kernel_time.class_by_name().keys()
    assert 0 < result["kernel"]["floor"]["sys_enter"] < programs["on_enter"]["ns_per_run"]
    assert result["firehose"]["unaccounted"] == result["firehose"]["lost"] == 0
    assert result["consumer"]["metadata"]["ring_bytes_per_call"] > 0
    judged = {verdict["verdict"] for verdict in result["targets"]}
    assert judged <= {"reached", "not reached", "undecided"}
    assert len(result["targets"]) == 1 + 3 + 3 + 1


@pytest.mark.parametrize("load", [w for w in WORKLOADS if w.processes > 1], ids=lambda w: w.name)
def test_a_load_knows_its_calls(ground, load):
    with Recorder(ground.spool, ground.work / "capture.seg") as recorder:
        run = ground.run(load, scale=0.2)
        recorder.stop()
        assert recorder.lost == 0
        recorded = sum(map(stream.count_records, stream.parts(recorder.output)))
    assert run.calls <= recorded <= run.calls + SETUP_CALLS


def test_ring_bytes_are_those_of_the_records(ground):
    """Only one load is recorded: bytes must grow in proportion to its calls."""
    load = next(w for w in WORKLOADS if w.name == "metadata")
    with Recorder(ground.spool, ground.work / "capture.seg") as recorder:
        before = recorder.rings.produced()
        first = ground.run(load, scale=0.2)
        middle = recorder.rings.produced()
        second = ground.run(load, scale=0.2)
        after = recorder.rings.produced()
    a_call = (middle - before) / first.calls
    assert 16 < a_call < 4096
    assert (after - middle) / second.calls == pytest.approx(a_call, rel=0.2)
