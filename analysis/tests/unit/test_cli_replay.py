"""The output of `spoolscope replay` on its runs."""

import os
from pathlib import Path
from typing import Any

import pytest

from spoolscope.cli import replay_recorder
from spoolscope.cli.replay import _print_reasons, _print_runs
from spoolscope.tracers import session
from spoolscope.traces.phases import unseen


def row(candidate: str, n: int, *reasons: str) -> dict[str, Any]:
    verdict = "unfaithful" if reasons else "faithful"
    certificate = {"verdict": verdict, "reasons": list(reasons)}
    return {"candidate": candidate, "round": n, "certificate": certificate}


def test_the_first_unfaithful_run_of_each_candidate_says_why(
    capsys: pytest.CaptureFixture[str],
) -> None:
    xfs = [row("xfs", 1), row("xfs", 2, "late", "other tree"), row("xfs", 3, "late")]
    _print_reasons([*xfs, row("ext4", 1, "drift")])
    told = capsys.readouterr()
    assert told.out == ""
    assert told.err == "xfs-r2 is unfaithful: late; other tree\next4-r1 is unfaithful: drift\n"


def test_runs_of_long_names_are_told_apart(capsys: pytest.CaptureFixture[str]) -> None:
    """Check names that would be equal if they were cut to fit."""
    figures = {"executed": 1, "divergent": 0, "skipped": 0, "makespan_ns": 1, "lateness_p99_ns": 2}
    names = ("xfs", "c2007-ext3-writeback", "c2008-ext3-writeback")
    _print_runs([row(name, 1) | figures | {"final_state": {"mismatched": 0}} for name in names])
    told = capsys.readouterr().out.splitlines()
    assert max(map(len, told)) <= 80
    assert [line.split()[0] for line in told[1:]] == [
        "xfs-r1", "c2007-ext3-writeback-r1", "1", "c2008-ext3-writeback-r1", "1",
    ]  # fmt: skip


def test_a_recorder_that_failed_is_named(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Check the message: the replay ends with its recorder, and was just called interrupted."""
    failed = session.Summary(Path("x"), None, {}, "the recorder ended with code -9: look")
    monkeypatch.setattr(replay_recorder, "record", lambda _request, _show, **_: failed)
    monkeypatch.setattr(os, "geteuid", lambda: 0)
    recorder = replay_recorder.replay_recorder()
    assert recorder is not None
    assert recorder(Path("m"), ["engine"], Path("x"), unseen) == 0
    assert "the recorder ended with code -9" in capsys.readouterr().err
