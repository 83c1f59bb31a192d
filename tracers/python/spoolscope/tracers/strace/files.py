"""Files that strace wrote: one with all threads (-f), or one for each (-ff)."""

import re
from collections.abc import Callable, Iterator, Sequence
from itertools import islice
from pathlib import Path
from shlex import quote
from typing import NamedTuple

from spoolscope.tracers.strace.clocks import TIME, Clock, Kind, bases
from spoolscope.tracers.strace.lines import CHANGED
from spoolscope.tracers.strace.pasted import Pasted, pasted, refuse_other_forms
from spoolscope.tracers.strace.printed import without_output
from spoolscope.tracers.strace.said import is_beside, message
from spoolscope.tracers.strace.traced import Traced
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
_BYTE_ORDER_MARK = "\xef\xbb\xbf"
_PACKED = {
    b"\x1f\x8b": ("packed by gzip", "unpack it: gzip -dc {0} > {0}.txt"),
    b"\xfd7zXZ": ("packed by xz", "unpack it: xz -dc {0} > {0}.txt"),
    b"\x28\xb5\x2f\xfd": ("packed by zstd", "unpack it: zstd -dc {0} > {0}.txt"),
    b"BZh": ("packed by bzip2", "unpack it: bzip2 -dc {0} > {0}.txt"),
    b"\xff\xfe": ("text of UTF-16", "convert it: iconv -f UTF-16 -t UTF-8 {0} > {0}.txt"),
    b"\xfe\xff": ("text of UTF-16", "convert it: iconv -f UTF-16 -t UTF-8 {0} > {0}.txt"),
}
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
        set_back: How often the clock was set back, in the lines so far of one file of all threads.

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
        self.set_back = 0

    def lines(self, progress: Progress) -> Iterator[Line]:
        """Yield the lines of all files."""
        total, done = sum(file.stat().st_size for file in self._forms) or 1, 0
        certain = len(self._forms) == 1
        for file in sorted(self._forms, key=_is_of_taken_over, reverse=True):
            base_ns = self._bases[file]
            clock = Clock(self.kind, in_order=self.in_order, base_ns=base_ns, certain=certain)
            for number, (line, size) in enumerate(self._read(file, clock)):
                done += size
                if number % 16_384 == 0:
                    progress("reading", min(done / total, 1.0))
                yield line
            self.set_back += clock.set_back

    def _read(self, file: Path, clock: Clock) -> Iterator[tuple[Line, int]]:
        ts_ns = 0
        traced = Traced(self._pids[file])
        for text in _texts(file, self._forms[file].pasted, traced):
            head = _HEAD.match(text)
            named = _named(head) if head else 0
            if head is None or _kind(head) is not clock.kind:
                tid = named or traced.nameless()
                yield Line(tid if ts_ns else 0, ts_ns, None, None), len(text)
                continue
            rest = text[head.end() : -1].removesuffix("\r") if text.endswith("\n") else None
            tid = traced.thread(named, rest or "")
            if not tid:
                if traced.all_ended():
                    raise _nameless(f"{file} names no process after the end of those it names")
                yield Line(0, ts_ns, None, None), len(text)
                continue
            ts_ns = clock.at(_stamp(head), tid, rest or "")
            yield Line(tid, ts_ns, head["comm"], rest), len(text)


def _texts(file: Path, done: Pasted, traced: Traced | None = None) -> Iterator[str]:
    """Yield the lines of threads, one character per byte, and tell of the messages between.

    A line that is too long is cut: only its first part is returned.
    """
    held = ""
    for text in without_output(done.undone(_pieces(file), _begins)):
        if said := message(text):
            held += text[: said.start()]
            if traced is not None and said["pid"]:
                traced.said(int(said["pid"]), said["what"])
        elif held or not is_beside(text):
            yield held + text
            held = ""
    if held.strip():
        yield held


def _pieces(file: Path) -> Iterator[str]:
    with regular(file).open(encoding="latin-1", newline="\n") as source:
        if source.read(len(_BYTE_ORDER_MARK)) != _BYTE_ORDER_MARK:
            source.seek(0)
        while text := source.readline(LONGEST):
            yield text
            while len(text) == LONGEST and not text.endswith("\n"):
                text = source.readline(LONGEST)


def _is_of_taken_over(file: Path) -> bool:
    """Return whether a file ends with an execve whose end is in the file of the first thread."""
    with regular(file).open("rb") as source:
        source.seek(max(file.stat().st_size - _BEGINNING, 0))
        return CHANGED.search(source.read().decode("latin-1")) is not None


def _begins(text: str) -> bool:
    """Return whether a line is the beginning of one of strace's, or text beside those."""
    return _HEAD.match(text) is not None or is_beside(text)


def _named(head: "re.Match[str]") -> int:
    return int(head["pid"] or head["pid2"] or 0)


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
    done = pasted(list(without_output(first)), _begins)
    refuse_other_forms(str(file), list(done.undone(first, _begins)), OPTIONS)
    texts = [text[:_BEGINNING] for text in islice(_texts(file, done), LOOKED_AT)]
    for text in texts:
        if head := _HEAD.match(text):
            stamp = _stamp(head) or ""
            return Form(_kind(head), "." in stamp, _named(head) > 0, done)
    if not texts:
        return None
    with regular(file).open("rb") as source:
        begin = source.read(max(map(len, _PACKED)))
    for magic, (what, remedy) in _PACKED.items():
        if begin.startswith(magic):
            raise SpoolscopeError(f"{file} is {what}", remedy=remedy.format(quote(str(file))))
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
    found = {file: int(end[1]) for file in nameless if (end := _SUFFIX.search(file.name))}
    if pid is not None:
        some = [file for file in forms if file in nameless or _has_nameless(file, forms[file])]
        if len(some) != 1:
            there = f"{len(some):,} of the files name none" if some else "all lines name theirs"
            raise SpoolscopeError(
                f"--pid is the process of one file whose lines name none, and {there}",
                remedy="leave --pid out; the process of FILE.N is N",
                exit_code=USAGE,
            )
        found[some[0]] = pid
    for file in nameless:
        if file not in found:
            raise _nameless(f"{file} names no process")
    return {file: found.get(file, 0) for file in forms}


def _has_nameless(file: Path, form: Form) -> bool:
    heads = (_HEAD.match(text) for text in _texts(file, form.pasted))
    return any(head and not _named(head) for head in heads)


def _nameless(why: str) -> SpoolscopeError:
    return SpoolscopeError(
        why,
        remedy="add --pid N with the number that strace was given (-p), or any other",
        exit_code=USAGE,
    )
