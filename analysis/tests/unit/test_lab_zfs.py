"""The zfs module of a machine's kernel: what is said without it, and where headers are found."""

from pathlib import Path

import pytest

from spoolscope.lab.vm import zfs
from spoolscope.lab.vm.kernels import Kernel
from spoolscope.replay.commands import checking
from spoolscope.replay.presets import presets
from spoolscope.traces.errors import SpoolscopeError


def test_without_it_a_candidate_is_refused_with_the_way_to_get_it(tmp_path: Path) -> None:
    kernel = Kernel("6.1", "6.1.0-56-amd64", tmp_path)
    with pytest.raises(SpoolscopeError, match="zfs-lz4 needs the zfs module") as caught:
        zfs.check_built(kernel, "zfs-lz4")
    assert caught.value.remedy.startswith("spoolscope lab zfs --kernel 6.1")
    zfs.programs(kernel).mkdir(parents=True)
    zfs.check_built(kernel, "zfs-lz4")


def test_unpacked_headers_find_one_another(tmp_path: Path) -> None:
    headers = tmp_path / "usr/src/linux-headers-6.1.0-56-amd64"
    headers.mkdir(parents=True)
    (headers / "Makefile").write_text("include /usr/src/linux-headers-6.1.0-56-common/Makefile\n")
    common = zfs._relocated(headers, tmp_path)
    assert common == tmp_path / "usr/src/linux-headers-6.1.0-56-common"
    assert (headers / "Makefile").read_text() == f"include {common}/Makefile\n"


def test_a_pool_is_checked_by_its_device() -> None:
    words = checking(presets()["zfs"], "/dev/loop7")
    assert words == ["zdb", "-e", "-cc", "-p", "/dev/loop7", "spoolscope"]
    assert checking(presets()["ext4"], "/dev/loop7") == ["e2fsck", "-f", "-n", "/dev/loop7"]
