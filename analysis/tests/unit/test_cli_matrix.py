"""The matrix file: its keys are options, which override it if they are given."""

import click
import pytest

from spoolscope.cli.matrix import with_matrix
from spoolscope.cli.replay import command
from spoolscope.traces.errors import USAGE, SpoolscopeError

TEXT = """
candidates = ["ext4", "xfs"]
rounds = 5
pace = "afap"
cache = "warm"
age = 2
seed = 7
"""


def told(tmp_path, text, *words):
    """Return the verb's options with this file."""
    (tmp_path / "m.toml").write_text(text)
    given = ["TRACE", "--matrix", str(tmp_path / "m.toml"), *words]
    with click.Context(command) as context:
        command.parse_args(context, given)
        return with_matrix(context.params)


def test_words_of_the_file_are_options(tmp_path):
    found = told(tmp_path, TEXT)
    assert found["candidates"] == ("ext4", "xfs")
    assert [found[key] for key in ("rounds", "pace", "cache", "age", "seed")] == [
        5, "afap", "warm", 2.0, 7,
    ]  # fmt: skip
    assert found["reference"] == "ext4"  # the first


def test_options_that_are_given_count_more(tmp_path):
    found = told(tmp_path, TEXT + "reference = 'xfs'", "--rounds", "1", "--seed=0", "--on", "btrfs")
    assert found["candidates"] == ("ext4", "xfs", "btrfs")
    assert (found["rounds"], found["seed"], found["pace"]) == (1, 0, "afap")
    assert found["reference"] == "xfs"


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("candidates = 'ext4'", "candidates is no list of texts"),
        ("candidates = [1]", "candidates is no list of texts"),
        ("round = 3", "unknown: round"),
        ("rounds = 0", "rounds: '0' is no whole number from 1"),
        ("rounds = 2.5", "rounds: '2.5' is no whole number"),
        ("rounds = true", "rounds is neither a number nor a text"),
        ("cache = 'tepid'", "cache: "),
        ("rounds = ", "m.toml is no matrix"),
    ],
)
def test_what_no_option_could_say_is_refused(tmp_path, text, why):
    with pytest.raises(SpoolscopeError) as refused:
        told(tmp_path, text)
    assert why in refused.value.message
    assert refused.value.exit_code == USAGE
    assert "candidates = ['ext4', 'xfs']" in refused.value.remedy


def test_a_file_that_is_not_there_is_refused(tmp_path):
    with click.Context(command) as context:
        command.parse_args(context, ["TRACE", "--matrix", str(tmp_path / "none.toml")])
        with pytest.raises(SpoolscopeError, match="no matrix"):
            with_matrix(context.params)
