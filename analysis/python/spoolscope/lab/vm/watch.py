"""Watching a machine from outside: the output of its command, and its heartbeat."""

import selectors
import socket
import time
from collections.abc import Mapping
from contextlib import suppress
from typing import IO

GRACE_S = 60.0
"""Seconds that an interrupted command, or a machine that powers off, has to end."""
_PIECE = 1 << 16


class SilentError(Exception):
    """A machine has been silent for too long."""


class Watch:
    """The serial ports of a machine, from begin to end.

    Attributes:
        status: Exit status of its command; None before that has ended.
        carried: Exit status of the transfer of results; None as above.
        began: True if it began its command.
        interrupted: True if it was asked to end.
    """

    def __init__(
        self, control: socket.socket, streams: Mapping[socket.socket, IO[bytes]], silence_s: float
    ) -> None:
        self.status: int | None = None
        self.carried: int | None = None
        self.began = self.interrupted = False
        self._control, self._streams, self._silence_s = control, streams, silence_s
        self._selector = selectors.DefaultSelector()
        for end in (control, *streams):
            self._selector.register(end, selectors.EVENT_READ)
        self._until = time.monotonic() + silence_s
        self._words = b""

    def until_the_end(self) -> None:
        """Pass on the output until the machine is off.

        Ctrl-C is passed on, too; a second one, or one that has no effect, ends the machine.

        Raises:
            SilentError: it hangs.
            KeyboardInterrupt: it was interrupted, and did not end in order.
        """
        with self._selector:
            while self._selector.get_map():
                try:
                    self._listen()
                except KeyboardInterrupt:
                    if self.interrupted or not self.began:
                        raise
                    self.interrupted = True
                    self._until = time.monotonic() + GRACE_S
                    self._control.sendall(b"interrupt\n")

    def _listen(self) -> None:
        left = self._until - time.monotonic()
        ready = self._selector.select(max(left, 0))
        if not ready and left <= 0:
            if self.interrupted:
                raise KeyboardInterrupt
            raise SilentError
        for key, _ in ready:
            end = key.fileobj
            assert isinstance(end, socket.socket)
            data = b""
            with suppress(ConnectionResetError):
                data = end.recv(_PIECE)
            if not data:
                self._selector.unregister(end)
            elif end is self._control:
                self._heed(data)
            else:
                self._streams[end].write(data)
                self._streams[end].flush()

    def _heed(self, data: bytes) -> None:
        *lines, self._words = (self._words + data).split(b"\n")
        for line in lines:
            match line.split():
                case [b"up"]:
                    self.began = True
                case [b"exit", status, carried]:
                    self.status, self.carried = int(status), int(carried)
        if not self.interrupted:
            self._until = time.monotonic() + self._silence_s
