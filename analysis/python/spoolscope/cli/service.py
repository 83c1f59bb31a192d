"""Messages between a service manager and a recorder: ready, stopping, and a new main process.

The protocol is that of sd_notify(3): a datagram to the socket that $NOTIFY_SOCKET names.
"""

import os
import signal
import socket
import subprocess
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

SOCKET = "NOTIFY_SOCKET"
SUCCEED = signal.SIGUSR2
"""The signal that starts a successor."""


def notify(**states: object) -> None:
    """Send states, such as READY=1 or MAINPID=12; nothing listens outside a service."""
    address = os.environ.get(SOCKET, "")
    if not address.startswith(("/", "@")):
        return
    lines = "\n".join(f"{name}={value}" for name, value in states.items())
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM | socket.SOCK_CLOEXEC) as channel:
        channel.sendto(lines.encode(), address.replace("@", "\0", 1))


class Successor:
    """The process that takes over from this one, if there is any.

    Attributes:
        took_over: It has taken over: it is to be the main process.
        died: It had taken over, but has ended when this process does: nothing records any more.
    """

    def __init__(self, words: Sequence[str]) -> None:
        """Prepare to start a command.

        Args:
            words: The command; empty: this process has no successor.
        """
        self._words = list(words)
        self._process: subprocess.Popen[bytes] | None = None
        self.took_over = False
        self.died = False

    def start(self, *_: Any) -> None:
        """Start it, unless it runs; one that failed may be tried again."""
        if self._words and (self._process is None or self._process.poll() is not None):
            self._process = subprocess.Popen(self._words)

    def settle(self) -> None:
        """Make it the main process, or end it if this one was ended meanwhile."""
        if self._process is None:
            return
        if self._process.poll() is not None:
            self.died = self.took_over
        elif self.took_over:
            notify(MAINPID=self._process.pid)
        else:
            self._process.terminate()
            self._process.wait()


@contextmanager
def succeeded_by(words: Sequence[str]) -> Iterator[Successor]:
    """Start a command on SIGUSR2 while the block runs; see ``Successor``."""
    successor = Successor(words)
    before = signal.signal(SUCCEED, successor.start)
    try:
        yield successor
    finally:
        signal.signal(SUCCEED, before)
        successor.settle()


def own_command(more: str) -> list[str]:
    """Return the command of this process with one more option."""
    words = [sys.executable, *sys.orig_argv[1:]]
    return words if more in words else [*words, more]
