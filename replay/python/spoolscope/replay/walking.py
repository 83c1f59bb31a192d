"""Walks of names as the kernel does them: through symlinks, ``..``, and slashes or dots at ends."""

from collections.abc import Callable
from typing import NamedTuple

# Returns the target of a name if that is a symlink, else None.
Lookup = Callable[[bytes], bytes | None]
# Returns the target of a symlink as a name below the replay's target; None if it lies outside.
Below = Callable[[bytes], bytes | None]

# Limit of symlinks that the kernel follows (MAXSYMLINKS).
MOST = 40
END_NONE, END_SLASH, END_DOT, END_UP = 0, 1, 2, 4
_DOT, _UP = b".", b".."


class Walked(NamedTuple):
    """Result of a walk.

    Attributes:
        path: The name without symlinks, ``..`` and its end.
        given: The name without symlinks only.
        end: Its end, which makes it lead through the last component (enum spsc_path_end).
        links: Symlinks that were followed.
    """

    path: bytes
    given: bytes
    end: int
    links: int


def end_of(name: bytes) -> int:
    """Return the end of a name that makes it lead through its last part as a directory."""
    last = name.rpartition(b"/")[2]
    return END_DOT if last in (_DOT, _UP) else END_NONE if last or not name else END_SLASH


def walk(
    name: bytes,
    target_of: Lookup,
    below: Below,
    *,
    final: bool,
    floor: int = 0,
    failed: bool = False,
) -> Walked | None:
    """Return where a name leads, or None if it leaves the spool.

    Args:
        name: A name below the replay's target.
        target_of: Returns the target of a symlink.
        below: Returns a symlink's target as a name below the replay's target.
        final: The last part of the name is followed, too.
        floor: Depth of the spool below the replay's target.
        failed: The call failed: the result is the directory before a ``..`` at the end of the
            name, not the one that this would have led to.
    """
    end = end_of(name)
    parts = [part for part in name.split(b"/") if part not in (b"", _DOT)]
    up = failed and parts[-1:] == [_UP]
    if up:
        parts.pop()
    # Each part has a flag: it belongs to the name itself, not to a symlink.
    left = [(part, True) for part in reversed(parts)]
    final |= end == END_DOT
    done, kept, links = list[bytes](), list[bytes](), 0
    while left:
        part, own = left.pop()
        if part in (b"", _DOT):
            continue
        if part == _UP:
            if len(done) == floor:
                return None
            done.pop()
            if own or kept[-1:] == [_UP]:
                kept.append(part)
            else:
                kept.pop()
            continue
        done.append(part)
        kept.append(part)
        target = target_of(b"/".join(done)) if left or final else None
        if target is None:
            continue
        links += 1
        said = below(target)
        if links > MOST or said is None:
            return None
        if target.startswith(b"/"):
            done, kept = [], []
        else:
            done.pop()
            kept.pop()
        left += [(part, False) for part in reversed(said.split(b"/"))]
    inside = END_UP if _UP in kept else END_NONE
    if up:
        kept.append(_UP)
    elif end != END_NONE and not name.endswith(_UP):
        kept.append(_DOT if end == END_DOT else b"")
    return Walked(b"/".join(done), b"/".join(kept), end | inside, links)
