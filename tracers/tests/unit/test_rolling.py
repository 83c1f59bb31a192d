"""A recorder of roll-ups takes up what a killed one left, and leaves minutes to another one."""

import fcntl
import json
import os
from collections.abc import Callable
from dataclasses import asdict, replace
from pathlib import Path

import pytest

from spoolscope.tracers import rolling
from spoolscope.tracers.handover import agree
from spoolscope.tracers.minute_writer import RolledUp, Writer
from spoolscope.tracers.recorder import Event
from spoolscope.tracers.request import Limit, Request
from spoolscope.tracers.rolling import _write_left, record_rollups
from spoolscope.tracers.session import Summary
from spoolscope.tracers.summed import About, Names
from spoolscope.traces import unfinished
from spoolscope.traces.rollups.files import Rollups

ABOUT = About("mail1", "b", "r", "6.12", "1", 4)
TEN_S = 1_800_000_000
DEV = 7 << 20


@pytest.fixture
def work(tmp_path: Path) -> Path:
    """Return a working directory with the note of a recorder."""
    work = tmp_path / "rollups" / ".minutes-r"
    work.mkdir(parents=True)
    (work / unfinished.ABOUT).write_text(json.dumps(asdict(ABOUT)))
    return work


@pytest.fixture
def ends(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """Return the signals by which recorders end themselves."""
    sent: list[int] = []
    monkeypatch.setattr(os, "kill", lambda _pid, number: sent.append(number))
    return sent


def writer_of(work: Path) -> Writer:
    root = work.parent
    return Writer(work, root, ABOUT, Names(None), RolledUp(root, ABOUT.recorder_id), 60)


def minute(work: Path, seq: int, at_s: int) -> dict[str, object]:
    """Write the sums of a minute as the native recorder does; return its event."""
    columns = ("dev", "program", "call", "cause", "size_class", "failed", "bucket", "n", "sum_ns")
    spool = {"mount": "/m", "root": "/", "fstype": "ext4", "options": "rw", "dev": DEV, "disks": []}
    content = {
        "seq": seq, "minute_s": at_s, "covered_ns": 60 * 10**9, "clock_step_ns": 0, "lost": 0,
        "recorder_ns": 100, "call_names": ["read"], "causes": ["", "call"],
        "programs": [["imap", "/"]],
        "calls": dict(zip(columns, ([DEV], [0], [0], [1], [3], [0], [70], [1], [9]), strict=True)),
        "commits": [], "directories": [], "spools": [spool],
    }  # fmt: skip
    file = work / f"minute-{seq:09}.json"
    file.write_text(json.dumps(content))
    return {"event": "minute", "file": file.name}


def written(work_or_root: Path) -> list[int]:
    """Return the numbers of the minutes that are in the roll-ups."""
    rows = Rollups(work_or_root).read("minutes").to_pylist()
    return sorted(row["seq"] for row in rows)


def taken_up(root: Path) -> list[str]:
    """Take up what killed recorders left; return what an operator is told."""
    told: list[str] = []
    _write_left(root, None, told.append)
    return told


def test_a_minute_that_was_written_before_a_kill_is_no_obstacle(
    work: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    writer, unlink = writer_of(work), Path.unlink

    def killed(file: Path, *, missing_ok: bool = False) -> None:
        if file.name.startswith("minute-"):
            raise InterruptedError
        unlink(file, missing_ok=missing_ok)

    writer.spent_ns -= 10**6  # it took a millisecond of CPU time, which is in the tables
    event = minute(work, 0, TEN_S)
    with monkeypatch.context() as patched:
        patched.setattr(Path, "unlink", killed)
        with pytest.raises(InterruptedError):
            writer.on(event)
    minute(work, 1, TEN_S + 60)
    (said,) = taken_up(work.parent)
    assert said.endswith("2 minutes that it left were added, its last one is lost")
    assert written(work.parent) == [0, 1]
    assert not work.exists()


def test_no_minute_is_lost_if_only_the_front_end_was_killed(work: Path) -> None:
    """The native recorder ends in order with its parent."""
    minute(work, 0, TEN_S)
    said = ("", {"event": "minute", "file": "minute-000000000.json"}, {"bytes": 1, "event": "done"})
    (work / "capture.json").write_text("\n".join(map(json.dumps, said)) + "\n")
    (told,) = taken_up(work.parent)
    assert told.endswith("did not end in order: 1 minute that it left was added")
    assert written(work.parent) == [0]


def test_minutes_that_are_damaged_are_set_aside(work: Path) -> None:
    for seq, content in ((0, ""), (1, "[]")):
        (work / f"minute-{seq:09}.json").write_text(content)
    minute(work, 2, TEN_S)
    _, said = taken_up(work.parent)
    aside = work.with_name(".damaged-minutes-r")
    assert said == f"left 2 minutes that are damaged, and lost: remove {aside}/damaged-*"
    assert len(list(aside.glob("damaged-minute-*"))) == 2
    assert written(work.parent) == [2]
    assert taken_up(work.parent) == []


@pytest.mark.parametrize("name", ["about.json", "until.json"])
def test_notes_that_are_damaged_are_set_aside(work: Path, name: str) -> None:
    (work / name).write_text("")
    minute(work, 0, TEN_S)
    (said,) = taken_up(work.parent)
    assert said.endswith(f"{work.with_name('.damaged-minutes-r')} has what is left; remove it")
    assert taken_up(work.parent) == []


def test_damaged_notes_beside_a_flight_recorder_leave_its_segments(tmp_path: Path) -> None:
    captures = tmp_path / "windows-20260101T000000Z" / ".capture"
    captures.mkdir(parents=True)
    (captures / "about.json").write_text("")
    (captures / "capture-000001.seg").touch()
    (said,) = taken_up(tmp_path)
    assert f"{captures}/damaged-about.json has what is left" in said
    assert (captures / "capture-000001.seg").exists()
    assert taken_up(tmp_path) == []


def test_a_clock_that_is_set_back_after_a_take_over_loses_no_minute(work: Path) -> None:
    old = work.with_name(".minutes-old")
    old.mkdir()
    border_s = agree(work, old, TEN_S, 60)
    writer = writer_of(work)
    times = (border_s - 60, border_s, border_s + 60, border_s - 3600, border_s - 3540)
    for seq, at_s in enumerate(times):
        writer.on(minute(work, seq, at_s))
    assert written(work.parent) == [1, 2, 3, 4]


def test_a_recorder_goes_on_if_its_successor_dies_before_the_border(
    work: Path, ends: list[int]
) -> None:
    new = work.with_name(".minutes-new")
    new.mkdir()
    border_s = agree(new, work, TEN_S, 60)
    writer = writer_of(work)
    for seq in range(3):
        writer.on(minute(work, seq, border_s + (seq - 1) * 60))
    assert not writer.done.handed_over
    assert ends == []
    assert written(work.parent) == [0, 1, 2]


def test_a_recorder_ends_for_a_successor_that_runs(work: Path, ends: list[int]) -> None:
    new = work.with_name(".minutes-new")
    new.mkdir()
    unfinished.begin(new, "minutes", work.parent)
    try:
        border_s = agree(new, work, TEN_S, 60)
        writer = writer_of(work)
        for seq in range(2):
            writer.on(minute(work, seq, border_s + (seq - 1) * 60))
    finally:
        unfinished.end(new)
    assert writer.done.handed_over
    assert len(ends) == 1
    assert written(work.parent) == [0]


@pytest.mark.parametrize(
    ("event", "why"),
    [("unmounted", "was unmounted"), ("hidden", "has another filesystem mounted over it")],
)
@pytest.mark.parametrize("has_command", [False, True])
def test_a_spool_that_is_not_seen_any_more_is_told_at_once_and_ends_sums(
    work: Path, ends: list[int], event: str, why: str, *, has_command: bool
) -> None:
    told: list[str] = []
    writer = replace(writer_of(work), tell=told.append, has_command=has_command)
    for spool in ("/var/mail", "/var/old"):
        writer.on({"event": event, "spool": spool})
    done = writer.done
    assert getattr(done, event) == ("/var/mail", "/var/old")
    if has_command:
        assert told[0] == f"goes on, but the spool /var/mail {why}: calls there are in no sum"
        assert (len(told), done.failure, ends) == (2, None, [])
    else:
        assert told == [f"ends, as the spool /var/mail {why}"]
        assert str(done.failure).startswith(f"the spool /var/mail {why}: start it again")
        assert len(ends) == 1


@pytest.mark.parametrize(
    ("ended", "failure", "expected"),
    [
        ("asked", None, None),
        (
            "disk full",
            None,
            "the disk of its windows was full: make room, or give a smaller --last",
        ),
        ("asked", "it died", "it died; the minute that it was in is lost"),
    ],
)
def test_the_full_disk_of_a_flight_recorder_is_a_failure_of_the_sums(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, ended: str, failure: str, expected: str
) -> None:
    (tmp_path / "spool").mkdir()
    monkeypatch.setattr(
        rolling, "record", lambda one, *_, **__: Summary(one.output, 0, {"ended": ended}, failure)
    )
    request = Request([tmp_path / "spool"], tmp_path / "r", keep_names=True, last=Limit(age_s=60))
    done = record_rollups(request)
    assert (done.failure, done.command_status) == (expected, 0)


def test_no_other_recorder_starts_until_this_one_can_be_found(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    root, spool = tmp_path / "rollups", tmp_path / "spool"
    spool.mkdir()
    free = []

    def recorded(request: Request, *_: object, heard: Callable[[Event], None]) -> Summary:
        descriptor = os.open(root, os.O_RDONLY)
        (request.output / ".capture").mkdir(parents=True)
        for event in ("started", "begun"):
            heard({"event": event})
            try:
                fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                free.append(False)
            else:
                free.append(True)
        os.close(descriptor)
        assert (request.output / ".capture" / "about.json").exists()
        return Summary(request.output, None, {})

    monkeypatch.setattr(rolling, "record", recorded)
    record_rollups(Request([spool], root, keep_names=True, last=Limit(age_s=60)))
    assert free == [False, True]


def test_keep_counts_the_windows_of_all_starts_of_a_host(tmp_path: Path) -> None:
    def started(hour: int, host: str, *traces: int, runs: bool = False) -> Path:
        place = tmp_path / f"windows-20260101T{hour:02}0000Z"
        place.mkdir()
        (place / "recording.json").touch()
        (place / "host.json").write_text(json.dumps(host))
        for trace in traces:
            (place / f"frozen-{trace:06}").mkdir()
        if runs:
            (place / ".capture").mkdir()
        return place

    started(1, "mail1", 1, 2)
    second = started(2, "mail1", 1, 2)
    other = started(3, "mail2", 1, 2, 3)
    started(4, "mail1", runs=True)
    third = started(5, "mail1", 9, 10)
    rolling._keep_newest(tmp_path, "mail1", 3)
    left = {path.relative_to(tmp_path) for path in tmp_path.glob("windows-*/frozen-*")}
    expected = [second / "frozen-000002", third / "frozen-000009", third / "frozen-000010"]
    expected += sorted(other.glob("frozen-*"))
    assert left == {path.relative_to(tmp_path) for path in expected}
    assert [place.name[17:19] for place in sorted(tmp_path.iterdir())] == ["02", "03", "04", "05"]


def test_a_new_window_replaces_that_of_an_earlier_start(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    root, spool = tmp_path / "rollups", tmp_path / "spool"
    old = root / "windows-20000101T000000Z"
    for place in (spool, old / "frozen-000001"):
        place.mkdir(parents=True)
    (old / "recording.json").touch()
    (old / "host.json").write_text(json.dumps(rolling.own_host()))

    def recorded(
        request: Request, _progress: object, _tell: object, made: Callable[[Path], None],
        heard: Callable[[Event], None],
    ) -> Summary:  # fmt: skip
        new = request.output / "frozen-000001"
        (request.output / ".capture").mkdir(parents=True)
        heard({"event": "begun"})
        new.mkdir()
        made(new)
        return Summary(request.output, None, {})

    monkeypatch.setattr(rolling, "record", recorded)
    made: list[Path] = []
    request = Request([spool], root, keep_names=True, last=Limit(age_s=60), keep=1)
    done = record_rollups(request, made=made.append)
    assert not old.exists()
    assert done.windows is not None
    assert made == [done.windows / "frozen-000001"]
    assert made[0].exists()
