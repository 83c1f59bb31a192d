"""Trace -> plan."""

from pathlib import Path

import numpy as np
import pytest

from spoolscope.replay.ops import EXEC, EXIT, FORK
from spoolscope.replay.outcomes import call_name, read_plan
from spoolscope.replay.plan import build
from spoolscope.replay.threads import read_lives
from spoolscope.traces.errors import SpoolscopeError
from spoolscope.traces.flat import NO_CALL_ROW, NONE
from spoolscope.traces.trace import Trace


def plan_of(script, tmp_path: Path):
    trace = Trace.open(script.write(tmp_path / "trace"))
    summary = build(trace, tmp_path / "plan")
    return summary, read_plan(tmp_path / "plan")


def names(plan) -> list[str]:
    return [call_name(op) for op in plan.ops]


def test_a_clone_and_its_event_are_one_fork(script, tmp_path):
    script.thread(10)
    script.call(10, 1.0, "clone", ret=11)
    script.fork(10, 11, 1.05)
    script.call(11, 2, "stat", "x", ret=-2)
    script.call(10, 3, "stat", "y", ret=-2)
    _, plan = plan_of(script, tmp_path)
    assert names(plan) == ["fork", "stat", "stat"]
    assert (plan.ops["call"][0], plan.ops["arg"][0]) == (0, 1)


def test_a_fork_without_its_call_stands_alone(script, tmp_path):
    script.thread(10)
    script.fork(10, 11, 1.0)
    script.call(11, 2, "stat", "x", ret=-2)
    _, plan = plan_of(script, tmp_path)
    assert names(plan) == ["fork", "stat"]
    assert plan.ops["call"][0] == NO_CALL_ROW


def test_exec_and_exit_take_the_rows_of_their_calls(script, tmp_path):
    script.call(10, 1, "execve", dur_ms=0.5)
    script.event("exec", 10, 1.3)
    script.call(10, 2, "stat", "x", ret=-2)
    script.call(10, 3, "exit_group", flags_seen=8)
    script.event("exit", 10, 3.4)
    summary, plan = plan_of(script, tmp_path)
    assert plan.ops["op"].tolist()[0::2] == [EXEC, EXIT]
    assert plan.ops["call"].tolist() == [0, 1, 2]
    assert summary.in_flight == 0


def test_of_two_calls_that_end_a_thread_the_last_did(script, tmp_path):
    script.call(10, 1, "exit", flags_seen=8)
    script.call(10, 3, "exit_group", flags_seen=8)
    script.event("exit", 10, 3.4)
    _, plan = plan_of(script, tmp_path)
    assert names(plan) == ["exit", "exit"]
    assert (plan.ops["op"] == EXIT).tolist() == [False, True]
    assert plan.ops["call"].tolist() == [0, 1]


def test_a_call_that_never_returned_is_left_out_and_counted(script, tmp_path):
    script.call(10, 1, "stat", "x", ret=-2)
    script.call(10, 2, "flock", fd=3, cmd=2, flags_seen=8)
    summary, plan = plan_of(script, tmp_path)
    assert (summary.in_flight, names(plan)) == (1, ["stat"])


def test_a_reused_tid_is_another_life(script, tmp_path):
    script.thread(10)
    script.fork(10, 11, 1)
    script.call(11, 2, "stat", "first", ret=-2)
    script.event("exit", 11, 3)
    script.fork(10, 11, 4)
    script.call(11, 5, "stat", "second", ret=-2)
    script.event("exit", 11, 6)
    _, plan = plan_of(script, tmp_path)
    assert names(plan) == ["fork", "stat", "exit", "fork", "stat", "exit"]
    first, second = plan.ops["thread"][[1, 4]]
    assert first != second
    assert plan.ops["arg"][plan.ops["op"] == FORK].tolist() == [first, second]


def test_a_thread_alive_at_start_is_started_by_its_process(script, tmp_path):
    script.thread(20)
    script.thread(21, pid=20)
    script.call(20, 1, "stat", "x", ret=-2)
    script.call(21, 2, "stat", "x", ret=-2)
    _, plan = plan_of(script, tmp_path)
    assert names(plan) == ["fork", "stat", "stat"]
    assert plan.ops["start_ns"][0] == 0


def test_names_outside_the_spool_do_not_get_into_the_plan(script, tmp_path):
    script.call(10, 1, "chdir", "/etc", kind="outside")
    script.call(10, 2, "rename", "a", path2="/tmp/b", kind2="outside", ret=-18)
    _, plan = plan_of(script, tmp_path)
    assert list(plan.strings) == ["a"]
    assert plan.ops["path2"][1] == NONE


def test_results_times_and_identity_are_kept(script, tmp_path):
    script.call(10, 1.5, "openat", "f", ret=7, flags=0o102, mode=0o600, ino=99, obj_mode=0o100600)
    script.call(10, 2, "unlink", "g", ret=-2, dur_ms=1)
    _, plan = plan_of(script, tmp_path)
    first, second = plan.ops
    assert (first["ret"], first["flags"], first["mode"], first["ino"]) == (7, 0o102, 0o600, 99)
    assert (second["ret"], second["start_ns"], second["end_ns"]) == (-2, 2_000_000, 3_000_000)


def test_an_empty_trace_is_refused(script, tmp_path):
    trace = Trace.open(script.write(tmp_path / "trace"))
    with pytest.raises(SpoolscopeError, match="holds no call"):
        build(trace, tmp_path / "plan")


def test_lives_are_found_by_time(script, tmp_path):
    script.thread(10)
    script.fork(10, 11, 2)
    script.fork(10, 11, 5)
    lives = read_lives(Trace.open(_with_a_call(script).write(tmp_path / "trace")))
    ms = np.array([1, 2, 4, 5, 9]) * 1_000_000
    found = lives.find(np.full(5, 11), ms)
    assert lives.start_ns[found].tolist() == [2_000_000] * 3 + [5_000_000] * 2
    assert lives.find(np.array([77]), np.array([0])).tolist() == [-1]


def _with_a_call(script):
    script.call(10, 1, "stat", "x", ret=-2)
    return script
