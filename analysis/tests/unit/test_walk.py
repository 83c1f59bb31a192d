"""The walk of one call in ARCHITECTURE.md is the one that a call takes."""

import re
from itertools import pairwise
from pathlib import Path

import numpy as np
import pytest

from spoolscope.report.build import trace_page
from spoolscope.report.page import TableBlock
from spoolscope.report.render import render
from spoolscope.tracers.convert import write
from spoolscope.traces.calls import CALLS
from spoolscope.traces.capture import ROWS, Capture

TOP = Path(__file__).resolve().parents[3]
TEXT = (TOP / "ARCHITECTURE.md").read_text()
PART = TEXT.partition("## The walk of one call")[2]
STEPS = re.findall(
    r"^\| `(\S+)` \| `(\S+)` \| `(\S+)` \| `(\S+)` \|$", PART.split("\n## ")[0], re.M
)
START_NS, TOOK_NS = 1_000_000_000, 123_456_789


@pytest.mark.parametrize("step", STEPS, ids=lambda step: step[0])
def test_each_step_is_where_it_is_said_to_be(step: tuple[str, ...]) -> None:
    file, function, takes, gives = step
    source = (TOP / file).read_text()
    defined = rf"(?:\bdef |\bfn |\bclass |\bBPF_PROG\(|^static .*\b){function}\b"
    assert re.search(defined, source, re.M), f"{file} defines no {function}"
    missing = [word for word in (takes, gives) if word not in source]
    assert missing == [], f"{file} does not name them"


def test_each_room_is_where_it_is_said_to_be() -> None:
    rooms = re.findall(r"^\| ((?:`[^`]+/`(?:, )?)+) \|", TEXT, re.M)
    assert len(rooms) > 10
    for words in rooms:
        first, *others = re.findall(r"`([^`]+)`", words)
        places = [TOP / first, *((TOP / first).parent / other for other in others)]
        assert [str(place) for place in places if not place.is_dir()] == []


def test_what_a_step_gives_the_next_one_takes() -> None:
    assert len(STEPS) == PART.split("\n## ")[0].count("\n|") - 2
    assert [(a[3], b[2]) for a, b in pairwise(STEPS) if a[3] != b[2]] == []


def test_a_call_becomes_a_row_of_the_report(tmp_path: Path) -> None:
    capture = Capture(0, 0, closed=True)
    capture.records = {name: np.zeros(0, dtype) for name, dtype in ROWS.items()}
    capture.meta = {"spools": [{"mount": "/spool", "dev": 7, "fstype": "ext4"}]}
    capture.strings.append(b"/spool/alice/new")
    call = np.zeros(1, ROWS["syscall"])
    known = {
        "start_ns": START_NS, "end_ns": START_NS + TOOK_NS, "oncpu_ns": TOOK_NS, "pid": 70,
        "tid": 70, "call": CALLS["mkdir"].id, "path": 1, "dev": 7,
    }  # fmt: skip
    for name, value in known.items():
        call[name] = value
    capture.records["syscall"] = call
    trace = tmp_path / "one.trace"
    trace.mkdir()
    write(capture, trace, None)
    page = trace_page(trace)
    (slowest,) = (section for section in page.sections if section.key == "slowest")
    (table,) = (block for block in slowest.blocks if isinstance(block, TableBlock))
    ((_, process, name, path, took, _),) = table.rows
    assert (str(process).strip(), name, path) == ("70", "mkdir", "alice/new")
    assert "123" in str(took)
    assert "alice/new" in render(page)
