"""Text that holds strace's output in another form: sums, web pages, mails, logs, terminals."""

import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import NamedTuple

from spoolscope.traces.errors import SpoolscopeError

_SUMS = re.compile(r"% time +seconds +usecs/call")
_RESULT = re.compile(r"\) += (?:-?\d|\?|0x)")
_ENTITY = re.compile(r"&(?:quot|lt|gt|amp|#0?39|#34);")
_QUOTED = re.compile(r"(?:> ?)+\s*(?:\[pid|\d+ |\w+\(|<\.\.\. )")
_ENCODED = re.compile(r"\) +=3D [-\d?]")
# Syslog and the journal write this before a message: its time, the host, the program.
_LOGGED = re.compile(
    r"(?:[A-Z][a-z]{2} [ \d]\d \d\d:\d\d:\d\d(?:\.\d+)?|\d{4}-\d\d-\d\d[T ]\d\d:\d\d:\d\d\S*) "
    r"\S+ [^\s:\[\]]+(?:\[\d+\])?: "
)
_PADDED = re.compile(r" *= (?:-?\d|\?|0x)")
_NARROWEST, _WIDEST = 40, 1000
"""Columns of terminals; shorter and longer lines that others follow are damaged, not wrapped."""
_UNESCAPE = "python3 -c 'import html, sys; print(html.unescape(sys.stdin.read()))'"


def refuse_other_forms(name: str, texts: Sequence[str], options: str) -> None:
    """Refuse lines whose form is not that in which strace wrote them.

    Args:
        name: The file's name.
        texts: Its first lines.
        options: The command that records what can be imported.

    Raises:
        SpoolscopeError: they are sums of calls, HTML, quoted or encoded as in mails.
    """
    entities = sum(1 for text in texts if _ENTITY.search(text) and '"' not in text)
    quoted = sum(1 for text in texts if _QUOTED.match(text))
    encoded = sum(1 for text in texts if _ENCODED.search(text))
    if 2 * entities > len(texts):
        why, remedy = "is HTML (&quot; instead of quotes)", f"make it text: {_UNESCAPE} < {name}"
    elif 2 * quoted > len(texts):
        why, remedy = "is quoted as in a mail", f"take the marks away: sed 's/^[> ]*//' {name}"
    elif 2 * encoded > len(texts):
        why, remedy = "is encoded as in a mail (=3D)", f"decode it: python3 -m quopri -d {name}"
    elif any(map(_SUMS.search, texts)) and not any(map(_RESULT.search, texts)):
        why, remedy = "has only sums of calls (strace -c), no calls", f"use '{options}'"
    else:
        return
    raise SpoolscopeError(f"{name} {why}", remedy=remedy)


class Pasted(NamedTuple):
    """Changes to the lines of a file after strace wrote them.

    Attributes:
        logged: A log wrote its own time and program before each of them.
        width: Width of the terminal that wrapped them, in columns; 0 if they are whole.
    """

    logged: bool = False
    width: int = 0

    def undone(self, texts: Iterable[str], begins: Callable[[str], bool]) -> Iterator[str]:
        """Yield lines as strace wrote them.

        Args:
            texts: Lines of the file, with their ends.
            begins: Returns whether a line is the beginning of one of strace's.
        """
        lines = map(_without_log, texts) if self.logged else texts
        return _joined(lines, self.width, begins) if self.width else iter(lines)


def pasted(texts: Sequence[str], begins: Callable[[str], bool]) -> Pasted:
    """Return what was done to a file, judged by its first lines.

    Args:
        texts: These lines, with their ends.
        begins: Returns whether a line is the beginning of one of strace's.
    """
    logged = sum(1 for text in texts if _LOGGED.match(text))
    if 2 * logged > len(texts):
        return Pasted(logged=True)
    return Pasted(width=_width(texts, begins))


def _width(texts: Sequence[str], begins: Callable[[str], bool]) -> int:
    """Return at which column a terminal wrapped the lines, 0 if none did.

    Each line that continues another then follows one of the longest; blanks at the end of a line
    are lost when it is copied, many only before a result.
    """
    width = max((len(text.rstrip("\r\n")) for text in texts), default=0)
    rest = [at for at, text in enumerate(texts) if at and text.strip() and not begins(text)]
    wrapped = rest and all(_goes_on(texts[at - 1], texts[at], width) for at in rest)
    return width if wrapped and _NARROWEST <= width <= _WIDEST and begins(texts[0]) else 0


def _joined(texts: Iterable[str], width: int, begins: Callable[[str], bool]) -> Iterator[str]:
    held, last = "", ""
    for text in texts:
        if held and _goes_on(last, text, width) and not begins(text):
            held = held.rstrip("\r\n") + " " * (width - len(last.rstrip("\r\n"))) + text
        else:
            if held:
                yield held
            held = text
        last = text
    if held:
        yield held


def _goes_on(text: str, rest: str, width: int) -> bool:
    """Return whether a terminal may have wrapped a line to these two."""
    text = text.rstrip("\r\n")
    return len(text) in (width - 1, width) or bool(
        len(text) < width and text.endswith(")") and _PADDED.match(rest)
    )


def _without_log(text: str) -> str:
    found = _LOGGED.match(text)
    return text[found.end() :] if found else text
