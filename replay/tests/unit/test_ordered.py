"""The order of a plan is computed once, and read by every later step."""

import json
import subprocess
from pathlib import Path

import numpy as np
import pytest

from spoolscope.replay.engine import SCARCE, Engine
from spoolscope.replay.outcomes import read_outcomes, read_plan
from spoolscope.replay.plan import build
from spoolscope.replay.run import replay
from spoolscope.traces.errors import SpoolscopeError
from spoolscope.traces.native import find_binary
from spoolscope.traces.trace import Trace

DIR, REG = 0o040755, 0o100600
TOLD_BY_CLOCKS = {"start_epoch_ns", "makespan_ns", "cpu_idle", "cpu_steal"}


@pytest.fixture
def plan(script, tmp_path) -> Path:
    """Two threads deliver into a directory that a third lists, and rename each other's files."""
    script.entry("new", ino=2, mode=DIR)
    script.entry("new/old", ino=3, mode=REG, size=5000)
    for n, thread in enumerate((10, 11)):
        name, at = f"new/{n}", 1 + n
        script.call(thread, at, "openat", name, ret=5, flags=0o101, mode=0o600, ino=20 + n,
                    obj_mode=REG, obj_size=0)  # fmt: skip
        script.call(thread, at + 4, "write", name, base=0, fd=5, ret=100, size=100, offset=0,
                    ino=20 + n, obj_mode=REG, obj_size=100)  # fmt: skip
        script.call(12, at + 10, "rename", name, path2=f"new/cur{n}", ino=20 + n)
        script.call(thread, at + 20, "stat", f"new/cur{n}", ino=20 + n, obj_mode=REG, obj_size=100)
    build(Trace.open(script.write(tmp_path / "trace")), tmp_path / "plan")
    return tmp_path / "plan"


def steps(plan: Path, target: Path) -> list[object]:
    """Return the results of every step on a plan."""
    engine, outcomes = Engine(plan), plan.with_name("outcomes")
    told = [engine.explain(order, [3, 6, 7]) for order in ("resource", "recorded", "none")]
    built = engine.fixture(target)
    words = ["--target", target, "--prepared", "--pace", "afap", "--outcomes", outcomes]
    run = [find_binary("spoolscope-replay"), "run", plan, *words]
    done = subprocess.run(run, capture_output=True, text=True, check=True)
    summary = {k: v for k, v in json.loads(done.stdout).items() if k not in TOLD_BY_CLOCKS}
    results = read_outcomes(outcomes)[["ret", "verdict", "reason"]].tolist()
    return [told, built, summary, results, engine.verify(target)]


def test_every_step_finds_the_same_with_and_without_a_stored_order(plan, tmp_path):
    walked, ordered = tmp_path / "walked", tmp_path / "ordered"
    walked.mkdir()
    ordered.mkdir()
    without = steps(plan, walked)
    stats = Engine(plan).order()
    assert stats["edges"] > 0
    assert plan.with_name("plan.order").exists()
    assert steps(plan, ordered) == without


@pytest.mark.parametrize("step", ["fixture", "run", "verify", "explain"])
def test_every_step_reads_the_stored_order(step, plan, target):
    """A step that computed the order again would not notice that its part is broken."""
    Engine(plan).order()
    file = plan.with_name("plan.order")
    whole = np.fromfile(file, np.uint8)
    ends = [int(end) for end in whole[24:64].view(np.uint64)]
    part = {"explain": 0, "run": 1, "fixture": 2, "verify": 3}[step]
    start = ends[part - 1] if part else 64
    whole[start : ends[part]] = 0xFF
    whole.tofile(file)
    words = {"explain": [], "run": ["--target", target, "--prepared"]}
    done = subprocess.run(
        [find_binary("spoolscope-replay"), step, plan, *words.get(step, ["--target", target])],
        capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert (done.returncode, done.stdout) == (1, "")
    assert "error: order" in done.stderr
    assert "panicked" not in done.stderr


def test_the_order_of_a_plan_written_anew_is_refused(plan, target):
    Engine(plan).order()
    hostile = np.fromfile(plan, np.uint8)
    hostile[-1] ^= 1
    hostile.tofile(plan)
    with pytest.raises(SpoolscopeError, match="no order of this plan, remove it"):
        Engine(plan).verify(target)


def test_a_replay_finds_the_order_once(script, tmp_path, target, monkeypatch):
    """The order is computed for the replay, not for each run."""
    script.call(10, 1, "mkdir", "d", mode=0o700)
    asked: list[str] = []
    real = Engine._json
    monkeypatch.setattr(Engine, "_json", lambda self, *w: asked.append(w[0]) or real(self, *w))
    replay(script.write(tmp_path / "trace"), [f"dir:{target}"], tmp_path / "out")
    assert asked == ["derive", "order", "fixture", "verify"]


def test_no_edge_is_lost_on_the_way(plan):
    counted = Engine(plan).order()["edges"]
    assert sum(Engine(plan).explain("resource", [])["edges"].values()) == counted
    assert len(read_plan(plan).ops) >= counted > 0


def test_a_step_without_memory_says_what_it_lacks(tmp_path: Path, monkeypatch) -> None:
    killed = tmp_path / "killed"
    killed.write_text("#!/bin/sh\nkill -KILL $$\n")
    killed.chmod(0o755)
    monkeypatch.setattr("spoolscope.replay.engine.find_binary", lambda _name: killed)
    with pytest.raises(SpoolscopeError, match="status -9") as refused:
        Engine(tmp_path / "plan").order()
    assert refused.value.remedy == SCARCE
