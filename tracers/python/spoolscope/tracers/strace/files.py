"""Files that strace wrote: one with all threads (-f), or one for each (-ff)."""

import re
from collections.abc import Callable, Iterator, Sequence
from itertools import islice
from pathlib import Path
from typing import NamedTuple

from spoolscope.tracers.strace.clocks import TIME, Clock, Kind, bases
from spoolscope.tracers.strace.pasted import Pasted, pasted, refuse_other_forms
from spoolscope.traces.errors import USAGE, SpoolscopeError
from spoolscope.traces.files import regular

OPTIONS = "strace -f -ff -ttt -T -s 0 -y -o PREFIX"
LONGEST = 4 << 20
"""Characters in a line; longer ones (4 MB with -s 65536 -xx) are cut and not understood."""
LOOKED_AT = 1000
"""A file must have a line of strace among these first ones; the others may be cut or foreign."""
_BEGINNING = 4096
_HEAD = re.compile(
    r"\s*(?:\[pid +(?P<pid>\d{1,9})(?:<[^>]*>)?\] +|(?P<pid2>\d{1,7})(?:<(?P<comm>[^>]*)>)? +)?"
    rf"(?:(?:{TIME})(?: \(\+ +[\d.]+\))? +)?"  # with -r beside another its time is in brackets
    r"(?:\[[0-9a-f ?]{1,16}\] +)*"  # numbers of calls (-n), addresses (-i)
    r"(?=[A-Za-z_]\w*\(|<\.\.\. |\+\+\+ |--- )"
)
_SUFFIX = re.compile(r"\.(\d{1,9})$")
# Messages of strace itself, on a line or, without -o, within the line of a thread.
_SAID = re.compile(
    r"(?:(?:strace: )?Process \d+ (?:attached|detached|suspended|resumed)(?: \([^)]*\))?"
    r"|\[ Process PID=\d+ runs in .*\])\s*$"
)
_ENDED = ("+++ exited", "+++ killed")
_FRAME = " > "
"""The beginning of a frame of a call's stack (-k)."""
MESSAGE = "strace: "
Progress = Callable[[str, float | None], None]


class Line(NamedTuple):
    """One line of strace.

    Attributes:
        tid: Its thread; 0 if unknown.
        ts_ns: Its time, since the epoch; if the line cannot be read, that of the line before.
        comm: Name of the thread, if given.
        text: Rest of the line; None if the line cannot be read.
    """

    tid: int
    ts_ns: int
    comm: str | None
    text: str | None


class Form(NamedTuple):
    """Form of the beginning of lines of a file.

    Attributes:
        kind: Origin of its times.
        fine: Times have fractions of seconds.
        with_pid: Each line names its process.
        pasted: What was done to the lines after strace wrote them.
    """

    kind: Kind
    fine: bool
    with_pid: bool
    pasted: Pasted


class Source:
    """The files of one run of strace.

    Args:
        files: Files that strace wrote.
        pid: Process of the lines that name none; only one file may have such lines.

    Attributes:
        kind: Origin of the times.
        in_order: Times do not determine the order of lines, so each line is later than the last.

    Raises:
        SpoolscopeError: a file is not strace's, or its processes or its order are unknown.
    """

    def __init__(self, files: Sequence[Path], pid: int | None = None) -> None:
        self._forms = {file: form for file in files if (form := _form(file)) is not None}
        if not self._forms:
            raise _without_calls(files)
        kinds = {form.kind for form in self._forms.values()}
        self.kind = min(kinds, key=lambda kind: kind.value)
        self.in_order = self.kind is Kind.NONE or not all(f.fine for f in self._forms.values())
        _check_order(self._forms, kinds)
        self._pids = _pids(self._forms, pid)
        stamps = {file: _stamps(file, form.pasted) for file, form in self._forms.items()}
        self._bases = bases(stamps, self.kind)

    def lines(self, progress: Progress) -> Iterator[Line]:
        """Yield the lines of all files."""
        total, done = sum(file.stat().st_size for file in self._forms) or 1, 0
        for file, form in self._forms.items():
            clock = Clock(self.kind, in_order=self.in_order, base_ns=self._bases[file])
            texts = _texts(file, form.pasted)
            for number, (line, size) in enumerate(_read(texts, clock, self._pids[file])):
                done += size
                if number % 16_384 == 0:
                    progress("reading", min(done / total, 1.0))
                yield line


def _read(texts: Iterator[str], clock: Clock, of_file: int) -> Iterator[tuple[Line, int]]:
    ts_ns = 0
    alive = {of_file}
    for text in texts:
        head = _HEAD.match(text)
        tid = int(head["pid"] or head["pid2"] or 0) if head else 0
        if not tid:
            # To a terminal strace names no process while only one is left, whichever that is.
            tid = of_file if of_file in alive or len(alive) > 1 else next(iter(alive), of_file)
        alive.add(tid)
        if head is None or _kind(head) is not clock.kind or not tid:
            yield Line(tid if ts_ns else 0, ts_ns, None, None), len(text)
            continue
        rest = text[head.end() : -1].removesuffix("\r") if text.endswith("\n") else None
        if rest is not None and rest.startswith(_ENDED):
            alive.discard(tid)
        ts_ns = clock.at(_stamp(head), tid, rest or "")
        yield Line(tid, ts_ns, head["comm"], rest), len(text)


def _texts(file: Path, done: Pasted) -> Iterator[str]:
    """Yield lines that are not empty, one character per byte, without messages of strace itself.

    A line that is too long is cut: only its first part is returned.
    """
    held = ""
    for text in done.undone(_pieces(file), _begins):
        if "Process " in text and (said := _SAID.search(text)):
            held += text[: said.start()]
        elif not text.isspace() and not text.startswith(_FRAME):
            yield held + text
            held = ""
    if held.strip():
        yield held


def _pieces(file: Path) -> Iterator[str]:
    with regular(file).open(encoding="latin-1", newline="\n") as source:
        while text := source.readline(LONGEST):
            yield text
            while len(text) == LONGEST and not text.endswith("\n"):
                text = source.readline(LONGEST)


def _begins(text: str) -> bool:
    """Return whether a line is the beginning of one of strace's, or a message of it."""
    return _HEAD.match(text) is not None or text.startswith(MESSAGE)


def _kind(head: "re.Match[str]") -> Kind:
    return next((kind for kind in Kind if kind is not Kind.NONE and head[kind.value]), Kind.NONE)


def _stamp(head: "re.Match[str]") -> str | None:
    return head["unix"] or head["day"] or head["relative"]


def _stamps(file: Path, done: Pasted) -> Iterator[str]:
    """Yield the times of a file."""
    heads = (_HEAD.match(text) for text in _texts(file, done))
    return (stamp for head in heads if head and (stamp := _stamp(head)))


def _form(file: Path) -> Form | None:
    """Return the form of a file's lines, by the first line of strace; None if it is empty."""
    first = [text[:_BEGINNING] for text in islice(_pieces(file), LOOKED_AT)]
    done = pasted(first, _begins)
    texts = [text[:_BEGINNING] for text in islice(_texts(file, done), LOOKED_AT)]
    refuse_other_forms(str(file), texts, OPTIONS)
    for text in texts:
        if head := _HEAD.match(text):
            stamp = _stamp(head) or ""
            return Form(_kind(head), "." in stamp, bool(head["pid"] or head["pid2"]), done)
    if all(text.startswith(MESSAGE) for text in texts):
        return None
    raise SpoolscopeError(f"{file} is not the output of strace", remedy=f"use '{OPTIONS}'")


def _without_calls(files: Sequence[Path]) -> SpoolscopeError:
    """Return the error that no file has a line: all are empty, or have messages of strace only."""
    where = str(files[0]) if len(files) == 1 else "these files"
    texts = (text.strip() for file in files for text in islice(_pieces(file), LOOKED_AT))
    said = next(filter(None, texts), "")
    why = f"only a message of strace: {said[:_BEGINNING]}" if said else "nothing was written"
    return SpoolscopeError(
        f"no call in {where}, {why}", remedy=f"use '{OPTIONS}' as root, while the program works"
    )


def _check_order(forms: dict[Path, Form], kinds: set[Kind]) -> None:
    """Refuse files whose calls cannot be put in one order."""
    if len(forms) < 2:
        return
    why = None
    if len(kinds) > 1:
        why = "the files have times of several kinds"
    elif Kind.NONE in kinds:
        why = "the files have no times"
    elif Kind.RELATIVE in kinds:
        why = "the files' times count from the line before, in any file (-r)"
    elif not all(form.fine for form in forms.values()):
        why = "the files' times are whole seconds"
    if why is not None:
        raise SpoolscopeError(
            f"{why}: nothing tells in which order calls of different files were made",
            remedy=f"import one file (strace -f without -ff), or record with '{OPTIONS}'",
            exit_code=USAGE,
        )


def _pids(forms: dict[Path, Form], pid: int | None) -> dict[Path, int]:
    """Return for each file the process of lines that name none; 0 if it is unknown."""
    nameless = [file for file, form in forms.items() if not form.with_pid]
    if pid is not None and len(nameless) != 1:
        there = f"{len(nameless):,} of the files name none" if nameless else "all lines name theirs"
        raise SpoolscopeError(
            f"--pid is the process of one file whose lines name none, and {there}",
            remedy="leave --pid out; the process of FILE.N is N",
            exit_code=USAGE,
        )
    found = {file: int(end[1]) if (end := _SUFFIX.search(file.name)) else 0 for file in forms}
    if pid is not None:
        found[nameless[0]] = pid
    for file in nameless:
        if not found[file]:
            raise SpoolscopeError(
                f"{file} names no process",
                remedy="add --pid N with the number that strace was given (-p), or any other",
                exit_code=USAGE,
            )
    return found
