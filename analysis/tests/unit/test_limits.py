"""Numbers on the command line: every numeric option of every verb refuses impossible values."""

from collections.abc import Iterator
from pathlib import Path

import click
import pytest
from click.testing import CliRunner

from spoolscope.cli.freeze_rules import FreezeRuleType
from spoolscope.cli.limits import Days, Duration, LimitType, Number, Size
from spoolscope.cli.main import group
from spoolscope.traces.errors import USAGE, SpoolscopeError

ABSURD = ("nan", "inf", "-inf", "-1", "1e300", "1e30", "9" * 400, "0x10", "1_0", "")
# Texts with numbers that verbs parse themselves.
TEXTS = {
    "pace": "scaled={}",
    "age": "{}",
    "part": "{}..",
    "window": "{}",
    "freeze_on": "slow={}",
}
NUMBERS = (Number, Duration, LimitType, Days, Size, FreezeRuleType)


def leaves(command: click.Command, words: tuple[str, ...]) -> Iterator[tuple[str, ...]]:
    """Yield the words of each verb, down to the last group."""
    if not isinstance(command, click.Group):
        yield words
        return
    context = click.Context(command)
    for name in command.list_commands(context):
        below = command.get_command(context, name)
        assert below is not None
        yield from leaves(below, (*words, name))


def command_of(words: tuple[str, ...]) -> click.Command:
    command: click.Command = group
    for word in words:
        assert isinstance(command, click.Group)
        found = command.get_command(click.Context(command), word)
        assert found is not None
        command = found
    return command


def numeric() -> Iterator[tuple[tuple[str, ...], str, str]]:
    """Yield verb, option and form of each number."""
    for words in leaves(group, ()):
        for param in command_of(words).params:
            form = TEXTS.get(str(param.name), "{}" if isinstance(param.type, NUMBERS) else None)
            if isinstance(param, click.Option) and form is not None:
                yield words, param.opts[-1], form


CASES = list(numeric())


def test_no_option_takes_numbers_in_another_way() -> None:
    for words in leaves(group, ()):
        for param in command_of(words).params:
            kind = type(param.type).__name__
            assert "Int" not in kind, (words, param.name, kind)
            assert "Float" not in kind, (words, param.name, kind)
    assert len(CASES) >= 30
    assert {words[0] for words, _, _ in CASES} >= {"record", "top", "plan", "replay", "lab"}


@pytest.mark.parametrize(
    ("words", "option", "form"),
    CASES,
    ids=lambda value: " ".join(value) if isinstance(value, tuple) else value,
)
def test_absurd_numbers_are_wrong_usage(
    words: tuple[str, ...], option: str, form: str, tmp_path: Path, builder
) -> None:
    builder.call("fsync", 0)
    trace = builder.write()
    needed = [p for p in command_of(words).params if isinstance(p, click.Argument) and p.required]
    given = [*words, *[trace for _ in needed]]
    given += ["--no-record", "--on", f"dir:{tmp_path}"] if words == ("replay",) else []
    given += ["--to", "folded", "-o", tmp_path / "out"] if words == ("export",) else []
    given.append(option)
    if words[0] in ("plan", "replay") and option == "--scale-window":
        given[-1:] = ["--scale-users", "2", option]
    for text in ABSURD:
        if option == "--slice" and not text:
            continue  # from the beginning
        run = CliRunner().invoke(
            group, [*map(str, given), form.format(text)], standalone_mode=False
        )
        error = run.exception
        assert isinstance(error, (click.UsageError, SpoolscopeError)), (text, error)
        assert error.exit_code == USAGE, (text, error)
        message = error.message if isinstance(error, SpoolscopeError) else error.format_message()
        assert "no such option" not in message.lower(), message
        assert text[:8] in message or option in message, (text, message)


@pytest.mark.parametrize("text", ["0", "0s", "0.0001", "8785h", "9" * 15 + "h", "10s5", "ms"])
def test_a_time_is_from_a_millisecond_to_a_year(text: str) -> None:
    with pytest.raises(click.BadParameter):
        Duration().convert(text, None, None)


@pytest.mark.parametrize("text", ["0G", "0.5K", "1025T", "infG", "nanM", "9999999999999999G", "G"])
def test_a_size_is_from_a_kilobyte_to_a_petabyte(text: str) -> None:
    with pytest.raises(click.BadParameter):
        LimitType().convert(text, None, None)


def test_numbers_within_bounds_are_taken() -> None:
    assert LimitType().convert("1.5G", None, None).size_bytes == 3 << 29
    assert LimitType().convert("1h", None, None).age_s == 3600
    assert Duration().convert("8784h", None, None) == 366 * 24 * 3600
    assert Number(1, 5).convert("5", None, None) == 5
    assert Number(0.0, 1.0, whole=False).convert("0.5", None, None) == 0.5
    with pytest.raises(click.BadParameter):
        Number(1, 5).convert("2.5", None, None)
