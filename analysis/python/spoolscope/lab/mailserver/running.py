"""A server that runs in its own namespaces, and is removed with all its processes."""

import json
import os
import stat
import subprocess
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from spoolscope.lab.mailserver import inside
from spoolscope.lab.mailserver.setup import HOST, Entry, Setup
from spoolscope.traces.errors import SpoolscopeError

START_S, END_S = 60.0, 20.0
_NAMESPACES = ("--mount", "--net", "--pid", "--uts", "--ipc")


@dataclass(frozen=True)
class Server:
    """A running server.

    Attributes:
        setup: Its setup.
        pid: Pid, outside, of the first process of its namespaces.
    """

    setup: Setup
    pid: int

    def words_in_network(self, words: Sequence[str]) -> list[str]:
        """Return the words that run a command of this system in the server's network."""
        return ["nsenter", f"--net=/proc/{self.pid}/ns/net", "--", *words]

    def words_within(self, words: Sequence[str]) -> list[str]:
        """Return the words that run a command in the server's namespaces, with which it ends."""
        kinds = ("--mount", "--net", "--pid", "--uts", "--ipc")
        return ["nsenter", f"--target={self.pid}", *kinds, "--wd=/", "--", *words]

    def path(self, place: Path) -> Path:
        """Return the path of a server's file as seen from this process."""
        return Path(f"/proc/{self.pid}/root") / place.relative_to("/")

    def delivered(self) -> int:
        """Return the number of SMTP messages that have reached their mailboxes so far."""
        file, word = self.setup.delivered
        with suppress(FileNotFoundError):
            return self.path(file).read_text(errors="replace").count(word)
        return 0


@contextmanager
def running(setup: Setup, root: Path, spool: Path) -> Iterator[Server]:
    """Start a server, and end it after the block.

    Args:
        setup: Its setup.
        root: Its unpacked packages.
        spool: Directory for its mail and queue.

    Raises:
        SpoolscopeError: it does not start; with the last lines of its logs.
    """
    if not spool.stat().st_mode & stat.S_IXOTH:
        raise SpoolscopeError(
            f"{spool} is closed to the users that mail belongs to", remedy=f"chmod o+x {spool}"
        )
    words = ["unshare", *_NAMESPACES, "--propagation=private", "--fork", "--kill-child=SIGKILL"]
    words += ["--mount-proc", "--", sys.executable, "-I", "-S", inside.__file__]
    process = subprocess.Popen(
        words,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,  # Ctrl-C goes only to this process, which ends all in order
    )
    try:
        if process.stdin:
            process.stdin.write(json.dumps(plan_of(setup, root, spool)) + "\n")
            process.stdin.flush()
        said = process.stdout.readline() if process.stdout else ""
        answer = json.loads(said) if said else _nothing_said(process)
        if "failed" in answer:
            raise SpoolscopeError(
                f"the mail server does not start: {answer['failed']}",
                remedy="see the last lines of its logs above" if answer["log"] else _remedy(),
                said=answer["log"],
            )
        yield Server(setup, _first_process(process.pid))
    finally:
        _end(process)


def plan_of(setup: Setup, root: Path, spool: Path) -> dict[str, Any]:
    """Return the plan for the first process of the namespaces."""
    return {
        "root": str(root),
        "spool": str(spool),
        "host": HOST,
        "accounts": [vars(account) for account in setup.accounts],
        "directories": [_row(entry) for entry in setup.entries if entry.text is None],
        "files": [_row(entry) for entry in setup.entries if entry.text is not None],
        "start": setup.start,
        "ports": list(setup.ports.values()),
        "limit_s": START_S,
    }


def _row(entry: Entry) -> dict[str, Any]:
    return vars(entry) | {"path": str(entry.path)}


def _nothing_said(process: "subprocess.Popen[str]") -> dict[str, Any]:
    process.wait()
    said = process.stderr.read().strip().splitlines() if process.stderr else []
    return {"failed": said[-1] if said else "its first process ended", "log": []}


def _remedy() -> str:
    if os.geteuid() != 0:
        return "run with sudo"
    return "run it where root may make namespaces and mounts, or in a machine: --vm 6.1"


def _first_process(pid: int) -> int:
    """Return the only child of ``unshare``."""
    return int(Path(f"/proc/{pid}/task/{pid}/children").read_text().split()[0])


def _end(process: "subprocess.Popen[str]") -> None:
    """Close the input of the first process, which ends all; kill it if it does not."""
    if process.stdin:
        with suppress(BrokenPipeError):
            process.stdin.close()
    try:
        process.wait(END_S)
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait()
    for pipe in (process.stdout, process.stderr):
        if pipe:
            pipe.close()
