"""Options that do not go with --rollup."""

import pytest
from click.testing import CliRunner

from spoolscope.cli.main import group
from spoolscope.traces.errors import USAGE, SpoolscopeError


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
