"""Orderly ends: a termination signal becomes an exception, and does not disturb the cleanup."""

import signal
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

_Handler = Callable[[int, Any], Any] | signal.Handlers
_ENDING = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)


@contextmanager
def ending_on_signals() -> Iterator[None]:
    """Turn SIGTERM and SIGHUP into KeyboardInterrupt while the block runs, unless ignored."""

    def end(_number: int, _frame: Any) -> None:
        raise KeyboardInterrupt

    numbers = (signal.SIGTERM, signal.SIGHUP)
    with _handled(tuple(n for n in numbers if signal.getsignal(n) != signal.SIG_IGN), end):
        yield


@contextmanager
def undisturbed() -> Iterator[None]:
    """Put off termination signals until the block, which cleans up, has run."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    came: list[int] = []
    try:
        with _handled(_ENDING, lambda number, _frame: came.append(number)):
            # Programs that the block runs inherit this: Ctrl-C goes to all processes of a terminal.
            before = signal.pthread_sigmask(signal.SIG_BLOCK, _ENDING)
            try:
                yield
            finally:
                signal.pthread_sigmask(signal.SIG_SETMASK, before)
    finally:
        for number in dict.fromkeys(came):
            signal.raise_signal(number)


@contextmanager
def _handled(numbers: tuple[signal.Signals, ...], handler: _Handler) -> Iterator[None]:
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    before = {number: signal.signal(number, handler) for number in numbers}
    try:
        yield
    finally:
        for number, was in before.items():
            signal.signal(number, was)
