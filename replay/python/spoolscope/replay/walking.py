"""The way that a name leads, as the kernel walks it: through symlinks, ``..`` and what ends it."""

from collections.abc import Callable
from typing import NamedTuple

# What a name leads to, if it is a symlink.
Lookup = Callable[[bytes], bytes | None]
# What a symlink says as a name below the target; None if that lies outside.
Below = Callable[[bytes], bytes | None]

# As many as the kernel follows (MAXSYMLINKS).
MOST = 40
END_NONE, END_SLASH, END_DOT, END_UP = 0, 1, 2, 4
_DOT, _UP = b".", b".."


class Walked(NamedTuple):
    """Where a name led.

    Attributes:
        path: The name without symlinks, ``..`` and what ended it.
        given: The name without symlinks only.
        end: What makes it lead through its last component (enum spsc_path_end).
        links: Symlinks that were followed.
    """

    path: bytes
    given: bytes
    end: int
    links: int


def end_of(name: bytes) -> int:
    """Tell what makes a name lead through its last component, as if that were a directory."""
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
        name: Below the target.
        target_of: What a name leads to.
        below: What a symlink says, as a name below the target.
        final: The last of its parts is followed, too.
        floor: How deep below the target the spool lies.
        failed: The call failed: it is about what its name leads through, not what a ``..`` at its
            end would have led to.
    """
    end = end_of(name)
    parts = [part for part in name.split(b"/") if part not in (b"", _DOT)]
    up = failed and parts[-1:] == [_UP]
    if up:
        parts.pop()
    # Each with whether it is of the name itself, not of a symlink.
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
