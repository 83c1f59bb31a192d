"""A recording without a snapshot: its calls prove which files existed."""

import json
import shutil
from pathlib import Path

import pytest

from spoolscope.replay.run import replay
from spoolscope.traces.digests import write_meta

SAMPLE = Path(__file__).resolve().parents[3] / "traces" / "samples" / "postfix-dovecot"
SNAPSHOT = ("tree", "missed_names", "xattrs")
# The limit for 147,348 calls; here none of them differed.
FEW = 15


@pytest.mark.slow
def test_a_recording_without_its_snapshot_is_replayed_all_the_same(tmp_path):
    trace, target = tmp_path / "trace", tmp_path / "target"
    shutil.copytree(SAMPLE, trace)
    target.mkdir()
    meta = json.loads((trace / "meta.json").read_text())
    assert meta["counts"]["tree"] > 0
    for table in SNAPSHOT:
        (trace / f"{table}.parquet").unlink(missing_ok=True)
        meta["counts"][table] = 0
    write_meta(trace, meta)
    (row,) = replay(trace, [f"dir:{target}"], tmp_path / "out", pace="afap")
    assert row["executed"] == row["syscalls"] > 100_000
    assert row["divergent"] <= FEW
    assert row["final_state"]["mismatched"] <= FEW
    assert row["final_state"]["checked"] > 1000


def test_what_calls_prove(script, tmp_path):
    """Sizes by reads, directories by names below them, contents of files that might be new."""
    target = tmp_path / "target"
    target.mkdir()
    script.call(10, 1, "openat", "box/index", ret=3, flags=0)
    script.call(10, 2, "pread64", "box/index", ret=4096, base=0, fd=3, offset=8192, size=4096)
    script.call(10, 3, "openat", "log", ret=4, flags=0o102)
    script.call(10, 4, "pread64", "log", ret=100, base=0, fd=4, offset=0, size=4096)
    script.call(10, 5, "mkdir", "cur", ret=-17)
    script.call(10, 6, "openat", "cur", ret=5, flags=0o200000)
    script.call(10, 7, "rmdir", "old", ret=-39)
    script.call(10, 8, "rename", "a", path2="b")
    script.call(10, 9, "openat", "b/mail", ret=6, flags=0)
    script.call(10, 10, "unlink", "gone", ret=-2)
    trace = script.write(tmp_path / "trace")
    (row,) = replay(trace, [f"dir:{target}"], tmp_path / "out", pace="afap")
    assert (row["executed"], row["divergent"]) == (10, 0)
    assert row["final_state"]["mismatched"] == 0
