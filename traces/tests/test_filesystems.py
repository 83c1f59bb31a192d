"""The table of filesystems: inheritance, words that count once, errors of wrong blocks."""

import pytest

from spoolscope.traces.filesystems import FILESYSTEMS, parse, size_bytes
from spoolscope.traces.inheritance import inherited


def test_a_block_takes_what_it_leaves_out():
    ext2, ext3, ext4 = (FILESYSTEMS[name] for name in ("ext2", "ext3", "ext4"))
    assert (ext2.package, ext2.fsck) == ("e2fsprogs", ("e2fsck", "-f", "-n"))
    assert ext3.journal == ext4.journal
    assert ext2.journal is None
    assert ext2.rules == ("ext4",)


@pytest.mark.parametrize(
    ("tables", "said"),
    [
        ({"a": {"like": "b"}}, r"\[a\] is like 'b', which is not there"),
        ({"a": {"like": "b"}, "b": {"like": "a"}}, r"\[a\] is like itself: a -> b -> a"),
    ],
)
def test_inheritance_that_leads_nowhere(tables, said):
    with pytest.raises(ValueError, match=said):
        inherited(tables)


def test_words_of_which_the_last_counts_are_joined():
    """mke2fs uses the last -E and the last -O, and ignores those before."""
    words = FILESYSTEMS["ext4"].mkfs_words("-E", "nodiscard", "-O", "^dir_index", "-O", "bigalloc")
    assert words[1:] == (
        "-F", "-E", "lazy_itable_init=0,lazy_journal_init=0,nodiscard", "-O", "^dir_index,bigalloc",
    )  # fmt: skip
    assert FILESYSTEMS["xfs"].mkfs_words("-l", "size=64m", "-l", "su=4k")[2:] == (
        "-l", "size=64m", "-l", "su=4k",
    )  # fmt: skip


def test_sizes():
    assert size_bytes("300 MiB") == 300 << 20
    with pytest.raises(ValueError, match="'300' is no size"):
        size_bytes("300")


def test_a_misspelt_key_is_named():
    with pytest.raises(ValueError, match=r"\[x\] has unknown keys or words: \['simlink'\]"):
        parse("[x]\nsimlink = 3")


def test_what_runs_nowhere_says_what_it_needs():
    for kind in FILESYSTEMS.values():
        assert bool(kind.kernels) != bool(kind.needs), kind.type


def test_the_last_property_of_each_name_counts():
    before = FILESYSTEMS["zfs"].joined(("zpool", "-o", "ashift=12", "-O", "xattr=sa"))
    words = FILESYSTEMS["zfs"].joined((*before, "-O", "xattr=on", "-O", "ashift=12"))
    assert words == ("zpool", "-o", "ashift=12", "-O", "xattr=on", "-O", "ashift=12")
