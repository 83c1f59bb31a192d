"""Single files: written safely in directories of others, read only if they are regular files.

Commands often run as root in directories where others may write: somebody may replace a name
that can be guessed by a symbolic link to a file of root before it is opened.
"""

import errno
import os
import secrets
import stat
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import BinaryIO

from spoolscope.traces.errors import usage_error

LONGEST_PREFIX = 40


@contextmanager
def replacing(path: Path, *, private: bool = False) -> Iterator[BinaryIO]:
    """Write a file that gets its name when the block ends in order; until then it has another.

    That other name cannot be guessed, and is new. A file or link with the final name is replaced;
    if the block fails, that one stays, and the new file is removed.

    Args:
        path: The file to write, in an existing directory.
        private: Only its owner may read it; else the umask decides.

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
    """Write a whole file with replacing(); text is encoded as UTF-8."""
    with replacing(path, private=private) as file:
        file.write(content.encode() if isinstance(content, str) else content)


def check_text(path: Path) -> None:
    """Refuse a path with a name that is no UTF-8: DuckDB and pyarrow cannot open it.

    Raises:
        SpoolscopeError: it has such a name.
    """
    try:
        str(path).encode()
    except UnicodeEncodeError:
        raise usage_error(
            f"the name {path} is no UTF-8, and files in it could not be read", "rename it"
        ) from None


def regular(path: Path) -> Path:
    """Return a path if it is a regular file, which can be read to its end, or a link to one.

    Raises:
        OSError: it is missing, or not a regular file: a pipe may block, a device has no end.
    """
    if not stat.S_ISREG(path.stat().st_mode):
        raise OSError(errno.EINVAL, "it is no regular file", str(path))
    return path
