"""Files that strace -o wrote: one with all threads (-f), or one for each (-ff)."""

import re
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import NamedTuple

from spoolscope.traces.errors import SpoolscopeError
from spoolscope.traces.files import regular

OPTIONS = "strace -f -ff -ttt -T -s 0 -y -o PREFIX"
LONGEST = 4 << 20
"""Characters in a line; what -s 65536 -xx makes of 4 MB is cut and counts as not understood."""
_HEAD = re.compile(
    r"(?:\[pid +(\d{1,9})(?:<[^>]*>)?\] |(\d{1,9})(?:<([^>]*)>)? +(?=\d))?"  # -f, with -Y the name
    r"(\d{9,10})\.(\d{3,9}) (?:\(\+ +[\d.]+\) )?"  # -ttt, perhaps -r
)
_SUFFIX = re.compile(r"\.(\d{1,9})$")
_PREFIX = r"(?:\[pid +\d+\] |\d+ +)?"
_OTHER_TIMES = (
    (re.compile(_PREFIX + r"\d\d:\d\d:\d\d"), "its times are of the day only (-t, -tt)"),
    (re.compile(_PREFIX + r" *\d{1,8}\.\d+ "), "its times are relative (-r)"),
    (re.compile(_PREFIX + r"\d{9,10} "), "its times are whole seconds"),
    (re.compile(_PREFIX + r"(?:\w+\(|\+\+\+ |--- )"), "it tells no times"),
)
Progress = Callable[[str, float | None], None]


class Line(NamedTuple):
    """A line.

    Attributes:
        tid: Its thread; 0 if it does not tell.
        ts_ns: Its time, since the epoch; of a line that cannot be read, of the one before.
        comm: Name of the thread, if told.
        text: What follows; None if the line cannot be read.
    """

    tid: int
    ts_ns: int
    comm: str | None
    text: str | None


def lines_of(files: Sequence[Path], progress: Progress) -> Iterator[Line]:
    """Go through all files.

    Raises:
        SpoolscopeError: one does not begin as strace writes it with the options that are needed.
    """
    total, done = sum(file.stat().st_size for file in files) or 1, 0
    for file in files:
        for number, (line, size) in enumerate(_read(file)):
            done += size
            if number % 16_384 == 0:
                progress("reading", min(done / total, 1.0))
            yield line


def _read(file: Path) -> Iterator[tuple[Line, int]]:
    named = _SUFFIX.search(file.name)
    of_file = int(named[1]) if named else 0
    ts_ns = 0
    for text in _texts(file):
        if text.isspace():
            continue
        head = _HEAD.match(text)
        if not ts_ns:
            _check_first(file, text, head, of_file)
        if head is None:
            yield Line(of_file, ts_ns, None, None), len(text)
            continue
        pid, pid2, comm, seconds, part = head.groups()
        ts_ns = int(seconds) * 10**9 + int(part.ljust(9, "0"))
        rest = text[head.end() : -1] if text.endswith("\n") else None
        yield Line(int(pid or pid2 or of_file), ts_ns, comm, rest), len(text)


def _texts(file: Path) -> Iterator[str]:
    """Lines, one character a byte; of one that is too long the first part, without its end."""
    with regular(file).open(encoding="latin-1", newline="\n") as source:
        while text := source.readline(LONGEST):
            yield text
            while len(text) == LONGEST and not text.endswith("\n"):
                text = source.readline(LONGEST)


def _check_first(file: Path, text: str, head: "re.Match[str] | None", tid: int) -> None:
    if head is None:
        why = next((why for form, why in _OTHER_TIMES if form.match(text)), None)
        what = f"{file}: {why}" if why else f"{file} is not the output of strace"
        raise SpoolscopeError(what, remedy=f"use '{OPTIONS}'")
    if not (head[1] or head[2] or tid):
        raise SpoolscopeError(f"{file}: it tells no process ids", remedy=f"use '{OPTIONS}'")
