"""A matrix that was killed and resumed equals one that was not."""

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from spoolscope.replay import mount_points
from spoolscope.replay.run import replay

pytestmark = [pytest.mark.root, pytest.mark.steady]
MAIN = [sys.executable, "-m", "spoolscope.cli.main"]
DIR = 0o040750
MATRIX = """
candidates = ["xfs", "ext4"]
rounds = 2
pace = "afap"
seed = 5
cache = "warm"
reference = "ext4"
"""


def words(place: Path, out: str) -> list[str]:
    return ["replay", str(place / "trace"), "--matrix", str(place / "m.toml"), "--no-record",
            "-o", str(place / out)]  # fmt: skip


def runs_of(header: dict) -> list[tuple]:
    return [
        (run["run"], run["round"], run["position"], run["cache"], run["executed"], run["divergent"],
         run["final_state"]["mismatched"], run["mkfs"], run["mount_options"])
        for run in header["runs"]
    ]  # fmt: skip


def spoolscope(*given: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run([*MAIN, *given], capture_output=True, text=True, check=False)


def test_a_killed_matrix_goes_on_and_equals_one_that_was_not(script, tmp_path, require):
    require("ext4")
    require("xfs")
    script.entry("box", ino=2, mode=DIR)
    for number in range(50):
        script.call(10, 10 * number + 1, "mkdir", f"box/{number}", mode=0o700)
        script.call(10, 10 * number + 2, "rename", f"box/{number}", path2=f"box/n{number}")
    script.write(tmp_path / "trace")
    (tmp_path / "m.toml").write_text(MATRIX)
    whole = spoolscope(*words(tmp_path, "whole"))
    assert whole.returncode == 0, whole.stderr
    assert "4 runs on 2 candidates take about" in whole.stderr
    assert "; 4 of 4 runs\n" in whole.stderr

    killed = tmp_path / "killed"
    process = subprocess.Popen([*MAIN, *words(tmp_path, "killed")], stderr=subprocess.DEVNULL)
    deadline = time.monotonic() + 30
    while len(list(killed.glob("*-r*"))) < 2:  # the second run has begun
        assert time.monotonic() < deadline
        time.sleep(0.01)
    process.send_signal(signal.SIGKILL)
    process.wait()
    before = json.loads((killed / "replay.json").read_text())
    assert (len(before["runs"]), before["finished"]) == (1, False)
    (scratch,) = killed.glob(".spoolscope-*")

    # On resuming, the reference may be another one, but the candidates may not.
    other = spoolscope(*words(tmp_path, "killed"), "--on", "btrfs", "--resume")
    assert other.returncode == 2
    assert "was made otherwise: candidates" in other.stderr
    again = spoolscope(*words(tmp_path, "killed"), "--resume")
    assert again.returncode == 0, again.stderr
    assert "1 of 4 runs on 2 candidates are finished, the others take" in again.stderr
    assert not scratch.exists()
    one, other = (
        json.loads((tmp_path / name / "replay.json").read_text()) for name in ("whole", "killed")
    )
    for key in ("order", "seed", "reference", "candidates", "finished", "rounds", "asked"):
        assert one[key] == other[key]
    assert runs_of(one) == runs_of(other)
    assert other["runs"][0] == before["runs"][0]
    assert sorted(one["order"][:2]) == ["ext4-r1", "xfs-r1"]
    assert sum(run[5] + run[6] for run in runs_of(other)) == 0
    assert {run[4] for run in runs_of(other)} == {100}
    assert spoolscope("clean").stdout == "Nothing is left of killed commands.\n"
    compared = json.loads(spoolscope("compare", str(killed), "--json").stdout)
    assert (compared["reference"], compared["rounds"]) == ("ext4", 2)


def test_a_signal_in_the_clean_up_of_a_run_ends_the_matrix(script, tmp_path, require, monkeypatch):
    require("ext4")
    script.call(10, 1, "mkdir", "box", mode=0o700)
    vacates, places = mount_points.vacated, []

    def with_a_signal(place: Path, descriptor: int) -> None:
        os.kill(os.getpid(), signal.SIGINT)
        vacates(place, descriptor)
        places.append(place)

    monkeypatch.setattr(mount_points, "vacated", with_a_signal)
    trace, out = script.write(tmp_path / "trace"), tmp_path / "out"
    with pytest.raises(KeyboardInterrupt):
        replay(trace, ["ext4"], out, rounds=3, pace="afap")
    assert len(list(out.glob("*-r*"))) == 1
    assert len(places) == 1
    assert not list(out.glob(".spoolscope-*"))
