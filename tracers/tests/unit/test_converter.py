"""The process that converts segments of a divided recording: priority, failures, a violent end."""

import os
import signal
import time
from pathlib import Path

import pytest

from spoolscope.tracers import converter as module
from spoolscope.tracers.converter import NICE, Converter, Job


def _children(pid: int) -> list[int]:
    return list(map(int, Path(f"/proc/{pid}/task/{pid}/children").read_text().split()))


@pytest.fixture
def slow(monkeypatch, tmp_path) -> Path:
    """Return a segment whose conversion takes a minute, in converters that are started from now."""
    segment = tmp_path / "slow.seg"
    convert = module.convert

    def converted(segments, *rest, **more):
        if segments == [segment]:
            time.sleep(60)
        return convert(segments, *rest, **more)

    monkeypatch.setattr(module, "convert", converted)
    return segment


def _begin(converter: Converter, segment: Path, output: Path) -> int:
    """Begin a conversion; return its process."""
    converter.begin(Job([segment]), output, None, yields=True)
    deadline = time.monotonic() + 30
    while not _children(converter.pid):
        assert time.monotonic() < deadline
        time.sleep(0.01)
    return _children(converter.pid)[0]


def test_a_killed_conversion_is_a_failure_and_the_next_one_works(slow, tmp_path):
    other = tmp_path / "capture-000002.seg"
    other.write_bytes(b"no capture")
    converter, ours = Converter(), os.getpriority(os.PRIO_PROCESS, 0)
    pid = _begin(converter, slow, tmp_path / "trace-000001")
    assert os.getpriority(os.PRIO_PROCESS, pid) == min(ours + NICE, 19)
    if os.geteuid() == 0:
        converter.set_priority(yields=False)
        assert os.getpriority(os.PRIO_PROCESS, pid) == ours
    assert converter.is_busy
    os.kill(pid, signal.SIGKILL)
    assert converter.end().startswith("cannot write trace-000001: its conversion was killed")
    converter.begin(Job([other]), tmp_path / "trace-000002", None, yields=True)
    assert converter.end() == f"cannot write trace-000002: {other} is not a capture"
    assert other.exists()
    converter.close()


def test_a_converter_that_was_killed_fails_each_conversion(slow, tmp_path):
    converter = Converter()
    pid = _begin(converter, slow, tmp_path / "trace-000001")
    for process in (converter.pid, pid):
        os.kill(process, signal.SIGKILL)
    for name in ("trace-000001", "trace-000002"):
        assert converter.end().startswith(f"cannot write {name}: its conversion was killed")
        converter.begin(Job([slow]), tmp_path / "trace-000002", None, yields=True)
    assert not converter.is_busy


def test_it_ends_with_the_process_that_started_it():
    reader, writer = os.pipe()
    if not (parent := os.fork()):
        os.write(writer, str(Converter().pid).encode())
        os._exit(0)
    os.waitpid(parent, 0)
    pid = int(os.read(reader, 20))
    deadline = time.monotonic() + 30
    while _is_alive(pid):
        assert time.monotonic() < deadline
        time.sleep(0.01)


def _is_alive(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except OSError:
        return False
