"""The Postfix and Dovecot of traces/samples/rig as a load: a fixed number of messages."""

import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
from tools import UnusableError, complaint, unchanged
from workloads import HERE, Run, Wrap

SCRIPTS = HERE.parents[1] / "traces" / "samples" / "rig"
PORTS = (10025, 10143, 10110)
SENDERS, MESSAGE_BYTES = 4, 5000
TIMEOUT_S = 120.0
POLL_S = 0.02
INCOMPLETE = 3  # exit code of spoolscope: a trace with losses


@dataclass(frozen=True)
class Rig:
    """Mail servers that are stopped between the runs.

    Attributes:
        home: Directory of ``rig.sh up``; the spool is ``home/spool``.
    """

    home: Path

    @property
    def spool(self) -> Path:
        return self.home / "spool"

    def script(self, verb: str) -> list[str]:
        return ["env", f"RIG={self.home}", str(SCRIPTS / "rig.sh"), verb]

    @contextmanager
    def serving(self, wrap: Wrap) -> Iterator[None]:
        """Start the servers, as children of the tracer if it has to be their parent."""
        errors = self.home / "start.err"
        with errors.open("w") as stderr:
            start = subprocess.Popen(
                wrap(self.script("start")), stdin=subprocess.DEVNULL, stdout=stderr, stderr=stderr
            )
        try:
            wait_for(
                lambda: all(map(answers, PORTS)),
                lambda: f"the rig does not start: {errors.read_text()}",
            )
            yield
        finally:
            subprocess.run(self.script("stop"), check=True)
            start.wait()
            wait_for(lambda: not any(map(answers, PORTS)), lambda: "the rig does not stop")

    def deliver(self, messages: int) -> Run:
        """Send one message to each of as many users; wait until the last is in its Maildir."""
        log = self.home / "log" / "postfix.log"
        before = sent(log)
        command = ["smtp-source", "-N", "-s", str(SENDERS), "-l", str(MESSAGE_BYTES)]
        command += ["-m", str(messages), "-f", "a@example.com", "-t", "user@example.com"]
        began = time.monotonic()
        subprocess.run([*command, f"127.0.0.1:{PORTS[0]}"], check=True)
        wait_for(lambda: sent(log) >= before + messages, lambda: f"not delivered, see {log}")
        return Run(ops=messages, ns=round((time.monotonic() - began) * 1e9))

    def run(self, messages: int, wrap: Wrap = unchanged) -> Run:
        with self.serving(wrap):
            return self.deliver(messages)

    def trace_size(self, work: Path, seconds: float) -> dict[str, Any]:
        """Record the mixed load of the sample; return bytes per call of the trace."""
        trace = work / "rig.trace"
        spoolscope = Path(sys.executable).parent / "spoolscope"
        command = [str(spoolscope), "record", "--spool", str(self.spool), "-o", str(trace)]
        with self.serving(unchanged):
            recorder = subprocess.Popen(
                [*command, "-d", str(seconds)],
                stdout=subprocess.DEVNULL,
                stderr=subprocess.PIPE,
                text=True,
            )
            load = [sys.executable, str(SCRIPTS / "load.py"), "--seconds", str(seconds)]
            subprocess.run(load, check=True, stdout=subprocess.DEVNULL)
            _, errors = recorder.communicate()
        if recorder.returncode not in (0, INCOMPLETE):
            said = errors.strip().splitlines()[-1:]
            raise UnusableError(f"spoolscope record ended with {recorder.returncode}: {said}")
        sizes = {file.stem: file.stat().st_size for file in trace.glob("*.parquet")}
        calls = pq.read_metadata(trace / "syscalls.parquet").num_rows
        return {
            "calls": calls,
            "complete": recorder.returncode == 0,
            "all_tables": sum(sizes.values()) / calls,
            "syscalls_and_paths": (sizes["syscalls"] + sizes["paths"]) / calls,
            "by_table": {name: size / calls for name, size in sorted(sizes.items())},
        }


@contextmanager
def rig(work: Path) -> Iterator[Rig]:
    """Make the rig, with a mailbox for every user, and remove it afterwards."""
    if any(map(answers, PORTS)):
        raise UnusableError(f"something serves port {PORTS[0]} already: another rig?")
    made = Rig(work / "rig")
    done = subprocess.run(made.script("up"), capture_output=True, text=True, check=False)
    if done.returncode:
        raise UnusableError(complaint(done.stderr) or f"rig.sh up ended with {done.returncode}")
    try:
        subprocess.run(made.script("stop"), check=True)
        yield made
    finally:
        subprocess.run(made.script("down"), check=True)


def answers(port: int) -> bool:
    try:
        socket.create_connection(("127.0.0.1", port), 1).close()
    except OSError:
        return False
    return True


def sent(log: Path) -> int:
    return log.read_text().count("status=sent") if log.exists() else 0


def wait_for(happened: Callable[[], bool], complaint: Callable[[], str]) -> None:
    deadline = time.monotonic() + TIMEOUT_S
    while not happened():
        if time.monotonic() > deadline:
            raise UnusableError(complaint())
        time.sleep(POLL_S)
