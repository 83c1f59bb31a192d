"""The parts of every single call add up, in the shipped sample."""

from pathlib import Path

from spoolscope.traces.trace import Trace

SAMPLE = Path(__file__).parents[3] / "traces/samples/postfix-dovecot"


def test_every_row_of_the_sample_adds_up(check_every_row):
    assert check_every_row(Trace.open(SAMPLE)) > 100_000
