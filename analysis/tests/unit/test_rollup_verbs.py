"""The verbs gaps, compact and upload, as text and as JSON."""

import json
from pathlib import Path

import pytest
from click.testing import CliRunner, Result
from spoolscope_testing.rollups import START_S, RollupMaker

from spoolscope.cli.main import group
from spoolscope.traces.errors import INCOMPLETE, SpoolscopeError


def run(*words: object, code: int = 0) -> Result:
    result = CliRunner().invoke(group, [str(word) for word in words], standalone_mode=False)
    if result.exception is not None:
        raise result.exception
    assert (result.return_value or 0) == code, result.output
    return result


@pytest.fixture
def rollups(tmp_path: Path) -> Path:
    RollupMaker().write(tmp_path / "rollups")
    return tmp_path / "rollups"


def test_gaps_names_hosts_and_what_is_wrong(rollups: Path) -> None:
    assert run("gaps", rollups, "--deep").stdout.splitlines() == [
        "host   from (UTC)        to                covered            calls",
        "mail1  2026-03-01 23:50  2026-03-02 00:10    100 %            2,000",
    ]
    next((rollups / "schema=1/minutes").rglob("*-00000005.parquet")).unlink()
    lines = run("gaps", rollups, code=INCOMPLETE).stdout.splitlines()
    assert "Minutes that were recorded, but are not there: 5." in lines
    assert "    mail1: 5" in lines
    found = json.loads(run("gaps", rollups, "--json", code=INCOMPLETE).stdout)
    assert not found["complete"]
    assert {f["kind"]: f["n"] for f in found["findings"]} == {"half-written": 3, "missing": 5}
    assert found["hosts"][0]["share"] == 0.75


def test_gaps_of_some_days_and_hosts(rollups: Path) -> None:
    RollupMaker(host="mail2").write(rollups)
    lines = run("gaps", rollups, "--host", "mail2", "--since", "2026-03-02").stdout.splitlines()
    assert lines[1] == "mail2  2026-03-02 00:00  2026-03-02 00:10    100 %            1,000"
    assert len(lines) == 2
    none = run("gaps", rollups, "--until", "2026-02-01", code=INCOMPLETE).stdout
    assert none == "No minute of these hosts and days is there.\n"


def test_gaps_names_hosts_without_a_minute(rollups: Path) -> None:
    RollupMaker(host="mail2", start_s=START_S + 86_400).write(rollups)
    since = ["--since", "2026-03-03"]
    lines = run("gaps", rollups, *since, code=INCOMPLETE).stdout.splitlines()
    assert lines[1].startswith("mail2  2026-03-03 00:00")
    assert lines[2:] == [
        "Hosts without a minute of these days: 1.",
        "    mail1: its last day before is 2026-03-02",
    ]
    assert len(run("gaps", rollups, *since, "--host", "mail2").stdout.splitlines()) == 2
    named = ["--host", "mail1", "--host", "mail", "--until", "2026-03-02"]
    found = json.loads(run("gaps", rollups, *named, "--json", code=INCOMPLETE).stdout)
    assert not found["complete"]
    assert found["findings"][0]["examples"] == ["mail: it has no day"]
    assert [host["host"] for host in found["hosts"]] == ["mail1"]
    early = run("gaps", rollups, "--host", "mail2", "--until", "2026-03-01", code=INCOMPLETE)
    assert early.stdout.splitlines()[1] == "    mail2: its first day is 2026-03-02"


def test_compact_says_what_it_merged(rollups: Path) -> None:
    first = run("compact", rollups, "--until", "2026-03-01").stdout
    assert first.startswith("2 flushes merged into 1, one for each host and day\n")
    assert json.loads(run("compact", rollups, "--json").stdout)["flushes"] == 2
    assert run("compact", rollups).stdout.startswith("Nothing to merge up to ")


def test_compact_by_hour_sums_old_days_up(rollups: Path) -> None:
    assert json.loads(run("compact", rollups, "--json").stdout)["days"] == 2
    merged = json.loads(run("compact", rollups, "--by-hour", "1d", "--json").stdout)
    assert (merged["days"], merged["flushes"]) == (2, 2)
    assert merged["rows_after"] < merged["rows_before"]
    assert run("compact", rollups, "--by-hour", "1d").stdout.startswith("Nothing to merge up to ")
    assert "100 %" in run("gaps", rollups, "--deep").stdout


def test_a_damaged_flush_is_named_and_neither_merged_nor_sent(rollups: Path) -> None:
    file = next((rollups / "schema=1/calls").rglob("*-00000005.parquet"))
    file.write_bytes(file.read_bytes()[:-1])
    sent = run("upload", rollups, rollups.parent / "there", code=INCOMPLETE)
    assert sent.stdout.startswith("3 flushes sent, ")
    assert "5ec0de-00000005.parquet is not sent: calls has changed" in sent.stderr
    merged = run("compact", rollups, "--json", code=INCOMPLETE)
    assert list(json.loads(merged.stdout)["damaged"]) == [
        "schema=1/minutes/host=mail1/date=2026-03-01/5ec0de-00000005.parquet"
    ]
    assert "is left as it is: calls has changed" in merged.stderr


def test_upload_sends_nothing_twice_and_changes_nothing(rollups: Path) -> None:
    there = rollups.parent / "there"
    assert json.loads(run("upload", rollups, there, "--json").stdout)["sent"] == 4
    assert run("upload", rollups, there).stdout == "0 flushes sent, 0 B; 4 were there\n"
    RollupMaker(calls=7).write(rollups.parent / "others")
    refused = run("upload", rollups.parent / "others", there, code=INCOMPLETE)
    assert refused.stderr.count("has it with other rows") == 4


@pytest.mark.parametrize("verb", [["gaps"], ["compact"], ["upload"]])
def test_a_directory_without_rollups_is_one_clear_error(tmp_path: Path, verb: list[str]) -> None:
    target = [tmp_path / "there"] if verb == ["upload"] else []
    with pytest.raises(SpoolscopeError, match="has no roll-ups") as raised:
        run(*verb, tmp_path, *target)
    assert "record --rollup" in raised.value.remedy
