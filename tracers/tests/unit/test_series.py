"""A recording in several traces says what an operator must know at once."""

from pathlib import Path

import pytest

from spoolscope.tracers.request import Limit, Request
from spoolscope.tracers.series import Series


@pytest.mark.parametrize("rollup_s", [None, 60])
def test_a_spool_that_is_not_seen_any_more_is_said_once(
    tmp_path: Path, rollup_s: float | None
) -> None:
    said: list[str] = []
    request = Request([tmp_path], tmp_path / "box", last=Limit(age_s=60), rollup_s=rollup_s)
    series = Series(request, None, said.append)
    series.on({"event": "unmounted", "spool": "/var/mail"})
    series.close()
    expected = "goes on, but the spool /var/mail was unmounted: calls there are not recorded"
    assert said == ([expected] if rollup_s is None else [])
