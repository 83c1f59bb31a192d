"""Every configuration of the published comparisons replays a part of a sample, or a short load.

Filesystems that this kernel lacks run in a machine whose kernel has them; it is emulated, so its
load is short and has few files. The test is for the same calls with the same results and the same
tree, not for times.
"""

import json
import re
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from spoolscope.replay.candidates import check as refuse
from spoolscope.replay.layers import LAYERS
from spoolscope.replay.presets import presets
from spoolscope.replay.where import why_not_here
from spoolscope.traces.errors import SpoolscopeError

pytestmark = [pytest.mark.root, pytest.mark.slow, pytest.mark.steady]

SAMPLE = Path(__file__).resolve().parents[3] / "traces/samples/courier"
PART = (SAMPLE, "--slice", "5s..5.3s")
SPOOLSCOPE = Path(sys.executable).with_name("spoolscope")
PUBLISHED = [one for name, one in presets().items() if re.match(r"c20\d\d-", name)]
NOWHERE = [one for one in PUBLISHED if not one.kernels]


# Further ones, exported by a server or on each of the layers: no comparison had them, but they
# share the boot.
SERVED = "nfs4"
ON_LAYERS = (
    *("ext4-lvm", "xfs-dm-thin", "ext4-dm-crypt"),
    *("xfs-md-raid1", "ext4-md-raid5", "xfs-md-raid10"),
)
KERNEL = "6.1"


def replayed(
    place: Path, trace: Sequence[str | Path], names: list[str], *more: str
) -> list[dict[str, Any]]:
    on = [word for name in names for word in ("--on", name)]
    words = [SPOOLSCOPE, "replay", *trace, *on, "--pace", "afap", *more,
             "--no-record", "--no-life", "--json", "-q", "-o", place / "out"]  # fmt: skip
    done = subprocess.run(words, capture_output=True, text=True, check=False, cwd=place)
    assert done.stdout, done.stderr
    rows: list[dict[str, Any]] = json.loads(done.stdout)["runs"]
    assert sorted(row["candidate"] for row in rows) == sorted(names)
    return rows


def check(row: dict[str, Any], *, least_names: int) -> None:
    """Compare a run with its recording; results documented for the filesystem may differ."""
    told = (row["candidate"], row["divergences"], row["final_state"])
    others = row["divergent"] - sum(row["divergences"]["of_filesystem"].values())
    assert row["syscalls"] > 900, told
    assert row["executed"] >= 0.999 * row["syscalls"], told
    assert others <= 0.001 * row["executed"], told
    assert row["final_state"]["checked"] > least_names, told
    assert row["final_state"]["mismatched"] == 0, told


def test_those_that_run_nowhere_say_why() -> None:
    assert NOWHERE
    for one in NOWHERE:
        with pytest.raises(
            SpoolscopeError, match=r"does not run here: it needs (a kernel|FreeBSD)"
        ):
            refuse(one, {})


def test_those_of_this_kernel(tmp_path: Path, require) -> None:
    for fstype in ("ext4", "xfs"):
        require(fstype)
    names = [one.name for one in PUBLISHED if why_not_here(one) is None]
    assert len(names) >= 19
    for row in replayed(tmp_path, PART, names):
        check(row, least_names=1000)


def test_those_of_other_kernels(tmp_path: Path, few_files, lab_machine, require_layers) -> None:
    require_layers()
    release = lab_machine(KERNEL).kernel.release
    names = [one.name for one in PUBLISHED if one.kernels and why_not_here(one)]
    assert len(names) >= 12
    assert {presets()[name].layers for name in ON_LAYERS} == {(layer,) for layer in LAYERS}
    others = [SERVED, *ON_LAYERS]
    for row in replayed(tmp_path, [few_files], [*names, *others], "--vm", KERNEL, "--repeats", "0"):
        check(row, least_names=100)
        assert row["kernel"] == release
