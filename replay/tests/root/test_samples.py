"""A part of every sample replays on ext4, xfs and btrfs without a divergence."""

from collections.abc import Callable
from pathlib import Path

import pytest

from spoolscope.replay.run import replay
from spoolscope.replay.whatif import parse

pytestmark = [pytest.mark.root, pytest.mark.steady]
PLACE = Path(__file__).resolve().parents[3] / "traces" / "samples"
FILESYSTEMS = ("ext4", "xfs", "btrfs")
# Many other tests replay the sample of Postfix.
SAMPLES = sorted(f.parent.name for f in PLACE.glob("*/meta.json") if "postfix" not in f.parent.name)


@pytest.mark.parametrize("sample", SAMPLES)
def test_it_replays_without_a_divergence(
    tmp_path: Path, require: Callable[..., None], sample: str
) -> None:
    for name in FILESYSTEMS:
        require(name)
    rows = replay(
        PLACE / sample,
        FILESYSTEMS,
        tmp_path / "out",
        pace="afap",
        what_if=parse((), 1, part="10s..13s"),
        whole_life=False,
    )
    assert {row["candidate"] for row in rows} == set(FILESYSTEMS)
    for row in rows:
        assert row["executed"] > 1000
        assert (row["divergent"], row["skipped"], row["final_state"]["mismatched"]) == (0, 0, 0)
