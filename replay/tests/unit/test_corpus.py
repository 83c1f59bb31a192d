"""Plans that the fuzzer found worth keeping (replay/fuzz): checked or refused, never a crash."""

import subprocess
from collections import Counter
from pathlib import Path

from spoolscope.traces.native import find_binary

CORPUS = Path(__file__).parents[2] / "fuzz" / "corpus" / "plan"


def test_every_kept_plan_is_checked_or_refused():
    engine = find_binary("spoolscope-replay")
    ends: Counter[int] = Counter()
    for plan in sorted(CORPUS.iterdir()):
        done = subprocess.run([engine, "check", plan], capture_output=True, text=True, check=False)
        ends[done.returncode] += 1
        assert done.returncode in (0, 1), (plan.name, done.stderr)
        assert "panicked" not in done.stderr, (plan.name, done.stderr)
    # Most must get as far as being ordered: a corpus of another version tests nothing.
    assert ends[0] > ends[1] > 0
