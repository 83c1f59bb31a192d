"""Names are found through descriptors, working directories, fork and exec."""

import errno

import numpy as np
import pytest

from spoolscope.tracers.losses import loss_columns
from spoolscope.tracers.resolve import AT_FDCWD, FORK, O_CLOEXEC, SEEN, Resolved, resolve
from spoolscope.traces.calls import CALLS
from spoolscope.traces.capture import RECORDS, Capture
from spoolscope.traces.flat import DTYPES


class Story:
    """Writes a capture one event after the other."""

    def __init__(self) -> None:
        self.capture = Capture(0, 0, closed=True)
        self.calls: list[np.void] = []
        self.tasks: list[np.void] = []
        self.now = 0
        self.seq: dict[int, int] = {}

    def string(self, text: str) -> int:
        self.capture.strings.append(text.encode())
        return len(self.capture.strings) - 1

    def task(self, event: int, pid: int, **members: object) -> None:
        self.now += 10
        record = np.zeros(1, DTYPES["task"])[0]
        record["ts_ns"], record["event"], record["pid"], record["tid"] = self.now, event, pid, pid
        for name, value in members.items():
            record[name] = value
        self.tasks.append(record)

    def call(self, pid: int, name: str, *args: object, ret: int = 0) -> None:
        self.now += 10
        record = np.zeros(1, DTYPES["syscall"])[0]
        record["start_ns"], record["end_ns"], record["ret"] = self.now - 5, self.now, ret
        record["pid"], record["tid"], record["call"] = pid, pid, CALLS[name].id
        record["seq"] = self.seq.get(pid, 0)
        self.seq[pid] = self.seq.get(pid, 0) + 1
        texts = []
        for i, arg in enumerate(args):
            if isinstance(arg, str):
                texts.append(self.string(arg))
            else:
                record["args"][i] = int(arg) & 0xFFFF_FFFF_FFFF_FFFF
        record["path"], record["path2"] = [*texts, 0, 0][:2]
        self.calls.append(record)

    def end(self) -> Capture:
        records = {"syscall": self.calls, "task": self.tasks}
        self.capture.records = {
            name: np.array(records.get(name, []), DTYPES[name]) for name in RECORDS.values()
        }
        return self.capture


def names(resolved: Resolved) -> list[str | None]:
    return [resolved.paths[i].decode() if i >= 0 else None for i in resolved.path.tolist()]


@pytest.fixture
def story() -> Story:
    story = Story()
    story.task(SEEN, 1, path=story.string("/spool/queue"))
    return story


def test_relative_to_cwd_and_to_dirfd(story: Story) -> None:
    story.call(1, "openat", AT_FDCWD, "incoming/x", 0, 0, ret=5)
    story.call(1, "openat", AT_FDCWD, "active", 0, 0, ret=6)
    story.call(1, "unlinkat", 6, "y", 0)
    story.call(1, "chdir", "../vmail/./bob//")
    story.call(1, "stat", "cur")
    story.call(1, "fchdir", 6)
    story.call(1, "rename", "a", "b")
    resolved = resolve(story.end())
    assert names(resolved) == [
        "/spool/queue/incoming/x",
        "/spool/queue/active",
        "/spool/queue/active/y",
        "/spool/vmail/bob",
        "/spool/vmail/bob/cur",
        "/spool/queue/active",
        "/spool/queue/active/a",
    ]
    assert resolved.paths[resolved.path2[-1]] == b"/spool/queue/active/b"
    assert resolved.unresolved == 0


def test_descriptors_are_duplicated_closed_and_reused(story: Story) -> None:
    story.call(1, "open", "one", 0, 0, ret=3)
    story.call(1, "dup2", 3, 9, ret=9)
    story.call(1, "close", 3)
    story.call(1, "open", "two", 0, 0, ret=3)
    story.call(1, "read", 9, 0, 1)
    story.call(1, "read", 3, 0, 1)
    assert names(resolve(story.end()))[-2:] == ["/spool/queue/one", "/spool/queue/two"]


def test_a_failed_open_changes_nothing(story: Story) -> None:
    story.call(1, "open", "one", 0, 0, ret=3)
    story.call(1, "open", "two", 0, 0, ret=-errno.ENOENT)
    story.call(1, "read", 3, 0, 1)
    assert names(resolve(story.end()))[-1] == "/spool/queue/one"


def test_fork_copies_and_exec_closes(story: Story) -> None:
    story.call(1, "open", "kept", 0, 0, ret=3)
    story.call(1, "open", "lost", O_CLOEXEC, 0, ret=4)
    story.task(FORK, 2, parent_pid=1, parent_tid=1)
    story.call(1, "close", 3)
    story.call(2, "read", 3, 0, 1)
    story.call(2, "read", 4, 0, 1)
    story.task(3, 2)
    story.call(2, "read", 3, 0, 1)
    story.call(2, "stat", "here")
    resolved = resolve(story.end())
    assert names(resolved)[3:] == [
        "/spool/queue/kept",
        "/spool/queue/lost",
        "/spool/queue/kept",
        "/spool/queue/here",
    ]


def test_a_new_thread_does_not_make_a_new_process(story: Story) -> None:
    story.task(FORK, 1, tid=7, parent_pid=1, parent_tid=1)
    story.call(1, "stat", "here")
    assert names(resolve(story.end())) == ["/spool/queue/here"]


def test_open_directories_move_with_a_renamed_parent(story: Story) -> None:
    story.call(1, "mkdir", "box", 0o700)
    story.call(1, "mkdir", "box/cur", 0o700)
    story.call(1, "open", "box/cur", 0, 0, ret=3)
    story.call(1, "rename", "box", "tree")
    story.call(1, "unlinkat", 3, "x", 0)
    assert names(resolve(story.end()))[-1] == "/spool/queue/tree/cur/x"


def test_an_unknown_cwd_is_counted_not_guessed() -> None:
    story = Story()
    story.call(3, "stat", "somewhere")
    resolved = resolve(story.end())
    assert names(resolved) == [None]
    assert resolved.unresolved == 1


def test_losses_are_located_by_thread_and_seq(story: Story) -> None:
    for seq in (0, 1, 5, 6):
        story.seq[1] = seq
        story.call(1, "stat", "x")
    story.task(4, 1, n_calls=9)
    columns = loss_columns(story.end())
    assert columns["first_seq"].tolist() == [2, 7]
    assert columns["last_seq"].tolist() == [4, 8]
    assert columns["n"].tolist() == [3, 2]
