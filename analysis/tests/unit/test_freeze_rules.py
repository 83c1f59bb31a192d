"""The rules of --freeze-on: a small grammar, and errors with a remedy."""

import click
import pytest
from click.testing import CliRunner

from spoolscope.cli.freeze_rules import FreezeRuleType, cause_rules
from spoolscope.cli.main import group
from spoolscope.traces.errors import USAGE, SpoolscopeError

GIVEN = [
    ("slow=500ms", "slow > 500ms", {"slow_ns": 500_000_000}),
    ("slow>0.01ms", "slow > 0.01ms", {"slow_ns": 10_000}),
    ("in-flight > 5s", "in-flight > 5s", {"in_flight_ns": 5 * 10**9}),
    ("In flight>1m", "in-flight > 1m", {"in_flight_ns": 60 * 10**9}),
    ("lock_held > 10", "lock-held > 10", {"lock_held_ns": 10**10}),
    ("journal_commit > 1s", "journal_commit > 1s", {"cause": "journal_commit", "ns": 10**9}),
    ("cache flush > 1s", "flush > 1s", {"cause": "flush", "ns": 10**9}),  # the name in explain
    ("runq > 20ms", "runq > 20ms", {"cause": "runq", "ns": 20 * 10**6}),
    ("commits > 20/s", "commits > 20/s", {"commits": 20, "window_ns": 10**9}),
    ("commits>300 / m", "commits > 300/m", {"commits": 300, "window_ns": 60 * 10**9}),
    ("errno = enospc", "errno = ENOSPC", {"errno": 28}),
]
REFUSED = [
    ("slow", "is no rule such as 'slow > 500ms'"),
    ("", "is no rule"),
    ("> 5s", "is no rule"),
    ("slow < 1s", "slow goes with = or >"),
    ("in-flight = 1s", "in-flight goes with >"),
    ("jurnal_commit > 1s", "known are journal_commit"),
    ("unexplained > 1s", "not known before the end"),
    ("commits > 20", "how many a second or minute"),
    ("commits > 0/s", "how many a second or minute"),
    ("errno > EIO", "errno goes with ="),
    ("errno = EFOO", "'EFOO' is no error such as EIO"),
    ("lock-held > soon", "is not a time such as"),
    ("slow > 1s\x1b[2J", "is not a time such as"),
    ("x" * 999, "is no rule"),
]


@pytest.mark.parametrize(("text", "words", "limit"), GIVEN)
def test_a_rule_is_read(text, words, limit):
    rule = FreezeRuleType().convert(text, None, None)
    assert (rule.words, rule.limit) == (words, limit)
    assert FreezeRuleType().convert(rule.words, None, None) == rule


@pytest.mark.parametrize(("text", "said"), REFUSED)
def test_an_error_says_what_would_do(text, said):
    with pytest.raises(click.BadParameter) as error:
        FreezeRuleType().convert(text, None, None)
    assert said in error.value.message
    assert len(error.value.message) < 500
    assert "\x1b" not in error.value.message


def test_rules_of_causes_are_handed_over_only_if_they_are_needed():
    slow, flush = (FreezeRuleType().convert(text, None, None) for text in ("slow=1s", "flush > 1s"))
    assert cause_rules([slow]) == ()
    assert len(cause_rules([slow, flush])) > 100


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["--on-freeze", "true"], "--on-freeze needs a flight recorder"),
        (["--freeze-on", "slow=1s"], "--freeze-on needs a flight recorder"),
        (["--last", "5m", "--on-freeze", "/no/such"], "there is no command /no/such"),
    ],
)
def test_what_does_not_go_together_is_refused_before_anything_is_recorded(words, said, tmp_path):
    given = ["record", "--spool", str(tmp_path), "-o", str(tmp_path / "box"), *words]
    error = CliRunner().invoke(group, given, standalone_mode=False).exception
    assert isinstance(error, SpoolscopeError)
    assert error.exit_code == USAGE
    assert said in error.message
