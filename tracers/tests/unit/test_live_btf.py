"""The offsets that spooltop uses, compared with bpftool's output for the same BTF."""

import importlib.util
import re
import subprocess
from pathlib import Path

import pytest

LIVE = Path(__file__).resolve().parents[2] / "live"
BTF = Path("/sys/kernel/btf/vmlinux")
MEMBERS = [
    ("task_struct", "files"),
    ("task_struct", "fs"),
    ("files_struct", "fdt"),
    ("fdtable", "max_fds"),
    ("fdtable", "fd"),
    ("file", "f_inode"),
    ("inode", "i_sb"),
    ("super_block", "s_dev"),
    ("fs_struct", "pwd"),
    ("path", "dentry"),
    ("dentry", "d_sb"),
]


def test_offsets_are_those_of_bpftool(require):
    require("bpftool")
    if not BTF.exists():
        require("btf", reason="this kernel has no BTF (/sys/kernel/btf/vmlinux)")
    spec = importlib.util.spec_from_file_location("btf", LIVE / "btf.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    kernel = module.Btf(BTF)
    dump = subprocess.run(
        ["bpftool", "btf", "dump", "file", BTF, "format", "raw"],
        capture_output=True,
        text=True,
        check=True,
    ).stdout
    for structure, member in MEMBERS:
        body = re.search(rf"STRUCT '{structure}' .*?(?=\n\[)", dump, re.S)[0]
        bits = re.search(rf"'{member}' type_id=\d+ bits_offset=(\d+)", body)[1]
        assert kernel.offset(structure, member) == int(bits) // 8
    # A member of an unnamed union has the offset of the union.
    assert kernel.offset("file", "f_path") > 0
    with pytest.raises(KeyError, match=r"file\.nosuch"):
        kernel.offset("file", "nosuch")
