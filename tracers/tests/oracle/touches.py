"""Comparison of the page faults of a trace with those that the touching program counted."""

from pathlib import Path
from typing import NamedTuple

from spoolscope.traces.trace import Trace

READ, WRITE, CALL = range(3)


class Touch(NamedTuple):
    """One touch of a page, as root/mapped.c prints it."""

    page: int
    how: int
    cached: int
    major: int
    minor: int


def read(said: Path) -> list[Touch]:
    """Return the output of the program after its first line."""
    rows = [line.split() for line in said.read_text().splitlines()[1:]]
    return [Touch(*map(int, row)) for row in rows]


def compare(touches: list[Touch], trace: Trace) -> None:
    """Check that every touch that the kernel counted has its fault, in order, and no others are."""
    counted = [touch for touch in touches if touch.major or touch.minor]
    names = {row["path_id"]: row["path"] for row in trace.table("paths").to_pylist()}
    faults = [f for f in trace.table("faults").to_pylist() if names[f["path_id"]] == "mail"]
    query = f"SELECT seq FROM syscalls WHERE syscall = 'write' AND tid = {faults[0]['tid']}"
    writes = {seq for (seq,) in trace.connect().execute(query).fetchall()}
    assert len(faults) == len(counted) == sum(t.major + t.minor for t in touches)
    for touch, fault in zip(counted, faults, strict=True):
        assert fault["write"] == (touch.how == WRITE), touch
        # A page that readahead reads between mincore and the end of the fault may be either.
        raced = touch.minor and not touch.cached
        assert raced or fault["major"] == (touch.major == 1), touch
        assert (fault["seq"] in writes) == (touch.how == CALL), touch
        assert not (fault["absent"] and touch.cached), touch
        if fault["page"] is None:
            assert 0 <= touch.page - fault["first_page"] < fault["n_pages"], touch
        else:
            assert fault["page"] == touch.page
