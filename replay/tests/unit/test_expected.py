"""How long the runs that are left will take, and that there is room for them."""

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
    monkeypatch.setattr(expected, "running_s", lambda _job: {"all": 30.0})
    work = tmp_path / "work"
    work.mkdir()
    summary = SimpleNamespace(syscalls=1000)
    return SimpleNamespace(
        begin=Begin(), work=work, out=tmp_path, recorder=None, summary=summary, devices=None
    )


def row(candidate: str, seconds: float) -> dict:
    return {"candidate": candidate, "wall_ns": int(seconds * 1e9)}


def test_what_is_left_takes_as_long_as_runs_of_the_candidate_took(job):
    runs = slots([parse("ext4"), parse("xfs")], 3, 0)
    time = Expected(job, runs)
    assert time.begin([]) == "6 runs on 2 candidates take about 3 min"  # 6 times 30 s
    names = [slot.candidate.name for slot in runs]
    took = {"ext4": 2.0, "xfs": 6.0}
    for done, name in enumerate(names, 1):
        said = time.after(row(name, took[name]), done)
        if 2 <= done < 6:
            left = sum(took[later] for later in names[done:])
            shown = f"{left:.1f} s" if left < 10 else f"{left:.0f} s"
            assert said.endswith(f"{done} of 6 runs, about {shown} left")
    assert said == f"{runs[5].name} took {took[names[5]]:.1f} s; 6 of 6 runs"


def test_finished_runs_are_known_when_a_replay_goes_on(job):
    runs = slots([parse("ext4")], 4, 0)
    assert Expected(job, runs).begin([row("ext4", 10), row("ext4", 20)]) == (
        "2 of 4 runs on 1 candidate are finished, the others take about 30 s"
    )


def test_the_worst_candidate_is_named_when_there_is_no_room_for_it(job, monkeypatch):
    """Ext2 has its whole image written when it is aged, ext4 half of it."""
    runs = slots([parse("ext4"), parse("ext2")], 2, 0)
    free = SimpleNamespace(free=3 * GIB)
    monkeypatch.setattr(expected.shutil, "disk_usage", lambda _place: free)
    check_room(job, runs)
    job.begin = replace(job.begin, age=Age(0, 2.0))
    with pytest.raises(SpoolscopeError) as refused:
        check_room(job, runs)
    assert "the image of ext2 and what 4 runs leave may take 4,096 MiB" in refused.value.message
    assert str(Path(job.work).parent) in refused.value.message
