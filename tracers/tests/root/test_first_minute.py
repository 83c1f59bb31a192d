"""The first sums of a recorder are those of one stretch of the wall clock, whenever it starts."""

import json
import subprocess

import pytest

from spoolscope.traces.native import find_binary

pytestmark = [pytest.mark.root, pytest.mark.steady]

PERIOD_S = 0.25
TOLERANCE_S = PERIOD_S / 8  # minute_files.rs: so much before a border belongs to the next one
STARTS = 3


def test_the_first_minute_ends_with_the_one_in_which_the_recorder_began(spool, tmp_path):
    (tmp_path / "rules.json").write_text("[]")
    mount = spool("ext4")
    for start in range(STARTS):
        work = tmp_path / str(start)
        work.mkdir()
        words = [find_binary("spoolscope-record"), "run", "--spool", mount, "--duration", "0.4"]
        words += ["--rollup", str(PERIOD_S), "--cause-rules", tmp_path / "rules.json"]
        words += ["--output", work / "capture.seg", "--answers", work / "answers.json"]
        subprocess.run(words, check=True)
        first = json.loads((work / "minute-000000000.json").read_text())
        begin_s, covered_s = first["start_ns"] / 1e9, first["covered_ns"] / 1e9
        border_s = ((begin_s + TOLERANCE_S) // PERIOD_S + 1) * PERIOD_S
        assert first["seq"] == 0
        assert begin_s + covered_s == pytest.approx(border_s, abs=0.001)
