"""The blk tracer of ftrace, used where the kernel locks blktrace's files in debugfs.

Its events go to the global ring buffer only (the tracer refuses instances), so tracing is refused
while another program uses that buffer. Old settings are saved in LEFTOVER before each change and
restored at the end; after kill -9 the next use restores them.
"""

import fcntl
import json
import os
import re
import subprocess
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path
from typing import IO

from spoolscope.tracers.blktrace.records import process_note
from spoolscope.traces.errors import SpoolscopeError

LEFTOVER = Path("/run/spoolscope-blktrace.json")
TRACEFS = Path("/sys/kernel/tracing")
# Buffer of each CPU; it holds 30,000 events, more than a disk makes while the drain sleeps.
_BUFFER_KIB = "2048"
_DRAIN_S = 0.02
_NAMES_S = 1.0
_CHUNK = 1 << 16
# The kernel enables this event for ever when a BPF program that prints is loaded, so it is no sign
# that ftrace is in use.
_NO_USE = "bpf_trace:bpf_trace_printk"


@contextmanager
def tracing_by_ftrace(disks: Sequence[str], output: Path) -> Iterator[Callable[[], int]]:
    """Write the block events of some disks to a file while the block runs.

    Args:
        disks: Kernel names, as below /sys/block.
        output: File to make.

    Yields:
        A function that returns, after the block, how many events the buffer lost.

    Raises:
        SpoolscopeError: no tracefs or no blk tracer, or another program traces.
    """
    with ExitStack() as undo:
        undo.enter_context(_mounted())
        _require_blk_tracer()
        state = undo.enter_context(_only_one())
        _restore(state)
        enables = [Path(f"/sys/block/{disk}/trace/enable") for disk in disks]
        _refuse_if_in_use(enables)
        undo.callback(_restore, state)
        _change(state, _settings(enables))
        with (
            (TRACEFS / "trace_pipe").open("rb", buffering=0) as pipe,
            output.open("xb") as file,
        ):
            drain = _Drain(pipe, file, _device(disks[0]))
            drain.start()
            try:
                yield lambda: drain.lost
            finally:
                for enable in enables:
                    with suppress(FileNotFoundError):  # a disk that has gone
                        _write(enable, "0")
                drain.finish()


@contextmanager
def _mounted() -> Iterator[None]:
    """Mount tracefs for the duration of the block if it is not mounted."""
    if (TRACEFS / "current_tracer").exists():
        yield
        return
    command = ["mount", "-t", "tracefs", "none", str(TRACEFS)]
    if subprocess.run(command, capture_output=True, check=False).returncode:
        raise SpoolscopeError(
            f"no tracefs at {TRACEFS}", remedy=f"run as root: {' '.join(command)}"
        )
    try:
        yield
    finally:
        subprocess.run(["umount", str(TRACEFS)], capture_output=True, check=False)


def _require_blk_tracer() -> None:
    if "blk" not in (TRACEFS / "available_tracers").read_text().split():
        raise SpoolscopeError(
            "this kernel's ftrace has no blk tracer (CONFIG_BLK_DEV_IO_TRACE)",
            remedy="leave out --blktrace",
        )


@contextmanager
def _only_one() -> Iterator[IO[str]]:
    """Lock the file of settings to restore; its content survives the death of a holder."""
    with _locked() as state:
        try:
            yield state
        finally:
            if not os.fstat(state.fileno()).st_size:
                LEFTOVER.unlink()


def _locked() -> IO[str]:
    while True:
        state = LEFTOVER.open("a+")
        try:
            fcntl.flock(state, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError as error:
            state.close()
            raise SpoolscopeError(
                "another spoolscope traces block events", remedy="wait until it has ended"
            ) from error
        with suppress(FileNotFoundError):
            if os.path.samestat(os.fstat(state.fileno()), LEFTOVER.stat()):
                return state
        state.close()  # its last holder has removed it: others lock a new one


def _refuse_if_in_use(enables: list[Path]) -> None:
    tracer = (TRACEFS / "current_tracer").read_text().strip()
    events = set((TRACEFS / "set_event").read_text().split()) - {_NO_USE}
    traced = [str(e.parents[1].name) for e in enables if e.read_text().strip() != "0"]
    if tracer != "nop":
        use, end = f"the tracer {tracer!r} is on", f"echo nop > {TRACEFS}/current_tracer"
    elif events:
        use, end = f"events such as {min(events)} are on", f"echo > {TRACEFS}/set_event"
    elif traced:
        use, end = f"disk {traced[0]} is traced", f"blktrace -d /dev/{traced[0]} -k"
    else:
        return
    raise SpoolscopeError(
        f"somebody uses ftrace: {use}", remedy=f"end that use; if nobody does: {end}"
    )


def _settings(enables: list[Path]) -> list[tuple[Path, str]]:
    """Return what to write where, in order; the disks are last, to be undone first."""
    return [
        (TRACEFS / "trace_clock", "mono"),  # the recorder's clock; empties the buffer
        (TRACEFS / "buffer_size_kb", _BUFFER_KIB),
        (TRACEFS / "tracing_on", "1"),
        (TRACEFS / "current_tracer", "blk"),
        (TRACEFS / "options/blk_classic", "0"),
        (TRACEFS / "options/bin", "1"),
        (TRACEFS / "options/context-info", "0"),  # 16 more bytes before every event
        *((enable, "1") for enable in enables),
    ]


def _change(state: IO[str], settings: list[tuple[Path, str]]) -> None:
    before: list[tuple[str, str]] = []
    for file, value in settings:
        old = file.read_text().strip()
        # "[local] global mono": the value in brackets is set. "7 (expanded: 1408)": the buffer
        # has the size in parentheses after its first use.
        chosen = re.search(r"\[(.+?)\]|expanded: (\d+)", old)
        old = chosen[1] or chosen[2] if chosen else old
        if old == value:
            continue
        before.append((str(file), old))
        state.truncate(0)
        json.dump(before, state)
        state.flush()
        _write(file, value)


def _restore(state: IO[str]) -> None:
    """Restore the settings that a use, this one or one that was killed, has changed."""
    state.seek(0)
    text = state.read()
    with suppress(json.JSONDecodeError):  # killed before its first change
        for file, old in reversed(json.loads(text)):
            with suppress(FileNotFoundError):  # a disk that has gone
                _write(Path(file), old)
    state.truncate(0)


def _write(file: Path, value: str) -> None:
    try:
        file.write_text(value)
    except FileNotFoundError:
        raise
    except OSError as error:
        raise SpoolscopeError(
            f"cannot write {value} to {file}: {error.strerror}",
            remedy="run as root, or leave out --blktrace",
        ) from error


def _device(disk: str) -> int:
    major, minor = Path(f"/sys/block/{disk}/dev").read_text().split(":")
    return int(major) << 20 | int(minor)


class _Drain(threading.Thread):
    """Moves events from the ring buffer to a file, with the names of their threads."""

    def __init__(self, pipe: IO[bytes], file: IO[bytes], dev: int) -> None:
        super().__init__(daemon=True)
        self.lost = 0
        self._pipe, self._file, self._dev = pipe, file, dev
        self._names: dict[bytes, bytes] = {}
        self._lost_before = _lost()
        self._done = threading.Event()
        self._error: OSError | None = None
        os.set_blocking(pipe.fileno(), False)

    def run(self) -> None:
        """Empty the buffer until ``finish`` is called."""
        named = time.monotonic()
        try:
            while not self._done.wait(_DRAIN_S):
                self._empty()
                if time.monotonic() - named > _NAMES_S:
                    named = time.monotonic()
                    self._note_names()
        except OSError as error:
            self._error = error

    def finish(self) -> None:
        """Write the remaining events; called after the last event.

        Raises:
            SpoolscopeError: the file could not be written.
        """
        self._done.set()
        self.join()
        try:
            if self._error:
                raise self._error
            self._empty()
            self._note_names()
            self._file.flush()
        except OSError as error:
            raise SpoolscopeError(
                f"cannot write the block events: {error.strerror}", remedy="make room"
            ) from error
        self.lost = _lost() - self._lost_before

    def _empty(self) -> None:
        # A read returns whole events, at most a page of them; None when there are none.
        while data := self._pipe.read(_CHUNK):
            self._file.write(data)

    def _note_names(self) -> None:
        now = time.clock_gettime_ns(time.CLOCK_MONOTONIC)
        for line in (TRACEFS / "saved_cmdlines").read_bytes().splitlines():
            tid, _, name = line.partition(b" ")
            if tid.isdigit() and name != b"<...>" and self._names.get(tid) != name:
                self._names[tid] = name
                self._file.write(process_note(int(tid), name, now, self._dev))


def _lost() -> int:
    """Return how many events the buffer had no room for: overwritten, or not taken."""
    counter = re.compile(r"(?m)^(?:overrun|commit overrun|dropped events): (\d+)$")
    stats = TRACEFS.glob("per_cpu/cpu*/stats")
    return sum(int(n) for cpu in stats for n in counter.findall(cpu.read_text()))
