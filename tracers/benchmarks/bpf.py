"""Statistics of BPF programs and ring buffers, read from the kernel through bpf(2).

It works on any process's programs, so that no figure comes from the recorder itself.
"""

import ctypes
import mmap
import os
import platform
import re
import struct
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

NR_BPF = {"x86_64": 321, "aarch64": 280}[platform.machine()]
PROG_GET_NEXT_ID, PROG_GET_FD_BY_ID, MAP_GET_FD_BY_ID, OBJ_GET_INFO_BY_FD = 11, 13, 14, 15
RAW_TRACEPOINT_OPEN, ENABLE_STATS = 17, 32
MAP_TYPE_RINGBUF = 27
TRACING = {2, 5, 7, 17, 26}  # kprobe, tracepoint, perf event, raw tracepoint, tracing
NAME_AT, NAME_BYTES, VERIFIED_AT, INFO_BYTES = 64, 16, 216, 256  # struct bpf_prog_info

libc = ctypes.CDLL(None, use_errno=True)


@dataclass(frozen=True)
class RunTime:
    """Run-time statistics of one program since it was loaded; they grow only while enabled."""

    runs: int
    ns: int

    def __sub__(self, earlier: "RunTime") -> "RunTime":
        return RunTime(self.runs - earlier.runs, self.ns - earlier.ns)

    def __add__(self, other: "RunTime") -> "RunTime":
        return RunTime(self.runs + other.runs, self.ns + other.ns)


def bpf(command: int, attributes: bytes) -> int:
    """Make one bpf system call; attributes are copied into a zeroed union."""
    union = ctypes.create_string_buffer(attributes, 128)
    result: int = libc.syscall(NR_BPF, command, union, len(union))
    if result < 0:
        error = ctypes.get_errno()
        raise OSError(error, os.strerror(error), f"bpf command {command}")
    return result


@contextmanager
def run_time_statistics() -> Iterator[None]:
    """Count runs and time of every BPF program of the machine; costs 20-30 ns a run itself."""
    fd = bpf(ENABLE_STATS, struct.pack("=I", 0))
    try:
        yield
    finally:
        os.close(fd)


def programs_of(pid: int) -> dict[str, RunTime]:
    """Return the run time of the programs that a process holds, by name (at most 15 letters)."""
    return {program_name(number): run_time(text) for number, text in _programs(pid)}


def verified_instructions(pid: int) -> dict[int, int]:
    """Return how many instructions the verifier followed to load each program that a process holds.

    The key is the program's id. It is the time that loading takes, nearly: a microsecond each.
    """
    return {
        number: struct.unpack_from("=I", _info(number), VERIFIED_AT)[0]
        for number, _ in _programs(pid)
    }


def _programs(pid: int) -> Iterator[tuple[int, str]]:
    """Yield id and fdinfo text of the programs that a process holds."""
    for text in _fdinfo(pid):
        # A link's text names its program too, without its statistics.
        number = re.search(r"^prog_id:\s*(\d+)$", text, re.M)
        if number and "run_cnt" in text:
            yield int(number[1]), text


def run_time(fdinfo: str) -> RunTime:
    """Return the statistics in a program's /proc/PID/fdinfo text."""
    values = dict(re.findall(r"^(run_cnt|run_time_ns):\s*(\d+)$", fdinfo, re.M))
    return RunTime(int(values["run_cnt"]), int(values["run_time_ns"]))


@contextmanager
def attached(numbers: Iterable[int]) -> Iterator[None]:
    """Attach loaded tp_btf programs, by id, to the tracepoints they were loaded for."""
    fds: list[int] = []
    try:
        for number in numbers:
            fds.append(bpf(PROG_GET_FD_BY_ID, struct.pack("=I", number)))
            fds.append(bpf(RAW_TRACEPOINT_OPEN, struct.pack("=QI", 0, fds[-1])))
        yield
    finally:
        for fd in reversed(fds):
            os.close(fd)


def program_run_time(number: int) -> RunTime:
    """Return the run time of the program with this id."""
    fd = bpf(PROG_GET_FD_BY_ID, struct.pack("=I", number))
    try:
        return run_time(Path(f"/proc/self/fdinfo/{fd}").read_text())
    finally:
        os.close(fd)


def program_name(number: int) -> str:
    """Return the kernel's name of the program with this id."""
    return _info(number)[NAME_AT : NAME_AT + NAME_BYTES].split(b"\0")[0].decode()


def tracing_programs() -> int:
    """Count the tracing programs of the whole machine: they slow every run."""
    return sum(struct.unpack_from("=I", _info(n))[0] in TRACING for n in _program_ids())


def _program_ids() -> Iterator[int]:
    last = 0
    while True:
        attributes = ctypes.create_string_buffer(struct.pack("=II", last, 0), 128)
        if libc.syscall(NR_BPF, PROG_GET_NEXT_ID, attributes, len(attributes)) < 0:
            return  # ENOENT: there are no more
        last = struct.unpack_from("=II", attributes)[1]
        yield last


def _info(number: int) -> bytes:
    """Return struct bpf_prog_info; zeros if the program is gone."""
    info = ctypes.create_string_buffer(INFO_BYTES)
    try:
        fd = bpf(PROG_GET_FD_BY_ID, struct.pack("=I", number))
    except FileNotFoundError:
        return info.raw
    try:
        bpf(OBJ_GET_INFO_BY_FD, struct.pack("=IIQ", fd, INFO_BYTES, ctypes.addressof(info)))
    finally:
        os.close(fd)
    return info.raw


class Rings:
    """Positions of all ring buffers of a process, read from the pages of the rings.

    They stay readable after the process has ended, until ``close``.
    """

    def __init__(self, pid: int) -> None:
        pattern = rf"^map_type:\s*{MAP_TYPE_RINGBUF}$"
        ids = {
            int(number[1])
            for text in _fdinfo(pid)
            if re.search(pattern, text, re.M)
            and (number := re.search(r"^map_id:\s*(\d+)$", text, re.M))
        }
        self.pages = [_consumer_and_producer(number) for number in sorted(ids)]

    def produced(self) -> int:
        """Return all bytes ever written, record headers included, summed over the rings."""
        return sum(self._at(page, mmap.PAGESIZE) for page in self.pages)

    def waiting(self) -> int:
        """Return the bytes written and not yet consumed, of the fullest ring."""
        pairs = ((self._at(page, 0), self._at(page, mmap.PAGESIZE)) for page in self.pages)
        return max((producer - consumer for consumer, producer in pairs), default=0)

    def close(self) -> None:
        for page in self.pages:
            page.close()

    @staticmethod
    def _at(page: mmap.mmap, offset: int) -> int:
        value: int = struct.unpack_from("=Q", page, offset)[0]
        return value


def _consumer_and_producer(number: int) -> mmap.mmap:
    fd = bpf(MAP_GET_FD_BY_ID, struct.pack("=I", number))
    try:
        return mmap.mmap(fd, 2 * mmap.PAGESIZE, mmap.MAP_SHARED, mmap.PROT_READ)
    finally:
        os.close(fd)


def _fdinfo(pid: int) -> Iterator[str]:
    for file in Path(f"/proc/{pid}/fdinfo").iterdir():
        try:
            yield file.read_text()
        except FileNotFoundError:  # it was just closed
            continue
