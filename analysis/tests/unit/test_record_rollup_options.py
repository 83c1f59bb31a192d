"""Options that do not go with --rollup, and what a recording of roll-ups says at its end."""

from contextlib import nullcontext
from pathlib import Path

import pytest
from click.testing import CliRunner

from spoolscope.cli import record_rollup
from spoolscope.cli.main import group
from spoolscope.tracers.request import Request
from spoolscope.tracers.rolling import RolledUp
from spoolscope.traces.errors import INCOMPLETE, USAGE, SpoolscopeError


def refused(*words: object) -> str:
    result = CliRunner().invoke(group, ["record", "--rollup", "--spool", "/", *map(str, words)])
    assert isinstance(result.exception, SpoolscopeError)
    assert result.exception.exit_code == USAGE
    return result.exception.message


@pytest.mark.parametrize(
    "words",
    [("--rotate", "1h"), ("--blktrace",), ("--max-overhead", "2"), ("--user-stacks", "all")],
)
def test_records_of_all_calls_are_refused(words, tmp_path):
    assert f"does not go with {words[0]}" in refused(*words, "-o", tmp_path / "r")
    assert not (tmp_path / "r").exists()


def test_a_trace_is_no_place_for_rollups(kitchen_sink):
    assert "is a recording, not a directory of roll-ups" in refused("-o", kitchen_sink)


class Upkeep:
    def end(self):
        pass


def ended(done, monkeypatch):
    """Return the exit code of a recording that gave this."""
    monkeypatch.setattr(record_rollup, "record_rollups", lambda *_, **__: done)
    request = Request(spools=[Path("/var/mail")], output=done.directory, command=["true"])
    return record_rollup.record_sums(
        request, nullcontext(lambda *_: None), lambda _: None, Upkeep(), take_over=False,
        as_json=False,
    )  # fmt: skip


@pytest.mark.parametrize(
    ("facts", "said"),
    [
        ({"failure": "why", "unmounted": ("/m",)}, ["the recorder ended early: why"]),
        ({"hidden": ("/m",)}, ["/m was unmounted, or hidden: of what was done after that nothing"]),
    ],
)
def test_sums_of_a_part_end_with_a_code_that_starts_a_service_again(
    tmp_path, monkeypatch, capsys, facts, said
):
    done = RolledUp(tmp_path, "5ec0de", calls=1, **facts)
    assert ended(done, monkeypatch) == INCOMPLETE
    warnings = [line for line in capsys.readouterr().err.splitlines() if "warning" in line]
    assert len(warnings) == len(said)
    assert all(map(str.__contains__, warnings, said))


def test_the_end_states_the_recorded_time_and_names_the_report(tmp_path, monkeypatch, capsys):
    place = tmp_path / "of two words"
    done = RolledUp(place, "5ec0de", minutes=2, calls=139_670, covered_ns=67_000_000_000)
    assert ended(done, monkeypatch) == 0
    assert capsys.readouterr().out.splitlines() == [
        "139,670 calls in 67.0 s, sums of 2 minutes, lost 0; the recorder took 0 % of a CPU",
        f"Wrote {place}",
        f"Next: spoolscope fleet report '{place}'",
    ]
