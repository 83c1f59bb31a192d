"""Termination signals are never lost: not in a clean-up, nor when a program has just ended."""

import os
import signal
import subprocess
import sys
import threading
import time

import pytest

from spoolscope.replay.engine import to_its_end
from spoolscope.replay.interrupts import ending_on_signals, undisturbed


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGHUP])
def test_a_signal_in_a_clean_up_ends_what_follows_it(number):
    done = []

    def clean_up() -> None:
        with undisturbed():
            with undisturbed():
                os.kill(os.getpid(), number)
                # A terminal sends the signal to the programs that clean up, too.
                words = ["sh", "-c", f"kill -{number.value} $$; exit 7"]
                done.append(subprocess.run(words, check=False).returncode)
            done.append("inner")
            time.sleep(0.01)
            done.append("outer")
        done.append("after")

    with pytest.raises(KeyboardInterrupt), ending_on_signals():
        clean_up()
    assert done == [7, "inner", "outer"]


def test_what_nohup_ignores_stays_ignored():
    before = signal.signal(signal.SIGHUP, signal.SIG_IGN)
    try:
        with ending_on_signals():
            os.kill(os.getpid(), signal.SIGHUP)
            with undisturbed():
                os.kill(os.getpid(), signal.SIGHUP)
    finally:
        assert signal.signal(signal.SIGHUP, before) == signal.SIG_IGN


def test_a_signal_that_another_thread_takes_waits_for_the_clean_up_as_well():
    done = []
    stop = threading.Event()
    other = threading.Thread(target=stop.wait)  # it does not block signals
    other.start()

    def clean_up() -> None:
        with undisturbed():
            os.kill(os.getpid(), signal.SIGINT)
            for number in range(1000):
                done.insert(0, number)

    try:
        with pytest.raises(KeyboardInterrupt):
            clean_up()
    finally:
        stop.set()
        other.join()
    assert len(done) == 1000


def test_without_a_signal_nothing_is_changed():
    before = signal.getsignal(signal.SIGINT), signal.pthread_sigmask(signal.SIG_BLOCK, ())
    with undisturbed():
        pass
    assert (signal.getsignal(signal.SIGINT), signal.pthread_sigmask(signal.SIG_BLOCK, ())) == before


def interrupted(program: str) -> int:
    """Interrupt ourselves once the program has written to a pipe that it has begun."""
    read, write = os.pipe()
    os.set_inheritable(write, True)

    def interrupt() -> None:
        os.read(read, 1)
        os.kill(os.getpid(), signal.SIGINT)

    watcher = threading.Thread(target=interrupt)
    watcher.start()
    try:
        # Only the standard descriptors are inherited: the pipe is opened by its name instead.
        ready = f"open('/proc/{os.getpid()}/fd/{write}', 'w').write('.')"
        words = [sys.executable, "-c", f"import signal, time\n{program.format(ready=ready)}"]
        return to_its_end(words)
    finally:
        watcher.join()
        os.close(read)
        os.close(write)


def test_a_program_that_had_done_all_does_not_hide_the_signal():
    with pytest.raises(KeyboardInterrupt):
        interrupted("signal.signal(15, signal.SIG_IGN)\n{ready}\ntime.sleep(0.2)")


def test_a_program_that_ends_early_says_so_itself():
    assert interrupted("signal.signal(15, lambda *_: exit(5))\n{ready}\ntime.sleep(9)") == 5
