"""Single files: written so that nobody leads us astray, read only if they are files.

Commands often run as root where others may write: a name that can be guessed may be a
symbolic link to a file of root's by the time it is opened.
"""

import errno
import os
import secrets
import stat
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import BinaryIO

LONGEST_PREFIX = 40


@contextmanager
def replacing(path: Path, *, private: bool = False) -> Iterator[BinaryIO]:
    """Write a file that takes its name when the block ends in order; until then it has another.

    That one cannot be guessed, and is new. What has the final name is replaced, be it a link; if
    the block fails it stays, and nothing else is left.

    Args:
        path: The file to write, in an existing directory.
        private: Only its owner may read it; else as the umask says.

    Raises:
        OSError: the directory is missing, or nothing can be written there.
    """
    draft = path.with_name(f".{path.name[:LONGEST_PREFIX]}.{secrets.token_hex(8)}")
    flags = os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
    descriptor = os.open(draft, flags, 0o600 if private else 0o666)
    try:
        with os.fdopen(descriptor, "w+b") as file:
            yield file
        draft.rename(path)
    except BaseException:
        draft.unlink(missing_ok=True)
        raise


def write_file(path: Path, content: str | bytes, *, private: bool = False) -> None:
    """Write a whole file as replacing() does; text becomes UTF-8."""
    with replacing(path, private=private) as file:
        file.write(content.encode() if isinstance(content, str) else content)


def regular(path: Path) -> Path:
    """Return the path of a file that can be read to its end, or of a link to one.

    Raises:
        OSError: it is missing, or something else: a pipe would be waited for, a device has no end.
    """
    if not stat.S_ISREG(path.stat().st_mode):
        raise OSError(errno.EINVAL, "it is no regular file", str(path))
    return path
