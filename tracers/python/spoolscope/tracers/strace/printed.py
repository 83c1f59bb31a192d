"""Output of the traced program within strace's, as on a terminal to which both write."""

import re
from collections import deque
from collections.abc import Iterable, Iterator

from spoolscope.tracers.strace.words import unescaped

_WRITE = re.compile(r'[^"]*?\bwrite\(\d+(?:<[^"]*>)?, "([^"\\]*(?:\\.[^"\\]*)*)"(\.\.\.)?, (\d+)')
_WHOLE = re.compile(r"\)| <")
_RESULT = re.compile(r"\)\s+= (\d+)\s")
_MOST = 1 << 16
"""Longest output that is looked for, bytes."""


def without_output(texts: Iterable[str]) -> Iterator[str]:
    """Yield lines without what the program printed in the middle of its own calls of write.

    It is taken out only if it begins with the bytes that strace shows, and the result of the call
    follows after as many bytes as the call wrote.

    Args:
        texts: Lines, one character per byte.
    """
    lines = _Lines(texts)
    while (text := lines.next()) is not None:
        found = _WRITE.match(text) if "write(" in text else None
        if found is None or _WHOLE.match(text, found.end()):
            yield text
        else:
            yield _without(text, found, lines)


class _Lines:
    """Lines, of which those ahead can be looked at."""

    def __init__(self, texts: Iterable[str]) -> None:
        self._source, self._ahead = iter(texts), deque[str]()

    def next(self) -> str | None:
        """Return the next line, None at the end."""
        return self._ahead.popleft() if self._ahead else next(self._source, None)

    def joined(self, text: str, size: int) -> tuple[str, int]:
        """Return a line with the next ones until it has a size, and how many these are."""
        taken: list[str] = []
        missing = size - len(text)
        while missing > 0:
            if len(taken) == len(self._ahead):
                following = next(self._source, None)
                if following is None:
                    break
                self._ahead.append(following)
            taken.append(self._ahead[len(taken)])
            missing -= len(taken[-1])
        return text + "".join(taken), len(taken)

    def drop(self, n: int) -> None:
        """Leave the next lines out."""
        for _ in range(n):
            self._ahead.popleft()


def _without(text: str, found: "re.Match[str]", lines: _Lines) -> str:
    """Return the line of a write without the output in it, or as it is if that is not certain."""
    shown = unescaped(found[1]).decode("latin-1")
    for end in range(found.start(3) + 1, found.end(3) + 1):  # output may begin with digits
        size = int(text[found.start(3) : end])
        fits = len(shown) < size <= _MOST if found[2] else size == len(shown)
        if not fits or not shown.startswith(text[end : end + len(shown)]):
            continue
        whole, taken = lines.joined(text, end + size + 1)
        result = _RESULT.match(whole, end + size)
        if result and int(result[1]) == size and whole.startswith(shown, end):
            lines.drop(taken)
            return whole[:end] + whole[end + size :]
    return text
