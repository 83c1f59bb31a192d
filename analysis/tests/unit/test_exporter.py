"""The exporter's counters are the sums of the roll-ups, each once, and never go back."""

import math
import random
import shutil
import time
from collections.abc import Callable
from datetime import datetime, timedelta
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest
from prometheus_client.openmetrics.parser import text_string_to_metric_families
from prometheus_client.parser import text_string_to_metric_families as plain_families
from rollup_scenes import DEV, MS, Calls, Commits, Minute

from spoolscope.exporter import catalogue as of
from spoolscope.exporter import follower
from spoolscope.exporter.follower import Follower
from spoolscope.exporter.handing_on import Running, Ways, joined
from spoolscope.exporter.minute_sums import MinuteSums, Slots
from spoolscope.exporter.rendering import OPENMETRICS, PLAIN, rendered
from spoolscope.traces.errors import SpoolscopeError
from spoolscope.traces.rollups.buckets import bucket_of
from spoolscope.traces.rollups.schema import VERSION

MIDNIGHT_S = 20_000 * 86_400
NOW_S = int(time.time()) // 60 * 60
USUAL = Minute(
    calls=(
        Calls(10, 3 * MS, waits={"journal_commit": 2 * MS}),
        Calls(100, 20_000, "write", "imap"),
        Calls(5, 9_000, "openat", "imap", failed=1),
    ),
    commits=(Commits(4), Commits(1, 7 * MS, "")),
)

Samples = dict[tuple[str, frozenset], float]


def samples(text: str) -> Samples:
    return {
        (one.name, frozenset(one.labels.items())): one.value
        for family in text_string_to_metric_families(text)
        for one in family.samples
    }


def value(found: Samples, name: str, **labels: str) -> float:
    """Return the sum of the samples that have these labels."""
    asked = labels.items()
    return math.fsum(n for (own, has), n in found.items() if own == name and asked <= has)


class Exporter:
    """A running exporter of a directory, and what it has said."""

    def __init__(self, root: Path, host: str | None = None, programs: int = 20, **ways) -> None:
        self.said: list[str] = []
        follower = Follower(root, host, self.said.append)
        self.running = Running(follower, programs, Ways(**ways), self.said.append)

    def look(self) -> Samples:
        self.running.look()
        return samples(rendered(self.running.sums, OPENMETRICS))


def test_sums_are_those_of_the_roll_ups(tmp_path: Path) -> None:
    USUAL.write(tmp_path, NOW_S, 0)
    exporter = Exporter(tmp_path)
    assert value(exporter.look(), "spoolscope_call_duration_seconds_count") == 0
    for seq in (1, 2):
        USUAL.write(tmp_path, NOW_S + 60 * seq, seq)
    found = exporter.look()
    dev = {"dev": "8:1"}
    assert value(found, "spoolscope_call_duration_seconds_count", family="sync", **dev) == 20
    assert value(found, "spoolscope_call_duration_seconds_sum", family="sync") == 0.06
    assert value(found, "spoolscope_call_time_seconds_total", cause="journal_commit") == 0.04
    all_ns = 2 * (10 * 3 * MS + 100 * 20_000 + 5 * 9_000)
    assert value(found, "spoolscope_call_time_seconds_total") == pytest.approx(all_ns / 1e9)
    assert value(found, "spoolscope_calls_met_total", cause="journal_commit") == 20
    assert value(found, "spoolscope_failed_calls_total") == 10
    assert value(found, "spoolscope_program_calls_total", program="imap") == 210
    assert value(found, "spoolscope_commits_total", program="lmtp") == 8
    assert value(found, "spoolscope_commits_total", program="timer") == 2
    assert value(found, "spoolscope_longest_commit_seconds") == 0.007
    assert value(found, "spoolscope_covered_time_seconds_total") == 120
    assert value(found, "spoolscope_recorder_cpu_seconds_total") == 0.1
    assert value(found, "spoolscope_last_minute_timestamp_seconds") == NOW_S + 180
    assert value(found, "spoolscope_spool_info", fs="ext4", device="TEST DISK") == 1
    assert value(found, "spoolscope_rollup_flushes_total", outcome="read") == 2
    assert exporter.look() == found
    assert exporter.said == []


def test_counts_up_to_each_bound_are_exact() -> None:
    rng = random.Random(3)
    times = [int(10 ** rng.uniform(2, 11)) for _ in range(3000)]
    times += [bound + off for bound in of.BOUNDS_NS for off in (-1, 0, 1)]
    at = [of.bound_of(int(b)) for b in bucket_of(np.array(times, dtype=np.int64))]
    for number, bound in enumerate(of.BOUNDS_NS):
        assert sum(a <= number for a in at) == sum(ns <= bound for ns in times)


def test_counters_never_go_back_and_begin_anew_at_zero(tmp_path: Path) -> None:
    exporter, before = Exporter(tmp_path, "mail1"), {}
    rng = random.Random(5)
    for seq in range(12):
        calls = tuple(
            Calls(rng.randrange(1, 50), rng.randrange(1, 10**9), "fsync", f"p{rng.randrange(15)}")
            for _ in range(6)
        )
        # The clock is set back by a day, then forth by two.
        at = NOW_S + 60 * seq - 86_400 * (seq in (4, 5)) + 86_400 * (seq > 9)
        Minute(calls, (Commits(rng.randrange(9)),)).write(tmp_path, at, seq)
        if seq == 7:  # an old day is removed
            shutil.rmtree(next((tmp_path / f"schema={VERSION}/minutes/host=mail1").glob("date=*")))
        found = exporter.look()
        gauges = ("_timestamp_seconds", "_info", "_commit_seconds")
        back = [key for key, n in before.items()
                if found.get(key, -1.0) < n and not key[0].endswith(gauges)]  # fmt: skip
        assert back == []
        before = found
    anew = Exporter(tmp_path, "mail1").look()
    assert value(anew, "spoolscope_call_duration_seconds_count") == 0
    assert {key[1] for key in before if "commits_total" in key[0]} == {
        key[1] for key in anew if "commits_total" in key[0]
    }


def test_programs_beyond_the_bound_are_summed_as_other(tmp_path: Path) -> None:
    USUAL.write(tmp_path, NOW_S, 0)
    exporter = Exporter(tmp_path, programs=3)  # imap and lmtp are known
    many = tuple(Calls(1, 1000 * n, comm=f"p{n}") for n in range(1, 500))
    storm = tuple(Commits(1, comm=f"p{n}") for n in range(1, 500))
    Minute(many, storm).write(tmp_path, NOW_S + 60, 1)
    found = exporter.look()
    name = "spoolscope_program_calls_total"
    labels = {dict(key[1])["program"] for key in found if key[0] == name}
    assert labels == {"imap", "lmtp", "p499", "other"}  # the free place is for the longest time
    assert value(found, name, program="other") == 498
    assert value(found, name) == 499
    assert value(found, "spoolscope_commits_total") == 499


def test_the_number_of_series_has_a_bound_whatever_the_roll_ups_hold() -> None:
    sums = MinuteSums(20)
    for seq in range(20):
        calls = tuple(
            Calls(1, 10**n, f"call{n}x{seq}", f"{seq}\x1b{n}", {f"cause{n}{seq}": 5})
            for n in range(2, 10)
        )
        minute = Minute(calls, tuple(Commits(1, comm=f"c{seq}{n}") for n in range(30)),
                        {"options": f"rw,{seq}"}, DEV + seq)  # fmt: skip
        sums.add(minute.tables(NOW_S, seq))
    found = samples(rendered(sums, OPENMETRICS))
    devs = {dict(key[1])["dev"] for key in found if "dev" in dict(key[1])}
    assert len(devs) == 9
    assert len(found) / len(devs) < 1150
    assert "\x1b" not in rendered(sums, PLAIN)


def test_a_name_keeps_its_place() -> None:
    slots = Slots(2)
    assert [slots.label(name) for name in "abcab"] == ["a", "b", "other", "a", "b"]


def test_both_forms_hold_the_same_numbers() -> None:
    sums = MinuteSums(20)
    sums.add(USUAL.tables(NOW_S, 0))
    plain = {
        (one.name, frozenset(one.labels.items())): one.value
        for family in plain_families(rendered(sums, PLAIN))
        for one in family.samples
    }
    assert plain == samples(rendered(sums, OPENMETRICS))
    assert " # EOF" not in rendered(sums, PLAIN)
    stamped = rendered(sums, OPENMETRICS, 12 * 10**9)
    assert all(line.endswith(" 12.000000000") for line in stamped.splitlines() if line[0] != "#")


def damage_half(marker: Path) -> None:
    marker.write_bytes(marker.read_bytes()[: marker.stat().st_size // 2])


def damage_missing(marker: Path) -> None:
    Path(str(marker).replace("/minutes/", "/calls/")).unlink()


def damage_foreign(marker: Path) -> None:
    marker.write_text("no roll-up")


@pytest.mark.parametrize("damage", [damage_half, damage_missing, damage_foreign])
def test_a_damaged_roll_up_is_counted_and_said_once(
    tmp_path: Path, damage: Callable[[Path], None]
) -> None:
    USUAL.write(tmp_path, NOW_S, 0)
    exporter = Exporter(tmp_path)
    damage(USUAL.write(tmp_path, NOW_S + 60, 1))
    USUAL.write(tmp_path, NOW_S + 120, 2)
    for _ in range(3):
        found = exporter.look()
    assert value(found, "spoolscope_rollup_flushes_total", outcome="refused") == 1
    assert value(found, "spoolscope_covered_time_seconds_total") == 60
    assert value(found, "spoolscope_missing_rollups_total") == 1
    assert len(exporter.said) == 1
    assert "is left out: " in exporter.said[0]


def test_a_roll_up_that_was_half_there_counts_when_it_is_whole(tmp_path: Path) -> None:
    exporter = Exporter(tmp_path, "mail1")
    marker = USUAL.write(tmp_path, NOW_S, 0)
    whole = marker.read_bytes()
    marker.write_bytes(whole[:100])
    assert value(exporter.look(), "spoolscope_covered_time_seconds_total") == 0
    marker.write_bytes(whole)
    assert value(exporter.look(), "spoolscope_covered_time_seconds_total") == 60
    assert value(exporter.look(), "spoolscope_covered_time_seconds_total") == 60


def test_a_directory_that_vanishes_and_comes_back(tmp_path: Path) -> None:
    root = tmp_path / "rollups"
    USUAL.write(root, NOW_S, 0)
    exporter = Exporter(root)
    USUAL.write(root, NOW_S + 60, 1)
    before = exporter.look()
    root.rename(tmp_path / "away")
    for _ in range(2):
        found = exporter.look()
    assert value(found, "spoolscope_rollups_readable") == 0
    assert value(found, "spoolscope_covered_time_seconds_total") == 60
    assert exporter.said == [f"{root} is gone; the counters stand still until it can be read"]
    (tmp_path / "away").rename(root)
    assert exporter.look() == before
    assert exporter.said[1:] == [f"{root} can be read again"]


class AnHourAfterMidnight(datetime):
    """A clock that stands still."""

    @classmethod
    def now(cls, tz=None) -> datetime:
        return datetime.fromtimestamp(MIDNIGHT_S + 3600, tz)


def clock(ahead: timedelta) -> type[datetime]:
    """Return the clock of a host that is ahead."""

    class Ahead(datetime):
        @classmethod
        def now(cls, tz=None) -> datetime:
            return AnHourAfterMidnight.now(tz) + ahead

    return Ahead


@pytest.mark.parametrize("wrong_first", [True, False])
def test_a_clock_that_was_wrong_and_is_set_right_counts_no_flush_twice(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, wrong_first: bool
) -> None:
    right, wrong = clock(timedelta()), clock(timedelta(days=3))
    monkeypatch.setattr(follower, "datetime", wrong if wrong_first else right)
    USUAL.write(tmp_path, MIDNIGHT_S, 0)
    exporter = Exporter(tmp_path)
    for now in (right, wrong, right):
        monkeypatch.setattr(follower, "datetime", now)
        exporter.look()
    for seq in (1, 2):
        USUAL.write(tmp_path, MIDNIGHT_S + 60 * seq, seq)
        found = exporter.look()
        monkeypatch.setattr(follower, "datetime", wrong)
        exporter.look()
        monkeypatch.setattr(follower, "datetime", right)
        assert exporter.look() == found
        assert value(found, "spoolscope_covered_time_seconds_total") == 60 * seq


def test_only_the_days_that_the_clock_may_come_back_to_are_remembered(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    reader = Follower(tmp_path, "mail1", print)
    for day in range(follower.REMEMBERED + 5):
        monkeypatch.setattr(follower, "datetime", clock(timedelta(days=day)))
        USUAL.write(tmp_path, MIDNIGHT_S + 86_400 * day, day)
        assert len(list(reader.new())) == 1
    first, *_, last = sorted(reader._seen)
    assert len(reader._seen) == follower.REMEMBERED + 2  # yesterday and today are never forgotten
    assert (first, last) == ("date=2024-10-07", "date=2024-10-16")


def test_roll_ups_of_a_newer_version_are_counted_and_said(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(follower, "datetime", AnHourAfterMidnight)
    exporter = Exporter(tmp_path, "mail1")
    USUAL.write(tmp_path, MIDNIGHT_S - 60, 0)
    (tmp_path / f"schema={VERSION}").rename(tmp_path / f"schema={VERSION + 1}")
    USUAL.write(tmp_path, MIDNIGHT_S, 0)
    for _ in range(2):
        found = exporter.look()
    assert value(found, "spoolscope_rollup_flushes_total", outcome="newer") == 1
    assert value(found, "spoolscope_covered_time_seconds_total") == 60
    assert len(exporter.said) == 1
    assert f"version {VERSION + 1}" in exporter.said[0]


def test_losses_clocks_and_recorders_are_counted(tmp_path: Path) -> None:
    USUAL.write(tmp_path, NOW_S, 0)
    exporter = Exporter(tmp_path)
    Minute(columns={"lost": 7}).write(tmp_path, NOW_S + 60, 3)
    Minute(columns={"clock_step_ns": -3000 * MS}).write(tmp_path, NOW_S + 120, 4)
    Minute(columns={"recorder_id": "r2", "clock_step_ns": MS}).write(tmp_path, NOW_S + 180, 0)
    found = exporter.look()
    assert value(found, "spoolscope_lost_calls_total") == 7
    assert value(found, "spoolscope_missing_rollups_total") == 2
    assert value(found, "spoolscope_clock_steps_total") == 1
    assert value(found, "spoolscope_recorder_starts_total") == 1


def test_facts_on_the_recorder_count_once_though_each_spool_has_a_row() -> None:
    sums = MinuteSums(20)
    for seq in (0, 1, 3):
        first = Minute(USUAL.calls, columns={"lost": 2, "clock_step_ns": 5000 * MS})
        others = [Minute(columns={"recorder_ns": 0}, dev=DEV + 1),
                  Minute((Calls(3, MS),), columns={"recorder_ns": 0, "fs": ""}, dev=0)]  # fmt: skip
        tables = [minute.tables(NOW_S + 60 * seq, seq) for minute in (first, *others)]
        sums.add(joined(tables))
    found = samples(rendered(sums, OPENMETRICS))
    assert value(found, "spoolscope_recorder_cpu_seconds_total") == 0.15
    assert value(found, "spoolscope_lost_calls_total") == 6
    assert value(found, "spoolscope_missing_rollups_total") == 1
    assert value(found, "spoolscope_clock_steps_total") == 3
    assert value(found, "spoolscope_recorder_starts_total") == 1
    assert value(found, "spoolscope_covered_time_seconds_total") == 360
    assert value(found, "spoolscope_call_duration_seconds_count", dev="0:0") == 9
    # Calls whose spool is not known do not come every minute: no alert may miss them.
    names = {key[0] for key in found if dict(key[1]).get("dev") == "0:0"}
    assert not [name for name in names if "last_minute" in name or "covered" in name]


GAUGES = (
    "spoolscope_last_minute_timestamp_seconds",
    "spoolscope_longest_commit_seconds",
    "spoolscope_spool_info",
)


def devices(found: Samples, name: str) -> set[str]:
    return {dict(labels)["dev"] for own, labels in found if own == name}


def test_a_device_that_is_recorded_no_longer_has_no_gauges_but_keeps_its_counters(
    tmp_path: Path,
) -> None:
    moved = Minute(USUAL.calls, USUAL.commits, {"recorder_id": "r2"}, dev=DEV + 1)
    USUAL.write(tmp_path, NOW_S, 0)
    running = Exporter(tmp_path)
    before = running.look()
    moved.write(tmp_path, NOW_S + 60, 0)
    for exporter in (running, Exporter(tmp_path)):
        found = exporter.look()
        assert [devices(found, name) for name in GAUGES] == [{"8:2"}] * 3
        assert devices(found, "spoolscope_covered_time_seconds_total") == {"8:1", "8:2"}
    USUAL.write(tmp_path, NOW_S + 120, 1)  # and back
    again = running.look()
    assert [devices(again, name) for name in GAUGES] == [{"8:1"}] * 3
    assert value(before, "spoolscope_covered_time_seconds_total", dev="8:1") == 0
    assert value(again, "spoolscope_covered_time_seconds_total", dev="8:1") == 60


def test_the_longest_commit_is_that_of_the_last_minute_with_commits_or_without() -> None:
    sums = MinuteSums(20)
    other = Minute((), (Commits(1, 9 * MS),), dev=DEV + 1)
    quiet = Minute(dev=DEV + 1)

    def longest_s(*tables: dict[str, pa.Table]) -> list[float]:
        sums.add(joined(tables))
        found = samples(rendered(sums, OPENMETRICS))
        return [
            value(found, "spoolscope_longest_commit_seconds", dev=dev) for dev in ("8:1", "8:2")
        ]

    first = USUAL.tables(NOW_S, 0), other.tables(NOW_S, 0)
    second = Minute().tables(NOW_S + 60, 1), quiet.tables(NOW_S + 60, 1)
    third = Minute().tables(NOW_S + 120, 2), other.tables(NOW_S + 120, 2)
    assert longest_s(*first, *second) == [0, 0]
    assert longest_s(*third) == [0, 0.009]


def test_minutes_of_a_clock_that_was_set_back_are_in_the_order_of_their_numbers() -> None:
    sums = MinuteSums(20)
    later = Minute(columns={"options": "rw,noatime"})
    minutes = [USUAL.tables(NOW_S + 60 * seq, seq) for seq in range(10)]
    minutes += [later.tables(NOW_S + 60 * (seq - 10), seq) for seq in range(10, 13)]
    sums.add(joined(minutes))
    found = samples(rendered(sums, OPENMETRICS))
    assert value(found, "spoolscope_missing_rollups_total") == 0
    assert value(found, "spoolscope_last_minute_timestamp_seconds") == NOW_S + 180
    assert value(found, "spoolscope_spool_info", options="rw,noatime") == 1


def test_several_hosts_need_a_choice(tmp_path: Path) -> None:
    for host in ("mail1", "mail2"):
        USUAL.write(tmp_path, NOW_S, 0, host)
    with pytest.raises(SpoolscopeError, match="has roll-ups of 2 hosts") as error:
        Exporter(tmp_path)
    assert error.value.remedy == "give --host, such as mail1"
    USUAL.write(tmp_path, NOW_S + 60, 1, "mail1")
    chosen = Exporter(tmp_path, "mail2")
    assert value(chosen.look(), "spoolscope_cpus") == 4
    assert chosen.said == []
    mistyped = Exporter(tmp_path, "mial2")
    assert mistyped.said == [f"{tmp_path} has no roll-ups of mial2 yet, but of mail1, mail2"]
    with pytest.raises(SpoolscopeError, match="is no directory"):
        Exporter(tmp_path / "nowhere")


def test_a_flush_that_is_merged_while_the_directory_is_read_is_passed_over(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    USUAL.write(tmp_path, NOW_S, 0)
    exporter = Exporter(tmp_path)
    USUAL.write(tmp_path, NOW_S, 1)
    USUAL.write(tmp_path, NOW_S, 2)
    known = follower.parsed
    gone: list[Path] = []

    def merged_then_parsed(path: str) -> object:
        if not gone:
            gone.append(tmp_path / path)
            gone[0].unlink()
        return known(path)

    monkeypatch.setattr(follower, "parsed", merged_then_parsed)
    exporter.look()
    assert exporter.said == []
    assert gone
