"""Names as they were given, where they tell more than which file is meant.

``f/../g`` is found only if ``f`` is a directory, and ``d/.`` cannot be removed where ``d`` can.
"""

from collections.abc import Sequence

_DOT, _UP = b".", b".."


def normal(path: bytes) -> bytes:
    """Return an absolute path without ``.``, ``..`` and a slash at its end.

    Lexical, as symlinked directories with ``..`` behind them are not met in spools.
    """
    parts: list[bytes] = []
    for part in path.split(b"/"):
        if part == _UP:
            del parts[-1:]
        elif part not in (b"", _DOT):
            parts.append(part)
    return b"/" + b"/".join(parts)


def is_special(name: bytes) -> bool:
    """Tell whether a name may say more than its normal form; most do not."""
    return name.endswith((b"/", b"/.")) or _UP in name or name == _DOT


def tidy(path: bytes) -> bytes:
    """Return an absolute path without what never makes a difference.

    Left are ``..``, and what a walk ends with: ``/`` or ``/.``.
    """
    parts = path.split(b"/")
    kept = [part for part in parts if part not in (b"", _DOT)]
    last = next((part for part in reversed(parts) if part), b"")
    end = b"/." if last == _DOT else b"/" if parts[-1] == b"" and last != _UP else b""
    return b"/" + b"/".join(kept) + end


def below(path: bytes, given: bytes, mounts: Sequence[bytes]) -> bytes | None:
    """Return how a path on a spool was given, None if that is no other.

    Args:
        path: Its normal form.
        given: As ``tidy`` returns it.
        mounts: Where spools are mounted, each with a slash at its end.
    """
    mount = max((m for m in mounts if (path + b"/").startswith(m)), key=len, default=None)
    if mount is None or given in (path, mount):
        return None
    if given.startswith(mount) and _stays(given[len(mount) :]):
        return given
    # It led over the outside: that part is not kept.
    end = next((end for end in (b"/.", b"/") if given.endswith(end)), b"")
    return path + end if end and path + end != mount else None


def _stays(rest: bytes) -> bool:
    """Tell whether a walk never leaves where it began."""
    depth = 0
    for part in rest.split(b"/"):
        depth += -1 if part == _UP else part not in (b"", _DOT)
        if depth < 0:
            return False
    return True
