"""A trace is replayed on machines of its own architecture only."""

import json
import platform
from pathlib import Path

import pytest

from spoolscope.replay.planned import plan
from spoolscope.replay.whatif import WhatIf
from spoolscope.traces.errors import SpoolscopeError
from spoolscope.traces.trace import Trace


@pytest.mark.parametrize("arch", ["sparc64", platform.machine(), "unknown", None])
def test_a_trace_of_another_architecture_is_refused(script, tmp_path: Path, arch) -> None:
    script.thread(10)
    script.call(10, 1, "openat", "x", ret=-2)
    place = script.write(tmp_path / "trace")
    meta = json.loads((place / "meta.json").read_text()) | {"arch": arch}
    (place / "meta.json").write_text(json.dumps({k: v for k, v in meta.items() if v is not None}))
    if arch != "sparc64":
        assert plan(Trace.open(place), tmp_path / "plan", WhatIf())[0].syscalls == 1
        return
    with pytest.raises(SpoolscopeError, match="is of sparc64") as refused:
        plan(Trace.open(place), tmp_path / "plan", WhatIf())
    assert refused.value.remedy == "replay it on a machine with sparc64"
