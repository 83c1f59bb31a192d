"""Paths as the caller gave them, where the form changes the result of the call.

``f/../g`` is found only if ``f`` is a directory; ``d`` can be removed, ``d/.`` cannot.
"""

from collections.abc import Sequence

_DOT, _UP = b".", b".."


def normal(path: bytes) -> bytes:
    """Return an absolute path without ``.``, ``..`` and a slash at its end.

    This is lexical: paths with ``..`` after a symlink to a directory do not occur in spools.
    """
    parts: list[bytes] = []
    for part in path.split(b"/"):
        if part == _UP:
            del parts[-1:]
        elif part not in (b"", _DOT):
            parts.append(part)
    return b"/" + b"/".join(parts)


def within(root: bytes, path: bytes) -> bytes:
    """Return an absolute path with ``.`` for each ``..`` that a root directory leads to itself.

    Args:
        root: The root directory of the process as a normal path; a path may begin outside it.
        path: The path as it reads from the root directory of the machine.
    """
    top, at, kept = root.split(b"/")[1:], list[bytes](), list[bytes]()
    for part in path.split(b"/"):
        if part == _UP and at == top:
            kept.append(_DOT)
            continue
        kept.append(part)
        if part == _UP:
            del at[-1:]
        elif part not in (b"", _DOT):
            at.append(part)
    return b"/".join(kept)


def is_normal(path: bytes) -> bool:
    """Return whether an absolute path is certainly its own normal form, as most are."""
    return path[-1:] != b"/" and b"//" not in path and b"/." not in path


def is_special(name: bytes) -> bool:
    """Return whether a name may differ in effect from its normal form; most names do not."""
    return name.endswith((b"/", b"/.")) or _UP in name or name == _DOT


def tidy(path: bytes) -> bytes:
    """Return an absolute path without the parts that never make a difference.

    It keeps ``..``, and ``/`` or ``/.`` at the end.
    """
    parts = path.split(b"/")
    kept = [part for part in parts if part not in (b"", _DOT)]
    last = next((part for part in reversed(parts) if part), b"")
    end = b"/." if last == _DOT else b"/" if parts[-1] == b"" and last != _UP else b""
    return b"/" + b"/".join(kept) + end


def below(path: bytes, given: bytes, mounts: Sequence[bytes]) -> bytes | None:
    """Return a path on a spool in the form in which it was given, None if that is the same.

    Args:
        path: Its normal form.
        given: The path as ``tidy`` returns it.
        mounts: Mount points of spools, each with a slash at its end.
    """
    mount = max((m for m in mounts if (path + b"/").startswith(m)), key=len, default=None)
    if mount is None or given in (path, mount):
        return None
    if given.startswith(mount) and _stays(given[len(mount) :]):
        return given
    # The walk left the spool: only the end of the given form is kept.
    end = next((end for end in (b"/.", b"/") if given.endswith(end)), b"")
    return path + end if end and path + end != mount else None


def _stays(rest: bytes) -> bool:
    """Return whether a relative walk never leaves the directory in which it began."""
    depth = 0
    for part in rest.split(b"/"):
        depth += -1 if part == _UP else part not in (b"", _DOT)
        if depth < 0:
            return False
    return True
