"""What `spoolscope replay` prints of its runs."""

from typing import Any

import pytest

from spoolscope.cli.replay import _print_reasons


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
