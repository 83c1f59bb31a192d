"""Rules of insights on recordings: one of the lab's troubles, and what looks like it.

``analysis/benchmarks/insights.py`` records all of them.
"""

import json
import subprocess
import sys

import pytest

pytestmark = [pytest.mark.root, pytest.mark.steady]


def test_a_rule_fires_in_its_trouble_and_not_in_what_looks_like_it(require):
    require("bpf")
    words = [sys.executable, "-m", "spoolscope.cli.main", "lab", "troubles", "frozen_filesystem"]
    done = subprocess.run([*words, "--json", "-q"], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    trouble, alike = json.loads(done.stdout)["scenes"]
    assert "frozen_filesystem" in trouble["fired"]
    assert "frozen_filesystem" not in alike["fired"]
