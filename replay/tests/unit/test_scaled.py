"""More users than were recorded: the copied files, the begin of copies, and their report."""

from collections import Counter
from pathlib import Path

import numpy as np
import pyarrow.parquet as pq
import pytest

from spoolscope.replay.engine import Engine
from spoolscope.replay.one_run import is_true
from spoolscope.replay.outcomes import read_plan
from spoolscope.replay.planned import plan
from spoolscope.replay.run import replay
from spoolscope.replay.scaled import Scale, users
from spoolscope.replay.whatif import parse, parse_scale
from spoolscope.traces.errors import SpoolscopeError
from spoolscope.traces.trace import Trace

SECOND = 10**9


@pytest.fixture
def trace(script, tmp_path: Path) -> Trace:
    """One process delivers a queue file to a user, another one looks at another user's mail."""
    for path, ino in (("mail", 2), ("mail/u1", 3), ("mail/u1/new", 4), ("mail/u2", 5)):
        script.entry(path, ino, mode=0o040755)
    for path, ino in (("mail/u2/cur", 6), ("queue", 7)):
        script.entry(path, ino, mode=0o040755)
    script.entry("queue/A1", 8, size=100)
    script.entry("mail/u2/cur/1", 9, size=10)
    script.thread(10, comm="lmtp")
    script.thread(20, comm="imap")
    script.call(10, 1, "stat", "queue/A1", ino=8, obj_mode=0o100644, obj_size=100)
    script.call(20, 2, "stat", "mail/u2/cur/1", ino=9, obj_mode=0o100644, obj_size=10)
    script.call(10, 3, "mknod", "mail/u1/new/1", mode=0o100600, ino=11)
    script.call(10, 4, "unlink", "queue/A1", ino=8)
    return Trace.open(script.write(tmp_path / "trace"))


def test_each_copy_begins_at_a_time_of_its_own_in_the_window() -> None:
    begins = Scale(2001, None, 7).begins()
    assert len(set(begins)) == 2000
    # Uniform: each quarter of the window has its share, within 4 sigma.
    counts, _ = np.histogram(begins, bins=4, range=(0, 1))
    assert counts.sum() == 2000
    assert abs(counts - 500).max() < 4 * np.sqrt(2000 * 0.25 * 0.75)
    assert abs(np.corrcoef(begins[:-1], begins[1:])[0, 1]) < 4 / np.sqrt(2000)


def test_the_seed_fixes_the_times() -> None:
    assert Scale(4, None, 1).begins() == Scale(4, None, 1).begins()
    assert Scale(4, None, 1).begins() != Scale(4, None, 2).begins()


@pytest.mark.parametrize("window_ns", [None, 0, 5 * SECOND])
def test_the_window_is_a_tenth_of_the_recording_or_as_given(
    trace: Trace, tmp_path: Path, window_ns: int | None
) -> None:
    scale = Scale(100, window_ns, 3)
    whole, told = plan(trace, tmp_path / "plan", parse([], 1, scale=scale))
    assert told is not None
    recorded_ns = told["scale"]["all_to_ns"]
    window = recorded_ns * 0.1 if window_ns is None else window_ns
    phases = told["scale"]["phases_ns"]
    assert phases == [int(share * window) for share in scale.begins()]
    assert whole.duration_ns == recorded_ns + max(phases)
    assert told["scale"]["mailboxes"] == 2


def test_users_are_the_directories_above_their_mailboxes(trace: Trace, tmp_path: Path) -> None:
    plan(trace, tmp_path / "plan", parse([], 1))
    assert users(read_plan(tmp_path / "plan")) == [b"mail/u1", b"mail/u2"]


def test_a_plan_for_three_times_the_users(trace: Trace, tmp_path: Path) -> None:
    one, nothing = plan(trace, tmp_path / "plan", parse([], 1))
    assert nothing is None
    asked = parse([], 1, scale=Scale(3, SECOND, 5))
    three, told = plan(trace, tmp_path / "plan", asked)
    assert list(tmp_path.glob("plan*")) == [tmp_path / "plan"]
    assert (three.syscalls, three.ops, three.threads) == (12, 12, 6)
    assert told is not None
    phases = told["scale"]["phases_ns"]
    assert three.duration_ns == one.duration_ns + max(phases)
    ops = read_plan(tmp_path / "plan").ops
    late = ops["start_ns"].reshape(-1)
    of = [np.sort(late[ops["thread"] // 2 == copy]) for copy in range(3)]
    assert [(times - of[0]).tolist() for times in of[1:]] == [[ns] * 4 for ns in phases]
    # Two files; 4 KiB for each of 5 directories of users, thrice; mail and queue once.
    checked = Engine(tmp_path / "plan").order()
    assert checked["fixture_bytes"] == 3 * 110
    assert checked["fixture_names"] == 2 + 3 * (4 + 2)
    assert checked["unexplained"] == 0


def test_it_is_said_aloud(trace: Trace, tmp_path: Path) -> None:
    _, told = plan(trace, tmp_path / "plan", parse([], 1, scale=Scale(3, 0, 0)))
    assert told is not None
    assert told["label"] == "with 3 times the users"
    assert told["sentence"] == (
        "WHAT IF: 3 times the users: besides the recording 2 copies of all mailboxes (2), other "
        "files and processes, begun 0.00, 0.00 s after it; at the recorded pace all are at work "
        "from 0.00 s to 0.00 s of 0.00 s, fewer before and after; this is not what the trace did."
    )
    _, late = plan(trace, tmp_path / "plan", parse([], 1, scale=Scale(50, 9 * SECOND, 0)))
    assert late is not None
    assert "all are never at work at once" in late["sentence"]
    assert "49 copies" in late["sentence"]
    assert " to 8." in late["sentence"]


def test_of_a_part_and_of_some_users(trace: Trace, tmp_path: Path) -> None:
    asked = parse([], 1, "2.05ms..", ["mail/u1"], Scale(2, SECOND, 0))
    summary, told = plan(trace, tmp_path / "plan", asked)
    assert told is not None
    assert told["slice"]["before"] == 2
    assert (told["only"]["chosen"], told["scale"]["threads"]) == (1, 2)
    assert summary.syscalls == 2 * (told["only"]["chosen"] + told["only"]["given"])
    assert told["label"] == (
        "from 0.00205 s to the end and only mail/u1 and with 2 times the users"
    )


@pytest.mark.parametrize(
    ("n", "window", "why"),
    [
        (2, "soon", "no time"),
        (2, "-1s", "no time"),
        (2, "9" * 9 + "h", "no time"),
        (1, "5s", "cop"),
    ],
)
def test_nonsense_is_refused(n: int, window: str, why: str) -> None:
    with pytest.raises(SpoolscopeError, match=why):
        parse_scale(n, window, 0)


def test_a_listing_shows_the_names_of_all_copies(script, tmp_path: Path) -> None:
    """Names of one copy fit into two buffers, those of three copies do not."""
    script.snapshot = "full"
    script.entry("queue", ino=2, mode=0o040700)
    for at in range(400):
        script.entry(f"queue/{at:0>80}", ino=100 + at)
    directory = {"fd": 9, "ino": 2, "obj_mode": 0o040700}
    script.call(10, 1, "openat", "queue", ret=9, flags=0o200000, ino=2, obj_mode=0o040700)
    for at_ms, ret in ((2, 32_700), (3, 12_000), (4, 0)):
        script.call(10, at_ms, "getdents64", "queue", ret, base=0, size=32_768, **directory)
    trace, target = script.write(tmp_path / "trace"), tmp_path / "target"
    target.mkdir()
    asked = parse([], 1, scale=Scale(3, 0, 0))
    (row,) = replay(trace, [f"dir:{target}"], tmp_path / "out", pace="afap", what_if=asked)
    assert is_true(row)
    assert (row["listings"]["compared"], row["listings"]["other_names"]) == (3, 0)
    assert row["final_state"]["checked"] == 1201
    copies = pq.read_table(Path(row["run"]) / "outcomes.parquet").column("copy").to_pylist()
    assert Counter(copies) == {0: 4, 1: 4, 2: 4}
