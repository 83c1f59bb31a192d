"""A load on a running server, until all sent messages are delivered."""

import json
import os
import subprocess
import sys
import threading
import time
from dataclasses import asdict, replace

from spoolscope.lab.mailserver.clients import Plan
from spoolscope.lab.mailserver.load import MIX, Load
from spoolscope.lab.mailserver.outcome import Outcome, outcome
from spoolscope.lab.mailserver.running import Server
from spoolscope.lab.mailserver.setup import PASSWORD
from spoolscope.traces.errors import SpoolscopeError

DRAIN_S, POLL_S = 60.0, 0.1
QUIET_S = 0.5
"""Seconds of quiet before and after a load, so that a recording holds all of it."""
FILL_S, FILL_CLIENTS = 3600.0, 8


class Loading:
    """One load; may be run in a thread.

    Attributes:
        outcome: The result, once it has ended.
    """

    def __init__(
        self,
        server: Server,
        load: Load,
        users: int,
        think_s: float = 0.0,
        beside: str | None = None,
    ) -> None:
        setup = server.setup
        self._server = server
        self._load = replace(load, mix=_spoken(load.mix, setup.ports))
        self._plan = Plan(setup.ports, users, PASSWORD, setup.login, setup.folders, think_s)
        self._beside = beside
        self._process: subprocess.Popen[str] | None = None
        self._companion: subprocess.Popen[bytes] | None = None
        self._thread: threading.Thread | None = None
        self._error: BaseException | None = None
        self.outcome: Outcome | None = None

    def over(self) -> bool:
        """Return True if the load is over; the first call starts it."""
        if self._thread is None:
            self._thread = threading.Thread(target=self._keep_error, daemon=True)
            self._thread.start()
        return not self._thread.is_alive()

    def result(self) -> Outcome:
        """Return the result.

        Raises:
            SpoolscopeError: the load failed.
        """
        if self._error is not None:
            raise self._error
        if self.outcome is None:
            raise SpoolscopeError("the load did not begin", remedy="run the command again")
        return self.outcome

    def kill(self) -> None:
        """End the load early, if it runs."""
        for process in (self._process, self._companion):
            if process is not None and process.poll() is None:
                process.kill()
        if self._thread is not None:
            self._thread.join()

    def _keep_error(self) -> None:
        try:
            time.sleep(QUIET_S)
            self.run()
            time.sleep(QUIET_S)
        except BaseException as error:
            self._error = error

    def run(self) -> Outcome:
        """Run the load, and wait until all sent messages are delivered.

        Raises:
            SpoolscopeError: the load failed.
        """
        before = self._server.delivered()
        if self._beside is not None:
            words = self._server.words_within(["sh", "-c", self._beside])
            self._companion = subprocess.Popen(words, stdin=subprocess.DEVNULL, stdout=sys.stderr)
        asked = json.dumps(
            {"load": self._load.to_json(), "plan": asdict(self._plan), "parent": os.getpid()}
        )
        words = [sys.executable, "-m", "spoolscope.lab.mailserver.load", asked]
        self._process = subprocess.Popen(
            self._server.words_in_network(words),
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            start_new_session=True,
        )
        try:
            said, complained = self._process.communicate()
        finally:
            self._process.kill()
        if self._process.returncode:
            last = (complained.strip().splitlines() or ["it was ended"])[-1]
            raise SpoolscopeError(f"the load failed: {last}", remedy="run the command again")
        done = json.loads(said)
        sent = sum(row[0] == "smtp message" and not row[5] for row in done["rows"])
        self._drain(before + sent)
        queued = self._server.delivered() - before
        found = outcome(done["rows"], done["begun_ns"], done["ended_ns"], done["cpu_s"], queued)
        status = None if self._companion is None else self._companion.wait()
        self.outcome = replace(found, beside_status=status)
        return self.outcome

    def _drain(self, wanted: int) -> None:
        """Wait, with a time limit, until so many SMTP messages have reached mailboxes."""
        until = time.monotonic() + DRAIN_S
        while self._server.delivered() < wanted and time.monotonic() < until:
            time.sleep(POLL_S)


def fill(server: Server, users: int, messages: int, seed: int) -> None:
    """Deliver messages to every user, so that there is something to read.

    Raises:
        SpoolscopeError: some were not delivered.
    """
    protocol = "lmtp" if "lmtp" in server.setup.ports else "smtp"
    # The first message makes the mailbox; Cyrus refuses a message while another one makes it.
    for clients, count in ((1, users), (FILL_CLIENTS, users * (messages - 1))):
        if messages == 0 or count == 0:
            continue
        load = Load(FILL_S, None, clients, {protocol: 1}, seed + clients, most=count, each=True)
        done = Loading(server, load, users).run()
        if done.failed or done.left:
            why = next(iter(done.failures), f"{done.left} messages stay in the queue")
            raise SpoolscopeError(
                f"the mail server does not deliver: {why}", remedy="try fewer --users or --messages"
            )


def _spoken(mix: dict[str, int], ports: dict[str, int]) -> dict[str, int]:
    """Return the shares of the server's protocols; without LMTP its share goes to SMTP."""
    spoken = dict(mix or MIX)
    if "lmtp" not in ports and "lmtp" in spoken:
        spoken["smtp"] = spoken.get("smtp", 0) + spoken.pop("lmtp")
    return spoken
