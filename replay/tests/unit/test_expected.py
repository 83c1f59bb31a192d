"""The time that the remaining runs will take, and the check that there is room for them."""

from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace

import pytest

from spoolscope.replay import expected
from spoolscope.replay.age import Age
from spoolscope.replay.candidates import parse
from spoolscope.replay.expected import Expected, check_room
from spoolscope.replay.job import Begin, slots
from spoolscope.traces.errors import SpoolscopeError

GIB = 1 << 30


@pytest.fixture
def job(tmp_path, monkeypatch):
    """A job of 1000 calls whose image has 4 GiB."""
    monkeypatch.setattr(expected, "image_size", lambda _job: 4 * GIB)
    work = tmp_path / "work"
    work.mkdir()
    summary = SimpleNamespace(syscalls=1000)
    return SimpleNamespace(
        begin=Begin(), work=work, out=tmp_path, recorder=None, summary=summary, devices=None
    )


def row(candidate: str, seconds: float) -> dict:
    return {"candidate": candidate, "wall_ns": int(seconds * 1e9)}


@pytest.fixture
def said() -> list[str]:
    return []


def test_what_is_left_takes_as_long_as_runs_of_the_candidate_took(said):
    runs = slots([parse("ext4"), parse("xfs")], 3, 0)
    time = Expected(said.append)
    time.begin(runs, [], 30.0)
    assert said.pop() == "6 runs on 2 candidates take about 3 min"  # 6 times 30 s
    names = [slot.candidate.name for slot in runs]
    took = {"ext4": 2.0, "xfs": 6.0}
    for done, name in enumerate(names, 1):
        time.after(row(name, took[name]))
        if 2 <= done < 6:
            left = sum(took[later] for later in names[done:])
            shown = f"{left:.1f} s" if left < 10 else f"{left:.0f} s"
            assert said[-1].endswith(f"{done} of 6 runs, about {shown} left")
    assert said[-1] == f"{runs[5].name} took {took[names[5]]:.1f} s; 6 of 6 runs"


def test_finished_runs_are_known_when_a_replay_goes_on(said):
    runs = slots([parse("ext4")], 4, 0)
    Expected(said.append).begin(runs, [row("ext4", 10), row("ext4", 20)], 99.0)
    assert said == ["2 of 4 runs on 1 candidate are finished, the others take about 30 s"]


def test_one_run_needs_no_estimate(said):
    time = Expected(said.append)
    time.begin(slots([parse("ext4")], 1, 0), [], 30.0)
    time.after(row("ext4", 10))
    assert said == []


def test_machines_that_are_not_booted_yet_take_their_time(said):
    """Two kernels, two rounds: four machines of one run each."""
    runs = slots([parse("ext4@6.1"), parse("ext4@6.12")], 2, 0)
    time = Expected(said.append)
    time.begin(runs, [], 10.0, boot_s=4.0)
    time.took(runs[0].candidate.name, 10.0)
    time.booted(6.0)
    time.took(runs[1].candidate.name, 20.0)
    assert said == [
        "4 runs on 2 candidates take about 52 s",  # 4 times 10 s, three boots of 4 s
        f"{runs[0].name} took 10 s; 1 of 4 runs, about 42 s left",
        f"{runs[1].name} took 20 s; 2 of 4 runs, about 40 s left",  # 10 + 20 s, two boots of 5 s
    ]


def test_a_clock_that_counts_instructions_tells_no_times(said):
    runs = slots([parse("ext4")], 3, 0)
    counted = row("ext4", 1.0) | {"machine": {"icount": True}}
    Expected(said.append).begin(runs, [counted], 30.0)
    assert said == ["1 of 3 runs on 1 candidate are finished, the others take about 60 s"]


def test_the_worst_candidate_is_named_when_there_is_no_room_for_it(job, monkeypatch):
    """Ageing writes the whole image of ext2, and half of that of ext4."""
    runs = slots([parse("ext4"), parse("ext2")], 2, 0)
    free = SimpleNamespace(free=3 * GIB)
    monkeypatch.setattr(expected.shutil, "disk_usage", lambda _place: free)
    check_room(job, runs)
    job.begin = replace(job.begin, age=Age(0, 2.0))
    with pytest.raises(SpoolscopeError) as refused:
        check_room(job, runs)
    assert "the image of ext2 and what 4 runs leave may take 4,096 MiB" in refused.value.message
    assert str(Path(job.work).parent) in refused.value.message
