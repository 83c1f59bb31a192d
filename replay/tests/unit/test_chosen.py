"""Choice of the calls to replay, and the calls of others that they need."""

from pathlib import Path

import pytest

from spoolscope.replay.outcomes import call_name, read_plan
from spoolscope.replay.planned import plan
from spoolscope.replay.whatif import parse
from spoolscope.traces.errors import SpoolscopeError
from spoolscope.traces.trace import Trace


@pytest.fixture
def trace(script, tmp_path: Path) -> Trace:
    """A process delivers into two mailboxes, one reads a mailbox, a third one does neither."""
    for tid, comm in ((10, "lmtp"), (20, "imap"), (30, "imap-login")):
        script.thread(tid, comm=comm)
    script.call(10, 1, "mknod", "u1/new/1", mode=0o100600)
    script.call(10, 2, "mknod", "u2/new/1", mode=0o100600)
    script.call(20, 3, "stat", "u1/new/1")
    script.call(20, 4, "rename", "u1/new/1", path2="u1/cur/1")
    script.call(30, 5, "stat", "u11", ret=-2)
    return Trace.open(script.write(tmp_path / "trace"))


@pytest.mark.parametrize(
    ("words", "names"),
    [
        (["20"], ["stat", "rename"]),
        (["imap"], ["stat", "rename"]),
        (["imap*"], ["stat", "rename", "stat"]),
        (["u1"], ["mknod", "stat", "rename"]),
        (["/u1/cur/"], ["rename"]),
        (["u2", "30"], ["mknod", "stat"]),
    ],
)
def test_words(trace: Trace, tmp_path: Path, words: list[str], names: list[str]) -> None:
    _, told = plan(trace, tmp_path / "plan", parse([], 1, None, words))
    made = read_plan(tmp_path / "plan")
    assert told is not None
    assert told["only"]["chosen"] == len(names)
    # Besides the chosen calls the plan has those that they need, which come first.
    assert [call_name(op) for op in made.ops][-len(names) :] == names


def test_a_word_that_chooses_nothing(trace: Trace, tmp_path: Path) -> None:
    with pytest.raises(SpoolscopeError, match="'pop3'") as caught:
        plan(trace, tmp_path / "plan", parse([], 1, None, ["imap", "pop3"]))
    assert "lmtp" in caught.value.remedy


def test_what_the_chosen_depend_on_is_given_and_said(trace: Trace, tmp_path: Path) -> None:
    summary, told = plan(trace, tmp_path / "plan", parse([], 1, None, ["imap"]))
    made = read_plan(tmp_path / "plan")
    assert [call_name(op) for op in made.ops] == ["mknod", "stat", "rename"]
    assert (summary.syscalls, summary.threads) == (3, 2)
    assert told is not None
    assert told["only"] == {"chosen": 2, "given": 1, "left_out": 2, "threads": 2}
    assert told["label"] == "only imap"
    assert "only 2 calls of imap are replayed, and 1 of others" in told["sentence"]
    assert list(tmp_path.glob("plan*")) == [tmp_path / "plan"]
