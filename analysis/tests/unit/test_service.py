"""A service says what sd_notify(3) has, and its successor becomes the main process."""

import os
import signal
import socket
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager, nullcontext
from pathlib import Path

import pytest

from spoolscope.cli import record_rollup
from spoolscope.cli.record_rollup import _ready_at
from spoolscope.cli.service import SOCKET, Successor, notify, own_command, succeeded_by
from spoolscope.cli.upkeep import Upkeep
from spoolscope.tracers.request import Request
from spoolscope.tracers.rolling import RolledUp
from spoolscope.traces.errors import ERROR
from spoolscope.traces.phases import unseen

SLEEPS = [sys.executable, "-c", "import time; time.sleep(60)"]
WAIT_S = 10


@pytest.fixture(params=["file", "abstract"])
def manager(
    request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> Iterator[socket.socket]:
    """Listen as a service manager does."""
    name = str(tmp_path / "notify") if request.param == "file" else f"@spoolscope-{os.getpid()}"
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as channel:
        channel.bind(name.replace("@", "\0"))
        channel.settimeout(WAIT_S)
        monkeypatch.setenv(SOCKET, name)
        yield channel


def runs(pid: int) -> bool:
    return Path(f"/proc/{pid}/stat").exists()


def nothing_came(manager: socket.socket) -> None:
    manager.setblocking(False)
    with pytest.raises(BlockingIOError):
        manager.recv(1000)
    manager.settimeout(WAIT_S)


def test_states_come_as_lines(manager: socket.socket) -> None:
    notify(READY=1, STATUS="recording")
    assert manager.recv(1000) == b"READY=1\nSTATUS=recording"


@pytest.mark.parametrize("first", ["taking the snapshot", "recording"])
def test_a_recorder_is_ready_once_it_sums_calls(manager: socket.socket, first: str) -> None:
    """The snapshot of a flight recorder may take longer than a service manager waits."""
    shown: list[str] = []
    show = _ready_at(lambda phase, _share: shown.append(phase))
    show("attaching", None)
    nothing_came(manager)
    for _ in range(2):
        show(first, None)
    assert manager.recv(1000).decode().split("\n") == [f"STATUS={first}", "READY=1"]
    nothing_came(manager)
    assert len(shown) == 3


def test_a_recorder_says_when_its_snapshot_is_whole(manager: socket.socket) -> None:
    show = _ready_at(unseen)
    for phase in (
        "attaching",
        "taking the snapshot",
        "recording",
        "recording (/a\nb was unmounted)",
    ):
        show(phase, None)
    manager.recv(1000)
    assert manager.recv(1000) == b"STATUS=recording"
    nothing_came(manager)


def test_nothing_is_sent_outside_a_service(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv(SOCKET, raising=False)
    notify(READY=1)


def test_a_successor_that_took_over_is_the_main_process(manager: socket.socket) -> None:
    with succeeded_by(SLEEPS) as successor:
        for _ in range(2):  # the second one finds it running
            os.kill(os.getpid(), signal.SIGUSR2)
        successor.took_over = True
    name, _, pid = manager.recv(1000).decode().partition("=")
    assert name == "MAINPID"
    assert runs(int(pid))
    assert successor._process is not None
    successor._process.kill()
    successor._process.wait()
    nothing_came(manager)


def test_a_successor_ends_with_a_service_that_is_stopped(manager: socket.socket) -> None:
    with succeeded_by(SLEEPS) as successor:
        successor.start()
    assert successor._process is not None
    assert successor._process.returncode == -signal.SIGTERM
    nothing_came(manager)


@pytest.mark.parametrize("took_over", [False, True])
def test_a_successor_that_took_over_and_ended_is_known(took_over: bool) -> None:
    with succeeded_by([sys.executable, "-c", ""]) as successor:
        successor.start()
        assert successor._process is not None
        successor._process.wait()
        successor.took_over = took_over
    assert successor.died == took_over


@pytest.mark.parametrize("succeeded", [True, False])
def test_a_service_whose_successor_ended_does_not_end_well(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    *,
    succeeded: bool,
) -> None:
    successors: list[Successor] = []

    @contextmanager
    def noted(words: list[str]) -> Iterator[Successor]:
        with succeeded_by(words) as successor:
            successors.append(successor)
            yield successor

    def taken_over(*_: object, **__: object) -> RolledUp:
        if succeeded:
            successors[0].start()
            assert successors[0]._process is not None
            successors[0]._process.wait()
        return RolledUp(tmp_path, "r", calls=1, handed_over=True)

    monkeypatch.setattr(record_rollup, "record_rollups", taken_over)
    monkeypatch.setattr(record_rollup, "succeeded_by", noted)
    monkeypatch.setattr(record_rollup, "own_command", lambda _more: [sys.executable, "-c", ""])
    status = record_rollup.record_sums(
        Request([tmp_path], tmp_path), nullcontext(unseen), print, Upkeep(tmp_path, None, None),
        take_over=False, as_json=False,
    )  # fmt: skip
    assert status == (ERROR if succeeded else 0)
    assert ("nothing is recorded: start it again" in capsys.readouterr().err) == succeeded


def test_a_successor_that_failed_may_be_started_again(tmp_path: Path) -> None:
    log = tmp_path / "log"
    words = ["sh", "-c", f"echo x >>{log}; exit 1"]
    with succeeded_by(words) as successor:
        for n in (1, 2):
            os.kill(os.getpid(), signal.SIGUSR2)
            until = time.monotonic() + WAIT_S
            while successor._process.poll() is None and time.monotonic() < until:
                time.sleep(0.01)
            assert log.read_text() == "x\n" * n


def test_a_successor_has_the_same_command(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "orig_argv", ["python", "/usr/bin/spoolscope", "record", "--rollup"])
    words = own_command("--take-over")
    assert words == [sys.executable, "/usr/bin/spoolscope", "record", "--rollup", "--take-over"]
    monkeypatch.setattr(sys, "orig_argv", words)
    assert own_command("--take-over") == words
