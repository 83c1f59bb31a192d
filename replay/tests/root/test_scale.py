"""More users than were recorded: copies repeat all calls, later, on files of their own."""

import re
import statistics
import subprocess
import sys
from collections import Counter
from pathlib import Path

import pytest

from spoolscope.replay.engine import Engine
from spoolscope.replay.one_run import is_true
from spoolscope.replay.outcomes import call_name, read_plan
from spoolscope.replay.pace import parse_pace
from spoolscope.replay.planned import plan
from spoolscope.replay.run import replay
from spoolscope.replay.scaled import Scale
from spoolscope.replay.whatif import parse
from spoolscope.traces.errors import SpoolscopeError
from spoolscope.traces.trace import Trace

sys.path.insert(0, str(Path(__file__).parent))
from sample import SAMPLE, Tree, mailboxes, tree

pytestmark = [pytest.mark.root, pytest.mark.steady]
USERS = 3
# The number of a copy, in names of users' directories and queue files, absolute or relative.
OF_COPY = re.compile(r"^/?((?:queue/)?\w+/[^/]+?)\.([12])(?=/|$)")
# With this seed the copies begin some seconds apart.
SEED = 40
COUNTED = ("rename", "link", "fsync", "fdatasync")


def of_copies(found: Tree) -> list[Tree]:
    """Return the tree of each copy, under the names of the recording."""
    copies: list[Tree] = [{} for _ in range(USERS)]
    for name, shown in found.items():
        tag = OF_COPY.search(name)
        copy = int(tag[2]) if tag else 0
        copies[copy][OF_COPY.sub(r"\1", name)] = shown
    return copies


def into(
    scratch: Path,
    scale: Scale,
    part: str | None = None,
    pace: str = "afap",
    log: Path | None = None,
) -> tuple[Tree, Tree, dict]:
    """Replay the sample; return the trees before and after, and the entry of run.json."""
    target = scratch / "target"
    target.mkdir(parents=True)
    _, told = plan(Trace.open(SAMPLE), scratch / "plan", parse([], 1, part, (), scale))
    engine = Engine(scratch / "plan")
    engine.fixture(target)
    before = tree(target)
    files = engine.files(scratch, scratch)
    command = engine.command(target, parse_pace(pace), "resource", files)
    if log is not None:
        traced = ("-e", "trace=" + ",".join(COUNTED), "-o", str(log))
        command = ["strace", "-f", "--seccomp-bpf", "-ttt", "-qq", *traced, *command]
    done = subprocess.run(command, check=False)
    summary = engine.summary(files, done.returncode)
    assert summary["same"] == summary["ops"]
    assert engine.verify(target)["mismatched"] == 0
    return before, tree(target), {} if told is None else told["scale"]


def test_every_copy_begins_and_ends_with_the_tree_of_the_recording(tmp_path: Path) -> None:
    before, after, _ = into(tmp_path / "one", Scale())
    assert len(after) > 4000
    scaled = into(tmp_path / "scaled", Scale(USERS, None, 1))
    queues = {name for name in after if name.count("/") < 2 and name.startswith("queue")}
    common = queues | {"mail", "lost+found"}
    for whole, found in ((before, scaled[0]), (after, scaled[1])):
        assert not any(OF_COPY.search(name) for name in whole)
        own = {name: shown for name, shown in whole.items() if name not in common}
        first, *others = of_copies(found)
        assert first == whole
        for copy in others:
            assert copy == own


def begun(log: Path) -> list[tuple[float, str, str]]:
    """Return time, call and arguments of every call that strace saw begin."""
    lines = re.findall(r"^\d+ +(\d+\.\d+) (\w+)\((.*)", log.read_text(), re.MULTILINE)
    return [(float(ts), call, arguments.split(" <unfin")[0]) for ts, call, arguments in lines]


def test_copies_make_the_same_calls_each_at_its_own_time(tmp_path: Path, require) -> None:
    require("strace")
    part, log = "14s..16s", tmp_path / "strace.log"
    plan(Trace.open(SAMPLE), tmp_path / "plan", parse([], 1, part))
    recorded = Counter(call_name(op) for op in read_plan(tmp_path / "plan").ops)
    scale = Scale(USERS, 6 * 10**9, SEED)
    _, _, told = into(tmp_path / "scaled", scale, part, "original", log)
    phases_s = [0.0, *(ns / 1e9 for ns in told["phases_ns"])]
    assert min(abs(a - b) for a in phases_s for b in phases_s if a is not b) > 2
    calls = begun(log)
    made = Counter(call for _, call, _ in calls)
    assert {name: made[name] for name in COUNTED} == {
        name: USERS * recorded[name] for name in COUNTED
    }
    # rename and link have names: a copy makes the same call on its name, later by its phase.
    times: list[dict[tuple[str, ...], list[float]]] = [{} for _ in range(USERS)]
    for ts, call, arguments in calls:
        names = re.findall(r'"([^"]+)"', arguments)
        if len(names) == 2:
            tags = {tag[2] for name in names if (tag := OF_COPY.search(name))}
            assert len(tags) < 2
            key = (call, *(OF_COPY.sub(r"\1", name).lstrip("/") for name in names))
            times[int(max(tags, default="0"))].setdefault(key, []).append(ts)
    assert times[0].keys() == times[1].keys() == times[2].keys()
    once = [key for key, found in times[0].items() if len(found) == 1]
    assert len(once) > 100
    for copy in (1, 2):
        late = statistics.median(times[copy][key][0] - times[0][key][0] for key in once)
        assert late == pytest.approx(phases_s[copy], abs=1)


def test_on_ext4_at_the_recorded_pace(tmp_path: Path, require) -> None:
    require("ext4")
    one, _ = plan(Trace.open(SAMPLE), tmp_path / "plan", parse([], 1, "10s..12s"))
    asked = parse([], 1, "10s..12s", (), Scale(USERS, None, 2))
    (row,) = replay(SAMPLE, ["ext4"], tmp_path / "out", what_if=asked)
    assert is_true(row), row["final_state"]
    assert row["syscalls"] == USERS * one.syscalls
    told = row["what_if"]
    assert "; 3 times the users: besides the recording 2 copies" in told["sentence"]
    assert told["scale"]["mailboxes"] == len(mailboxes())
    # Load that was not recorded is no error of the replay.
    goals = {goal["name"]: goal["met"] for goal in row["certificate"]["goals"]}
    assert goals["makespan_error"] is None
    assert goals["in_flight_emd_by_mean"] is None


def test_of_one_mailbox(tmp_path: Path) -> None:
    asked = parse([], 1, "7s..9s", mailboxes()[:1], Scale(USERS))
    (tmp_path / "target").mkdir()
    target = f"dir:{tmp_path / 'target'}"
    (row,) = replay(SAMPLE, [target], tmp_path / "out", pace="afap", what_if=asked)
    assert is_true(row), row["final_state"]
    only = row["what_if"]["only"]
    assert row["syscalls"] == USERS * (only["chosen"] + only["given"])


def test_more_users_than_there_is_space_for_are_refused(tmp_path: Path) -> None:
    small = tmp_path / "small"
    small.mkdir()
    subprocess.run(["mount", "-t", "tmpfs", "-o", "size=120M", "tmpfs", small], check=True)
    try:
        (row,) = replay(SAMPLE, [f"dir:{small}"], tmp_path / "one", pace="afap")
        assert is_true(row)
        subprocess.run(["umount", small], check=True)
        subprocess.run(["mount", "-t", "tmpfs", "-o", "size=120M", "tmpfs", small], check=True)
        asked = parse([], 1, scale=Scale(USERS))
        with pytest.raises(SpoolscopeError, match="bytes free, the replay needs"):
            replay(SAMPLE, [f"dir:{small}"], tmp_path / "out", pace="afap", what_if=asked)
        assert not list(small.iterdir())
    finally:
        subprocess.run(["umount", small], check=False)


def test_every_call_goes_as_it_went_for_the_recorded_users(
    every_call: Path, tmp_path: Path
) -> None:
    counted = {}
    for users in (1, USERS):
        asked = parse([], 1, scale=Scale(users))
        (row,) = replay(every_call, ["ext4"], tmp_path / str(users), pace="afap", what_if=asked)
        assert row["final_state"]["mismatched"] == 0
        counted[users] = row["certificate"]["calls"]
    names = ("recorded", "executed", "same", "diverged", "skipped")
    assert counted[1]["same"] > 500
    assert [counted[USERS][name] for name in names] == [USERS * counted[1][name] for name in names]
