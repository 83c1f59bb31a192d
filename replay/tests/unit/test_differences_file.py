"""Groups of filesystems in differences.toml have the members that they should have."""

import errno

import numpy as np
import pytest

from spoolscope.replay.differences import Answer, Types, difference_of, parse
from spoolscope.traces.calls import CALLS
from spoolscope.traces.flat import DTYPES


def name_of(call: str, before: tuple[str, int], after: tuple[str, int], **what: int) -> str | None:
    """Return the class of a call that had different results on two types."""
    op = np.zeros(1, DTYPES["plan_op"])[0]
    op["op"], op["offset"], op["size"] = CALLS[call].id, what.get("offset", -1), -1
    answer = Answer(op, before[1], after[1], 0, direct=False)
    found = difference_of(answer, Types(frozenset([before[0]]), after[0]))
    return found.name if found else None


@pytest.mark.parametrize(
    ("call", "before", "after", "name"),
    [
        # Limits of links to one file: 32,000, 64,535, 65,000, 65,535, 2^31 - 1.
        ("link", ("xfs", 0), ("nilfs2", errno.EMLINK), "links to one file"),
        ("link", ("ext4", 0), ("reiserfs", errno.EMLINK), "links to one file"),
        ("link", ("reiserfs", errno.EMLINK), ("btrfs", 0), "links to one file"),
        ("link", ("nilfs2", 0), ("ext4", errno.EMLINK), None),
        ("link", ("ext2", 0), ("ext4", errno.EMLINK), None),
        ("link", ("ext4", 0), ("exfat", errno.EPERM), "hard links"),
        ("link", ("ext4", 0), ("jfs", errno.EPERM), None),
        ("symlink", ("ext4", 0), ("exfat", errno.EPERM), "symlinks"),
        ("fchown", ("ext4", 0), ("exfat", errno.EPERM), "owners and modes"),
        ("fsetxattr", ("ext4", 0), ("nilfs2", errno.EOPNOTSUPP), "extended attributes of users"),
        ("fgetxattr", ("xfs", errno.ENODATA), ("reiserfs", errno.EOPNOTSUPP),
         "extended attributes of users"),
        ("fsetxattr", ("ext4", 0), ("f2fs", errno.EOPNOTSUPP), None),
        ("fgetxattr", ("ext4", 0), ("xfs", errno.ENODATA), None),
        ("fallocate", ("ext4", 0), ("jfs", errno.EOPNOTSUPP), "preallocation"),
    ],
)  # fmt: skip
def test_what_filesystems_may_answer(call, before, after, name):
    assert name_of(call, before, after) == name


def test_each_type_that_ascends_has_its_own_bytes():
    tib = 1 << 40
    refused = ("ext3", errno.EFBIG)
    assert name_of("ftruncate", ("ext4", 0), refused, offset=3 * tib) == "largest file"
    assert name_of("ftruncate", ("ext4", 0), refused, offset=tib) is None
    refused = ("ext4", errno.EFBIG)
    assert name_of("ftruncate", ("xfs", 0), refused, offset=17 * tib) == "largest file"
    assert name_of("ftruncate", ("xfs", 0), refused, offset=3 * tib) is None


def test_an_unknown_type_is_named():
    line = 'name = "x"\ncalls = ["link"]\nsource = ""\nresults = {EIO = ["ext5"]}'
    with pytest.raises(ValueError, match="'ext5' is neither a group nor a type"):
        parse(f"[groups]\n[[class]]\n{line}")
