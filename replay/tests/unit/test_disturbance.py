"""A disturbed run is recognized, and made again as often as is allowed."""

import subprocess
import sys
import time
from pathlib import Path
from types import SimpleNamespace

import pytest

from spoolscope.replay import run
from spoolscope.replay.disturbance import Reading, Watch, disturbance
from spoolscope.replay.one_run import with_making

S = 1_000_000_000
START = Reading(1000 * S, 500 * S, 7 * S, 50 * S, {2: 9 * S}, {"cpu": 100, "io": 5})


def after_ten_seconds(own_s: float, kernel_s: float, others_s: float, steal_s: float) -> Reading:
    """Return a reading of two CPUs, with times of the replay, kernel threads, others, the host."""
    busy = own_s + kernel_s + others_s
    return Reading(
        all_ns=1020 * S,
        programs_ns=int((500 + busy) * S),
        steal_ns=int((7 + steal_s) * S),
        own_ns=int((50 + own_s) * S),
        kernel_ns={2: 9 * S, 3: int(kernel_s * S)},
        pressure_us={"cpu": 100 + 2_500_000, "io": 5},
    )


@pytest.mark.parametrize(
    ("own_s", "kernel_s", "others_s", "steal_s", "why"),
    [
        (15, 4, 1, 0, []),  # others had 5 %
        (5, 1, 4, 0, ["programs outside the replay had 20 % of the CPUs' time"]),
        (5, 1, 0, 0.6, ["the host took 3.0 % of the CPUs' time"]),
        (5, 1, 0, 0.2, []),
    ],
)
def test_time_of_others_and_of_the_host_disturbs(own_s, kernel_s, others_s, steal_s, why):
    found = disturbance(START, after_ten_seconds(own_s, kernel_s, others_s, steal_s), 10 * S)
    assert found["why"] == why
    assert found["foreign"] == pytest.approx(others_s / 20)
    assert found["steal"] == pytest.approx(steal_s / 20)
    assert found["some_waited"] == {"cpu": pytest.approx(0.25), "io": 0}


def test_a_moment_is_too_short_to_be_judged():
    assert not disturbance(START, after_ten_seconds(5, 1, 9, 1), S // 2)["why"]


def cpu_s(pid: int) -> float:
    return int(Path(f"/proc/{pid}/schedstat").read_text().split()[0]) / S


def test_a_program_that_takes_a_cpu_is_seen():
    """Its time is at least that of the scheduler's count; other programs may add to it."""
    hog = subprocess.Popen([sys.executable, "-c", "while True: pass"])
    try:
        before, watch = cpu_s(hog.pid), Watch()
        time.sleep(1.5)
        had, found = cpu_s(hog.pid) - before, watch.end()
    finally:
        hog.kill()
        hog.wait()
    whole = 1.5 * len(Path("/proc/stat").read_text().split("cpu")[2:])
    assert had > 0.1
    assert found["foreign"] > 0.7 * had / whole
    assert watch.end() is found


@pytest.mark.parametrize(
    ("disturbed", "repeats", "made"), [([], 2, 1), ([1], 2, 2), ([1, 2, 3], 2, 3), ([1], 0, 1)]
)
def test_a_disturbed_run_is_made_again_a_few_times(monkeypatch, tmp_path, disturbed, repeats, made):
    seen: list[int] = []

    def run_once(_job: object, _slot: object, _show: object, repeated: list) -> dict:
        (tmp_path / "ext4-r1").mkdir()  # fails if it is still there
        seen.append(len(repeated))
        why = ["noise"] if len(seen) in disturbed else []
        return {"disturbance": {"why": why}, "repeated": [one["disturbance"] for one in repeated]}

    monkeypatch.setattr(run, "run_once", run_once)
    job, slot = SimpleNamespace(out=tmp_path, repeats=repeats), SimpleNamespace(name="ext4-r1")
    row = run._undisturbed(job, slot, None)
    assert seen == list(range(made))
    assert len(row["repeated"]) == made - 1
    assert (tmp_path / "ext4-r1").is_dir()


def test_the_making_of_a_filesystem_stays_when_its_run_is_made_again():
    made = {"steps": {"mkfs": {"ns": 5}, "fill": {"ns": 7}, "umount": {"ns": 1}},
            "device": {"fill": {"writes": 3}, "replay": {"writes": 9}},
            "capacity": {"after_mkfs": {"total_bytes": 8}}}  # fmt: skip
    copy = {"steps": {"mount_copied": {"ns": 2}, "umount": {"ns": 4}},
            "device": {"replay": {"writes": 6}}}  # fmt: skip
    found = with_making(copy, [made, copy])
    assert found["steps"] == {
        "mkfs": {"ns": 5}, "fill": {"ns": 7}, "mount_copied": {"ns": 2}, "umount": {"ns": 4},
    }  # fmt: skip
    assert found["device"] == {"fill": {"writes": 3}, "replay": {"writes": 6}}
    assert found["capacity"] == {"after_mkfs": {"total_bytes": 8}}
    assert with_making(copy, []) == copy
