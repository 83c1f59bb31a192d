"""The fuzzer's corpus of captures (tracers/fuzz) is converted or refused."""

from pathlib import Path

import numpy as np

from spoolscope.tracers.convert import convert
from spoolscope.traces.errors import SpoolscopeError
from spoolscope.traces.trace import Trace

CORPUS = Path(__file__).parents[2] / "fuzz" / "corpus"


def test_every_kept_capture_is_converted_or_refused(tmp_path):
    refused = 0
    captures = sorted(CORPUS.iterdir())
    for capture in captures:
        trace = tmp_path / capture.name
        trace.mkdir()
        try:
            with np.errstate(all="ignore"):  # casts of impossible times
                convert([capture], trace, None)
        except SpoolscopeError:
            refused += 1
            continue
        assert Trace.open(trace).table("syscalls").num_rows > 0
    # A corpus of another version would be refused completely, and test nothing.
    assert len(captures) / 10 < refused < 9 * len(captures) / 10
