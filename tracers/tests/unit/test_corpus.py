"""The fuzzer's seeds (tracers/fuzz) are converted or refused, each as its name says."""

import traceback
from pathlib import Path

import numpy as np
import pytest

from spoolscope.tracers.convert import convert
from spoolscope.traces.capture import read_capture
from spoolscope.traces.errors import SpoolscopeError
from spoolscope.traces.trace import Trace

CORPUS = Path(__file__).parents[2] / "fuzz" / "corpus"
CONVERTED = "converted-ten-kinds-of-records"
# By seed, the function that finds what is wrong, and how it says so.
REFUSALS = {
    "refused-facts-in-no-json": ("_names", "JSONDecodeError"),
    "refused-facts-in-no-utf-8": ("_names", "UnicodeDecodeError"),
    "refused-part-of-a-stack": ("read_capture", "ValueError"),
    "refused-path-of-no-string": ("row", "IndexError"),
    "refused-records-of-another-length": ("_require_sense", "SpoolscopeError"),
    "refused-symbol-at-no-address": ("_names", "ValueError"),
    "refused-version-4": ("_open", "SpoolscopeError"),
    "refused-waker-of-no-kind": ("symbols", "IndexError"),
}


@pytest.mark.parametrize("seed", sorted(CORPUS.iterdir()), ids=lambda seed: seed.name)
def test_a_seed_is_what_its_name_says(seed, tmp_path):
    with np.errstate(all="ignore"):  # casts of impossible times
        if seed.name not in REFUSALS:
            convert([seed], tmp_path, None)
            records = read_capture(seed).records.values()
            assert seed.name == CONVERTED
            assert sum(len(rows) > 0 for rows in records) == 10
            assert Trace.open(tmp_path).table("syscalls").num_rows > 0
            return
        with pytest.raises(SpoolscopeError) as refused:
            convert([seed], tmp_path, None)
    cause = refused.value.__cause__ or refused.value
    frames = traceback.extract_tb(cause.__traceback__)
    own = [frame.name for frame in frames if "spoolscope" in Path(frame.filename).parts]
    own = [name for name in own if not name.startswith("<")]  # comprehensions
    assert (own[-1], type(cause).__name__) == REFUSALS[seed.name]


def test_every_refusal_has_a_seed():
    names = {seed.name for seed in CORPUS.iterdir()}
    assert names == {*REFUSALS, CONVERTED}
