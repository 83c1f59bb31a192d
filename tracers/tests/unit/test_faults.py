"""Steps of page faults are joined to faults, with the name that their file had."""

import numpy as np

from spoolscope.tracers.call_index import CallIndex
from spoolscope.tracers.faults import ABSENT, AROUND, DIRTY, PAGE, fault_columns
from spoolscope.tracers.inodes import Inodes
from spoolscope.tracers.resolve import resolve

NEVER_NAMED = 77


def step(story, tid: int, n_faults: int, event: int, page: int, **members: int) -> None:
    story.now += 10
    known = {"ino": 50, "dev": 7, "n_pages": 1} | members
    story.add(
        "fault",
        ts_ns=story.now,
        pid=tid,
        tid=tid,
        n_faults=n_faults,
        event=event,
        page=page,
        **known,
    )


def faults(story) -> list[dict]:
    capture = story.end()
    resolved = resolve(capture)

    def path_id(path: bytes) -> int:
        resolved.paths.append(path)
        return len(resolved.paths) - 1

    inodes = Inodes(capture, resolved, path_id, lambda ids: np.full(len(ids), 7))
    columns = fault_columns(capture, CallIndex(capture.records["syscall"]), inodes)
    rows = [dict(zip(columns, row, strict=True)) for row in zip(*columns.values(), strict=True)]
    for row in rows:
        at = row["path_id"]
        row["name"] = None if at is np.ma.masked else resolved.paths[at].decode()
    return rows


def test_steps_of_one_fault_are_one_row(new_story) -> None:
    story = new_story()
    step(story, 1, 100, AROUND, 0, n_pages=16)  # the neighbours only
    step(story, 2, 100, PAGE, 9)  # another thread
    step(story, 1, 100, PAGE, 5, flags=ABSENT)
    step(story, 1, 100, AROUND, 0, n_pages=16)  # after it was read
    step(story, 1, 101, PAGE, 6)
    step(story, 1, 101, DIRTY, 6)
    step(story, 1, 102, DIRTY, 64, n_pages=4)  # a large folio
    rows = sorted(faults(story), key=lambda row: (row["tid"], row["ts_ns"]))
    shown = [
        [row[name] if row[name] is not np.ma.masked else None for name in columns]
        for columns in [("tid", "dur_ns", "page", "first_page", "n_pages", "major", "write")]
        for row in rows
    ]
    assert shown == [
        [1, 30, 5, 0, 16, True, False],
        [1, 10, 6, None, None, False, True],
        [1, None, None, 64, 4, False, True],
        [2, None, 9, None, None, False, False],
    ]


def test_a_fault_that_had_to_be_tried_again_is_major_though_the_page_was_there(new_story) -> None:
    story = new_story()
    step(story, 1, 100, PAGE, 5)
    step(story, 1, 100, AROUND, 0, n_pages=16)
    [row] = faults(story)
    assert (bool(row["absent"]), bool(row["major"])) == (False, True)


def test_files_have_the_name_of_the_last_call_before_or_else_the_next(new_story) -> None:
    story = new_story()
    story.name("/spool/start", 60)
    step(story, 1, 1, PAGE, 0)
    story.opened(1, "/spool/first", 3, 50)
    step(story, 1, 2, PAGE, 0)
    story.call(1, "rename", "/spool/first", "/spool/second")
    story.opened(2, "/spool/second", 3, 50)
    step(story, 1, 3, PAGE, 0)
    step(story, 1, 4, PAGE, 0, ino=60)
    step(story, 1, 5, PAGE, 0, ino=NEVER_NAMED)
    step(story, 1, 6, PAGE, 0, ino=60, dev=8)
    names = [row["name"] for row in faults(story)]
    assert names == ["/spool/first", "/spool/first", "/spool/second", "/spool/start", None, None]


def test_a_file_that_only_the_walk_saw_has_its_whole_name(new_story) -> None:
    story = new_story()
    story.name("/spool/box", 60, 0o40700)
    story.seen_in(1, "mail", 61)
    step(story, 1, 1, PAGE, 0, ino=61)
    assert [row["name"] for row in faults(story)] == ["/spool/box/mail"]


def test_no_faults_are_no_rows(new_story) -> None:
    assert faults(new_story()) == []
