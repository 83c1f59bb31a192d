"""The verb prune says what it removes, and refuses what would be a mistake."""

import json
import time
from datetime import UTC, datetime
from pathlib import Path

import pytest
from click.testing import CliRunner, Result
from rollup_scenes import MS, Calls, Minute

from spoolscope.cli.main import group
from spoolscope.traces.errors import INCOMPLETE, SpoolscopeError
from spoolscope.traces.rollups import retention

DAY_S = 86_400
NOW_S = 20_000 * DAY_S


def prune(*words: object) -> Result:
    done = CliRunner().invoke(group, ["prune", *map(str, words)], standalone_mode=False)
    if done.exception is not None:
        raise done.exception
    return done


class Clock(datetime):
    """A clock that stands still, so that no test runs over midnight."""

    @classmethod
    def now(cls, tz=None) -> datetime:
        return datetime.fromtimestamp(NOW_S + DAY_S // 2, tz or UTC)


@pytest.fixture
def rollups(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setattr(retention, "datetime", Clock)
    for seq, ago in enumerate((100, 95, 3, 0)):
        Minute((Calls(5, MS),)).write(tmp_path, NOW_S - ago * DAY_S, seq)
    return tmp_path


def day(ago: int) -> str:
    return time.strftime("%Y-%m-%d", time.gmtime(NOW_S - ago * DAY_S))


def test_it_says_what_it_removes(rollups: Path) -> None:
    asked = prune(rollups, "--retain", "90d", "-n").stdout.splitlines()
    done = prune(rollups, "--retain", "90d")
    assert [line.replace("Would remove", "Removed") for line in asked] == done.stdout.splitlines()
    assert done.stdout.splitlines()[:2] == [
        f"Removed {day(100)} of mail1: too old",
        f"Removed {day(95)} of mail1: too old",
    ]
    assert done.stdout.splitlines()[2].startswith("Removed 8 files, ")
    assert prune(rollups, "--retain", "90d").stdout.startswith("Removed 0 files, 0 B; ")


def test_a_quota_below_the_current_day_is_said(rollups: Path) -> None:
    done = prune(rollups, "--quota", "1K", "--json")
    facts = json.loads(done.stdout)
    assert [one["why"] for one in facts["removed"]] == ["size"] * 3
    assert facts["left_bytes"] > 1024
    assert "the current day alone is larger than the quota" in done.stderr
    assert done.return_value == INCOMPLETE


def test_a_wrong_clock_is_said(rollups: Path) -> None:
    prune(rollups, "--retain", "90d")
    done = prune(rollups, "--retain", "1d")
    assert "nothing is removed by age: the clock says" in done.stderr
    assert done.return_value == INCOMPLETE


@pytest.mark.parametrize(
    ("words", "message"),
    [([], "no limit given"), (["--retain", "90"], "is no number of days"),
     (["--retain", "0d"], "is no number of days"), (["--quota", "5m"], "give a size such as 2G"),
     (["--quota", "100000"], "has no unit; give a size")],
)  # fmt: skip
def test_wrong_usage_is_refused(rollups: Path, words: list[str], message: str) -> None:
    with pytest.raises(Exception, match=message):
        prune(rollups, *words)
    with pytest.raises(SpoolscopeError, match="is no directory of this machine"):
        prune(rollups / "none", "--retain", "90d")
