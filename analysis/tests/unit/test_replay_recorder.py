"""A signal between the end of a recorded replay and that of its recorder."""

from pathlib import Path

import pytest

from spoolscope.cli import replay_recorder
from spoolscope.tracers.session import Summary


@pytest.mark.parametrize(
    ("status", "signalled", "ends"),
    [(0, False, False), (0, True, True), (None, True, True), (130, True, False)],
)
def test_it_is_not_lost(monkeypatch, tmp_path: Path, status, signalled, ends):
    """Check the signal; an interrupted engine (130) reports itself, with its results."""
    made = Summary(tmp_path, status, {}, signalled=signalled)
    monkeypatch.setattr(replay_recorder, "record", lambda _request, _show, **_: made)
    monkeypatch.setattr("os.geteuid", lambda: 0)
    run = replay_recorder.replay_recorder()
    assert run is not None
    if ends:
        with pytest.raises(KeyboardInterrupt):
            run(tmp_path, ["true"], tmp_path / "trace", lambda _what, _done: None)
    else:
        status = status or 0
        assert run(tmp_path, ["true"], tmp_path / "trace", lambda _what, _done: None) == status
