"""The notebooks that make filesystems run from top to bottom, at the smallest scale."""

import runpy
from pathlib import Path

import pytest

pytestmark = [pytest.mark.root, pytest.mark.slow, pytest.mark.steady]
NOTEBOOKS = Path(__file__).resolve().parents[3] / "notebooks"
SAID = {
    "02_kjournald": ("The journal is full", "replay"),
    "03_choosing_a_filesystem": ("durability same", "btrfs"),
    "04_maildir_io_2004": ("ext2, which has no journal, writes fastest", "unpack"),
    "05_cyrus_archive_2005": ("write_s", "remove"),
    "06_file_server_2006": ("mkfs", "tree"),
    "08_fsbench_2008": ("c2008-ext3-journal", "deliver"),
}
ELSEWHERE = {
    "01_first_look": "unit tests run it",
    "07_postfix_courier_2007": "its daemons take packages from the network",
}


@pytest.mark.parametrize("name", SAID)
def test_it_runs(name, tmp_path, monkeypatch, capfd, require):
    require("xfs" if name != "02_kjournald" else "ext4")
    require("btrfs" if name.startswith("03") else "ext4")
    monkeypatch.setenv("SPOOLSCOPE_WORK", str(tmp_path))
    variables = runpy.run_path(str(NOTEBOOKS / f"{name}.py"))
    printed = capfd.readouterr().out
    assert [word for word in SAID[name] if word not in printed] == []
    assert sum(len(trace.x) for trace in variables["figure"].data) > 0


def test_each_notebook_is_run_somewhere():
    assert {path.stem for path in NOTEBOOKS.glob("*.py")} == {*SAID, *ELSEWHERE}
