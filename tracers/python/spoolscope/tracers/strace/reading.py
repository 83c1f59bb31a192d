"""Content of strace's lines: calls, lives of threads, and lines that were not understood."""

from collections import Counter
from collections.abc import Iterable
from typing import NamedTuple

from spoolscope.tracers.strace import lines
from spoolscope.tracers.strace.files import Line
from spoolscope.tracers.strace.lines import CHANGED, DETACHED, RESUMED, UNFINISHED, Called
from spoolscope.tracers.strace.members import clone_flags, members_of
from spoolscope.tracers.strace.old_calls import name_today, today
from spoolscope.tracers.strace.records import Calls, Strings
from spoolscope.tracers.strace.words import NotUnderstoodError, string
from spoolscope.traces.calls import CALLS, of_effect

FORKING, EXECUTING = of_effect("forks"), of_effect("execs")
_MOVING = of_effect("enters", "roots")
_NAMELESS = ("io_submit", "io_uring_enter")
EXIT, EXEC, COMM, UMASK = "exit", "exec", "comm", "umask"
# Calls that an old strace does not know: it prints a number, and addresses instead of names.
_NUMBERED = ("syscall_0x1c4",)  # fchmodat2
_SET_NAME = ("PR_SET_NAME", "0xf")  # the second with -X raw or verbose


class Fork(NamedTuple):
    """A call that made a thread."""

    child: int
    parent: int
    start_ns: int
    end_ns: int
    flags: int


class Event(NamedTuple):
    """An event in the life of a thread."""

    ts_ns: int
    tid: int
    kind: str
    number: int = 0
    text: bytes = b""


class Reading:
    """The content of the lines.

    Args:
        root: Directory that counts as the spool.
        in_order: Times of lines give nothing but their order.

    Attributes:
        strings: All names.
        calls: Calls of calls.txt.
        forks, events: Forks, and events in the lives of threads.
        begins: Times of the first line of each thread, and of the first after each end.
        comms: Names of threads that strace printed (-Y).
        bad: Thread and time of each line that was not understood; thread 0: unknown.
        unfinished: Calls that have not returned yet, by thread.
        in_flight: Threads that were in a call at the end.
        first_ns, last_ns: Times of the first and last line.
        counts: lines; timed and untimed: calls with -T and without; cut: names that -s
            cut; unfinished: calls that had not returned at the end.
        left_out: Calls that are not in calls.txt and name the root, or read and write files without
            a name, by name.
        cwds: Working directories by thread, of getcwd before any change of them.
    """

    def __init__(self, root: str, *, in_order: bool = False) -> None:
        self.root, self._in_order = root, in_order
        self.strings = Strings()
        self.calls = Calls(self.strings)
        self.forks: list[Fork] = []
        self.events: list[Event] = []
        self.begins: dict[int, list[int]] = {}
        self.comms: dict[int, bytes] = {}
        self.bad: list[tuple[int, int]] = []
        self.unfinished: dict[int, tuple[str, int]] = {}
        self.in_flight: set[int] = set()
        self.first_ns, self.last_ns = 1 << 62, 0
        self.counts: Counter[str] = Counter()
        self.left_out: Counter[str] = Counter()
        self.cwds: dict[int, bytes] = {}
        self._moved: set[int] = set()
        self._ended: set[int] = set()
        self._until: dict[int, int] = {}

    def read(self, given: Iterable[Line]) -> None:
        """Read lines; those of each thread must be in order of time."""
        for line in given:
            self.counts["lines"] += 1
            if line.comm:
                self.comms.setdefault(line.tid, line.comm.encode("latin-1"))
            if line.ts_ns:
                self._seen(line.tid, line.ts_ns)
            try:
                if line.text is None:
                    raise NotUnderstoodError
                self._line(line.tid, line.ts_ns, line.text)
            except (NotUnderstoodError, OverflowError):
                self.bad.append((line.tid, line.ts_ns))
        for tid in list(self.unfinished):
            self.in_flight.add(tid)
            self._abandon(tid)

    def _abandon(self, tid: int) -> None:
        """Note a call that never returned."""
        begun, start_ns = self.unfinished.pop(tid)
        name = name_today(lines.name_of(begun))
        self.counts["unfinished"] += name in CALLS and tid in self.in_flight
        try:
            self._call(tid, lines.name_of(begun), begun.rstrip(", ") + ") = ?", start_ns, None)
        except NotUnderstoodError:
            self.bad.append((tid, start_ns))

    def _seen(self, tid: int, ts_ns: int) -> None:
        self.first_ns, self.last_ns = min(self.first_ns, ts_ns), max(self.last_ns, ts_ns)
        if tid not in self.begins:
            self.begins[tid] = [ts_ns]
        elif tid in self._ended:
            self._ended.discard(tid)
            self.begins[tid].append(ts_ns)

    def _line(self, tid: int, ts_ns: int, text: str) -> None:
        if text.startswith("---"):
            return
        if text.startswith("+++"):
            if thread := lines.taken_over_by(text):
                self._take_over(tid, thread, ts_ns)
            elif (code := lines.ended(text)) is not None:
                self._end(tid, ts_ns, code)
            return
        if text.startswith(RESUMED):
            name, rest = lines.resumed(text)
            begun, start_ns = self.unfinished.pop(tid, ("", 0))
            if not begun.startswith(name + "("):
                raise NotUnderstoodError
            self._call(tid, name, begun + rest, start_ns, ts_ns)
        elif text.endswith((UNFINISHED, DETACHED)) or CHANGED.search(text):
            if tid in self.unfinished:
                raise NotUnderstoodError
            self.unfinished[tid] = text.rpartition("<")[0], ts_ns
        else:
            self._call(tid, lines.name_of(text), text, ts_ns, None)

    def _end(self, tid: int, ts_ns: int, code: int) -> None:
        if tid in self.unfinished:
            self._abandon(tid)
        # Calls of a thread are moved so that they do not overlap; its end must be later.
        ended_ns = max(ts_ns, self._until.get(tid, 0) + 1)
        self.events.append(Event(ended_ns, tid, EXIT, code))
        self.last_ns = max(self.last_ns, ended_ns)
        self._ended.add(tid)

    def _take_over(self, tid: int, thread: int, ts_ns: int) -> None:
        """Give the number of the first thread of a process to the one that called execve."""
        if tid in self.unfinished:
            self._abandon(tid)
        if begun := self.unfinished.pop(thread, None):
            self.unfinished[tid] = begun
        self._end(thread, ts_ns, 0)

    def _call(self, tid: int, name: str, text: str, start_ns: int, resumed_ns: int | None) -> None:
        if name_today(name) in CALLS and lines.is_recorded(name, text):
            self._wanted(tid, today(lines.called(text)), start_ns, resumed_ns)
        elif name == "prctl":
            self._renamed(tid, lines.called(text), start_ns)
        elif name == "getcwd":
            self._stood(tid, lines.called(text))
        elif " = " not in text or not name or name in _NUMBERED:
            raise NotUnderstoodError
        elif name in _NAMELESS or self._names_root(text):
            self.left_out[name] += 1

    def _names_root(self, text: str) -> bool:
        return any(said in text for said in (f'"{self.root}/', f"<{self.root}/", f'"{self.root}"'))

    def _wanted(self, tid: int, line: Called, start_ns: int, resumed_ns: int | None) -> None:
        made = members_of(line)
        dur_ns = line.dur_ns
        if resumed_ns is not None and (dur_ns is None or self._in_order):
            dur_ns = max(dur_ns or 0, resumed_ns - start_ns)
        if line.ret is not None:
            self.counts["timed" if dur_ns is not None else "untimed"] += 1
        # strace rounds both to microseconds; calls of a thread never overlap really.
        start_ns = max(start_ns, self._until.get(tid, 0) + 1)
        end_ns = self._until[tid] = start_ns + max(dur_ns or 0, 0)
        self.last_ns = max(self.last_ns, end_ns)
        self.counts["cut"] += made.cut
        if line.name in FORKING and (line.ret or 0) > 0:
            flags = clone_flags(line.args) if line.name.startswith("clone") else 0
            child = line.outside or line.ret or 0  # lines have the numbers of strace's namespace
            self.forks.append(Fork(child, tid, start_ns, end_ns, flags))
        elif line.name in EXECUTING and line.ret == 0:
            self.events.append(Event(end_ns, tid, EXEC, text=made.path or b""))
        elif line.name in _MOVING and line.ret == 0:
            self._moved.add(tid)
        elif line.name == "umask" and line.ret is not None:
            self.events.append(Event(end_ns, tid, UMASK, made.args[0] << 12 | line.ret))
        self.calls.add(line, made, tid, start_ns, end_ns)

    def _stood(self, tid: int, line: Called) -> None:
        directory, cut = string(line.args[0]) if line.args else (None, True)
        if directory and not cut and directory.startswith(b"/") and tid not in self._moved:
            self.cwds.setdefault(tid, directory)

    def _renamed(self, tid: int, line: Called, ts_ns: int) -> None:
        if len(line.args) > 1 and line.args[0].split(" ")[0] in _SET_NAME:
            name, cut = string(line.args[1])
            if name and not cut:
                self.events.append(Event(ts_ns, tid, COMM, text=name))
