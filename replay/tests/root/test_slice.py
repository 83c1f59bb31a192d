"""Parts of a recording: in time, with the state that earlier calls left; and of some processes."""

import subprocess
import sys
from pathlib import Path

import pytest

from spoolscope.replay.engine import Engine
from spoolscope.replay.one_run import is_true
from spoolscope.replay.pace import parse_pace
from spoolscope.replay.planned import plan
from spoolscope.replay.run import replay
from spoolscope.replay.whatif import WHOLE, parse
from spoolscope.traces.trace import Trace

sys.path.insert(0, str(Path(__file__).parent))
from sample import SAMPLE, Tree, mailboxes, tree

pytestmark = [pytest.mark.root, pytest.mark.steady]


def into(
    scratch: Path,
    words: str | None = None,
    only: tuple[str, ...] = (),
    sample: Path = SAMPLE,
    most_given: int | None = None,
) -> Tree:
    """Replay a sample, or a part, as fast as possible; return the tree that is left."""
    target = scratch / "target"
    target.mkdir(parents=True)
    _, told = plan(Trace.open(sample), scratch / "plan", parse([], 1, words, only))
    if most_given is not None:
        assert told is not None
        assert 0 < told["only"]["given"] <= most_given
    engine = Engine(scratch / "plan")
    engine.fixture(target)
    files = engine.files(scratch, scratch)
    done = subprocess.run(
        engine.command(target, parse_pace("afap"), "resource", files), check=False
    )
    summary = engine.summary(files, done.returncode)
    assert summary["same"] == summary["ops"]
    assert engine.verify(target)["mismatched"] == 0
    return tree(target)


def test_a_part_ends_with_the_tree_that_the_whole_ends_with(tmp_path: Path) -> None:
    whole = into(tmp_path / "whole")
    assert len(whole) > 4000
    assert into(tmp_path / "part", "17.3..") == whole


def test_a_part_in_the_middle_on_ext4(tmp_path: Path, require) -> None:
    require("ext4")
    (row,) = replay(SAMPLE, ["ext4"], tmp_path / "out", what_if=parse([], 1, "10s..14s"))
    assert is_true(row), row["final_state"]
    assert row["syscalls"] > 10_000
    # At the recorded pace it takes four seconds, and longer on a loaded machine.
    assert row["makespan_ns"] > 3.9e9
    sentence = row["what_if"]["sentence"]
    assert sentence.startswith("WHAT IF: only what took effect from 10 s to 14 s")
    assert row["what_if"]["slice"]["skipped"] == 0


def test_parts_make_every_call_once(tmp_path: Path) -> None:
    trace = Trace.open(SAMPLE)
    whole, nothing = plan(trace, tmp_path / "plan", WHOLE)
    assert nothing is None
    parts = [plan(trace, tmp_path / "plan", parse([], 1, part)) for part in PARTS]
    assert sum(summary.syscalls for summary, _ in parts) == whole.syscalls
    assert all(told is not None and told["slice"]["skipped"] == 0 for _, told in parts)
    assert sum(summary.written_bytes for summary, _ in parts) == whole.written_bytes


PARTS = ("..0.9", "0.9..7s", "7..7001ms", "7.001..0.5m", "30..")


def test_one_mailbox_in_a_part_on_ext4(tmp_path: Path, require) -> None:
    require("ext4")
    asked = parse([], 1, "7s..9s", [mailboxes()[0]])
    (row,) = replay(SAMPLE, ["ext4"], tmp_path / "out", pace="afap", what_if=asked)
    assert is_true(row), row["final_state"]
    told = row["what_if"]["only"]
    assert told["chosen"] > 100
    assert told["chosen"] + told["given"] == row["syscalls"]
    assert told["left_out"] > 0


@pytest.mark.parametrize("word", ["imap", "lmtp", "a mailbox"])
def test_the_chosen_find_what_they_found(tmp_path: Path, word: str) -> None:
    left = into(tmp_path, only=(mailboxes()[0] if word == "a mailbox" else word,))
    assert len(left) > 4000


@pytest.mark.parametrize(
    ("sample", "word", "most_given"), [("cyrus", "pop3d", 9_000), ("exim-mdbox", "lmtp", 4_000)]
)
def test_the_chosen_of_other_servers_need_few_calls_of_others(
    tmp_path: Path, sample: str, word: str, most_given: int
) -> None:
    """All that used the same names, inodes and locks before were 23,655 and 8,042 calls."""
    into(tmp_path, only=(word,), sample=SAMPLE.parent / sample, most_given=most_given)
