"""Calls that fail for lack of space, inodes, descriptors and a disk that works.

lacking.py DIRECTORY IMAGE - the directory is the mount point of a small filesystem in that file.
Prints how many calls failed by a broken or read-only disk, and how many for lack of something.
"""

# The calls themselves are the test, so they are made by their own names.
# ruff: noqa: PTH102, PTH108, PTH116, PTH211

import contextlib
import errno
import os
import resource
import subprocess
import sys
from collections import Counter
from collections.abc import Iterator

BLOCK = 4096
Failed = Counter[int]


@contextlib.contextmanager
def fails(failed: Failed, wanted: int) -> Iterator[None]:
    """Count a failure; there must be one."""
    try:
        yield
    except OSError as error:
        assert error.errno == wanted, error  # noqa: PT017 - not a test
        failed[wanted] += 1
    else:
        raise AssertionError(f"no {errno.errorcode[wanted]}")


def main() -> None:
    directory, image = sys.argv[1:]
    os.chdir(directory)
    failed: Failed = Counter()
    fill()
    with fails(failed, errno.ENOSPC):
        os.write(os.open("more", os.O_CREAT | os.O_WRONLY), b"m" * BLOCK)
    use_all_names(failed)
    use_all_descriptors(failed)
    read_only(failed, directory)
    broken(failed, image)
    print(failed.pop(errno.EIO) + failed.pop(errno.EROFS), failed.total())


def fill() -> None:
    """Write until one write is cut short."""
    fd = os.open("big", os.O_CREAT | os.O_WRONLY)
    size = 13 * BLOCK + 1000
    while (wrote := os.write(fd, b"b" * size)) == size:
        pass
    assert 0 < wrote < size


def use_all_names(failed: Failed) -> None:
    """Make files until there is no inode left; remove one, and go on."""
    os.truncate("big", os.stat("big").st_size - 40 * BLOCK)
    made = 0
    while True:
        try:
            os.close(os.open(f"name{made}", os.O_CREAT | os.O_EXCL | os.O_WRONLY))
        except OSError as error:
            assert error.errno == errno.ENOSPC, error  # noqa: PT017
            failed[errno.ENOSPC] += 1
            break
        made += 1
    for call in (os.mkdir, lambda name: os.symlink("big", name), os.mkfifo):
        with fails(failed, errno.ENOSPC):
            call("other")
    os.unlink("name0")
    os.mkdir("other")


def use_all_descriptors(failed: Failed) -> None:
    """Fail for lack of descriptors, also in an open that would have made a file."""
    os.unlink("name1")
    fd = os.open("big", os.O_RDONLY)
    limits = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (fd + 1, limits[1]))
    with fails(failed, errno.EMFILE):
        os.open("never", os.O_CREAT | os.O_WRONLY)
    with fails(failed, errno.EMFILE):
        os.dup(fd)
    resource.setrlimit(resource.RLIMIT_NOFILE, limits)


def read_only(failed: Failed, directory: str) -> None:
    """Make the filesystem read-only, as it becomes when it finds itself damaged."""
    os.closerange(3, 20)
    subprocess.run(["mount", "-o", "remount,ro", directory], check=True)
    with fails(failed, errno.EROFS):
        os.open("name2", os.O_WRONLY | os.O_TRUNC)
    with fails(failed, errno.EROFS):
        os.unlink("name2")
    subprocess.run(["mount", "-o", "remount,rw", directory], check=True)


def broken(failed: Failed, image: str) -> None:
    """Read a block that the disk has lost."""
    fd = os.open("big", os.O_RDONLY)
    os.posix_fadvise(fd, 0, 0, os.POSIX_FADV_DONTNEED)
    whole = os.stat(image).st_size
    os.truncate(image, whole // 2)
    with fails(failed, errno.EIO):
        os.pread(fd, BLOCK, os.stat("big").st_size - BLOCK)
    os.truncate(image, whole)


if __name__ == "__main__":
    main()
