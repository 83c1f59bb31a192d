"""Rules against stacks judged by hand, functions that sleep, and each other."""

from pathlib import Path
from typing import NamedTuple

import pytest

from spoolscope.analysis.causes import CAUSES
from spoolscope.analysis.stack_rules import classify, shipped_rules, split_stack

PUBLISHED = Path(__file__).with_name("hung_tasks.tsv")
RECORDED = Path(__file__).with_name("recorded_waits.tsv")
SLEEPERS = Path(__file__).with_name("kernel_waits.tsv")

# Stacks without the right cause, with the reason.
NOT_NAMED = {
    # A lock_page whose frame a tail call removed: folio_wait_writeback loops and keeps its own.
    "waits for writeback of the page (stable page) in a write fault",
    # Without the frame of schedule(): like any other wait of a commit, or any write of a core dump.
    "journal thread: waits for running handles",
    "core dump waits for the other threads",
}


class Hung(NamedTuple):
    cause: str
    kernel: str
    filesystem: str
    sleeper: str
    judgement: str
    frames: str
    source: str = ""

    def named(self) -> str:
        rule = classify(self.frames.split(" < "))
        return rule.cause if rule else "unexplained"


def hung_tasks(file: Path = PUBLISHED) -> list[Hung]:
    lines = file.read_text().splitlines()
    return [Hung(*line.split("\t")) for line in lines if not line.startswith("#")]


def test_hung_tasks_are_named():
    tasks = hung_tasks()
    assert len(tasks) > 650
    assert {task.cause for task in tasks} <= set(CAUSES)
    wrong = [t for t in tasks if t.named() != t.cause and t.judgement not in NOT_NAMED]
    assert wrong == []


def test_functions_in_which_tasks_sleep_are_named():
    lines = SLEEPERS.read_text().splitlines()
    sleepers = [line.split("\t") for line in lines if not line.startswith("#")]
    assert len(sleepers) > 390
    found = [(cause, classify(stack.split(" < ")), stack) for cause, _, stack in sleepers]
    assert [f for f in found if f[1] is None or f[1].cause != f[0]] == []


@pytest.mark.parametrize("filesystem", ["jfs", "reiserfs", "f2fs", "nilfs2", "exfat"])
def test_recorded_waits_are_named(filesystem):
    waits = [wait for wait in hung_tasks(RECORDED) if wait.filesystem == filesystem]
    assert len(waits) >= 20
    assert {wait.kernel for wait in waits} == {"6.1", "6.12"}
    assert [(w.named(), w) for w in waits if w.named() != w.cause] == []


def test_what_is_not_named_is_still_not():
    assert {t.judgement for t in hung_tasks() if t.named() != t.cause} == NOT_NAMED


def least_stacks(stack):
    """Return the smallest stack with each alternative of each frame of a rule."""
    frames = split_stack(stack)
    first = [alternatives[0] for _, alternatives in frames]
    for place, (_, alternatives) in enumerate(frames):
        for name in alternatives:
            yield [*first[:place], name, *first[place + 1 :]]


@pytest.mark.parametrize("rule", shipped_rules(), ids=lambda rule: rule.stack[:60])
def test_no_rule_shadows_another(rule):
    """Check that each alternative of a rule is matched first by that rule."""
    taken = {}
    for frames in least_stacks(rule.stack):
        found = classify([name.replace("*", "") for name in frames])
        if found is not rule:
            taken[" < ".join(frames)] = found and found.stack
    assert taken == {}


def test_least_stacks_have_each_alternative():
    assert list(least_stacks("a|b << c|d*")) == [["a", "c"], ["b", "c"], ["a", "c"], ["a", "d*"]]
