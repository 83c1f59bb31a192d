"""The kjournald case: the verdict must name the known culprit."""

import json
import re
import subprocess
import sys
from pathlib import Path

import pytest

# Verdicts, not lengths: one run must hold.
pytestmark = [
    pytest.mark.root,
    pytest.mark.slow,
    pytest.mark.times,
    pytest.mark.trials(1, least=1),
]
CASES = [
    ("fsync", "ordered", "statsd", "statistics.db"),
    ("fsync", "journal", "statsd", "statistics.db"),
    ("checkpoint", "ordered", "journal", "checkpoint"),
    # Written twice, data fills the journal: both are true, and the remedy is the same.
    ("checkpoint", "journal", "journal", "checkpoint|room there"),
    ("dirindex", "ordered", "directory shared", "names and no index"),
    ("slowdisk", "ordered", "disk", "for a flush"),
]


@pytest.fixture(autouse=True)
def needs_fuse(require):
    require("bpf")
    require("ext3")
    if not Path("/dev/fuse").exists():
        require("fuse", reason="this kernel has no FUSE (/dev/fuse)")


def lab(*words):
    command = [sys.executable, "-m", "spoolscope.cli.main", "lab", "kjournald", *words, "-q"]
    return subprocess.run(command, capture_output=True, text=True, check=False)


@pytest.mark.parametrize(("variant", "data", "culprit", "mechanism"), CASES)
def test_the_verdict_names_what_was_set_up(variant, data, culprit, mechanism):
    done = lab("--variant", variant, "--data", data, "--seconds", "5", "--json")
    assert done.returncode == 0, done.stderr or done.stdout
    case = json.loads(done.stdout)
    print(case)
    if case["sum_error_ns"]:
        pytest.fail(f"parts of a call are {case['sum_error_ns']} ns off its length")
    verdict = case["verdict"]
    assert set(verdict) == {"culprit", "mechanism", "remedy", "share"}
    assert culprit in verdict["culprit"]
    assert re.search(mechanism, verdict["mechanism"])
    assert verdict["remedy"]
    assert 0.1 <= verdict["share"] <= 1
    assert case["as_expected"]


def test_a_kept_trace_is_explained_with_the_same_verdict(tmp_path):
    done = lab("--variant", "slowdisk", "--seconds", "3", "-o", str(tmp_path))
    assert done.returncode == 0, done.stderr
    [trace] = tmp_path.iterdir()
    command = [sys.executable, "-m", "spoolscope.cli.main", "explain", str(trace)]
    explained = subprocess.run(command, capture_output=True, text=True, check=False)
    first = explained.stdout.splitlines()[0]
    assert first.startswith("* The disk takes")
    assert first.split("* ")[1] in done.stdout.replace("\n    ", " ")
