"""The exporter at work: it reads what came, and hands it on in every way that was asked for."""

import socket
import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from pathlib import Path

import pyarrow as pa

from spoolscope.exporter import catalogue as of
from spoolscope.exporter.follower import Follower, Tables
from spoolscope.exporter.minute_sums import MinuteSums
from spoolscope.exporter.otlp_push import push, request
from spoolscope.exporter.rendering import OPENMETRICS, PLAIN, rendered
from spoolscope.exporter.scraped import Page
from spoolscope.traces.files import write_file

POLL_S = 2.0
"""Seconds between looks into the directory: minutes come once a minute."""
PUSH_S = 60.0
"""Seconds between pushes, sooner if a minute came."""


@dataclass(frozen=True)
class Ways:
    """The ways in which metrics leave.

    Attributes:
        page: Page of the HTTP endpoint.
        textfile: File for node_exporter, which replaces the old one.
        otlp: URL of an OTLP receiver.
    """

    page: Page | None = None
    textfile: Path | None = None
    otlp: str | None = None


class Running:
    """The exporter between two looks into its directory."""

    def __init__(
        self, follower: Follower, most_programs: int, ways: Ways, warn: Callable[[str], None]
    ) -> None:
        """Read the newest roll-ups for their names, and begin at zero.

        Args:
            follower: Reader of the directory.
            most_programs: Number of programs with a label of their own.
            ways: How the metrics leave.
            warn: Function that prints one line.
        """
        self.sums = MinuteSums(most_programs)
        self._follower, self._ways, self._warn = follower, ways, warn
        self._start_ns = time.time_ns()
        self._pushed_s = 0.0
        self._fails: set[str] = set()
        if recent := list(follower.recent()):
            self.sums.add(joined(recent))
        self.sums.forget()
        self._hand_on()

    def look(self) -> int:
        """Add the roll-ups that came, hand the metrics on; return the number of flushes."""
        was = self._follower.readable
        came = 0
        for tables in self._follower.new():
            self.sums.add(tables)
            came += 1
        overdue = time.monotonic() - self._pushed_s >= PUSH_S
        if came or was != self._follower.readable or overdue:
            self._hand_on()
        return came

    def _hand_on(self) -> None:
        take_outcomes(self.sums, self._follower)
        ways = self._ways
        plain = rendered(self.sums, PLAIN).encode()
        if ways.page is not None:
            ways.page.texts = {PLAIN: plain, OPENMETRICS: rendered(self.sums, OPENMETRICS).encode()}
        if (file := ways.textfile) is not None:
            self._try(str(file), lambda: write_file(file, plain))
        if (url := ways.otlp) is not None:
            host = self._follower.host or socket.gethostname()
            content = request(self.sums, host, self._start_ns, time.time_ns())
            self._try(url, lambda: push(url, content))
        self._pushed_s = time.monotonic()

    def _try(self, where: str, hand_on: Callable[[], None]) -> None:
        """Hand on in one way; its failure is stated once, and cannot stop the others."""
        try:
            hand_on()
        except (OSError, ValueError) as error:
            if where not in self._fails:
                self._warn(f"{where}: {error}; tried again every {PUSH_S:g} s, no count is lost")
            self._fails.add(where)
            return
        if where in self._fails:
            self._fails.remove(where)
            self._warn(f"{where}: it works again")


def take_outcomes(sums: MinuteSums, follower: Follower) -> None:
    """Set the metrics on the reading itself."""
    sums.numbers[of.READABLE][()] = int(follower.readable)
    for outcome in of.OUTCOMES:
        sums.numbers[of.FLUSHES][(outcome,)] = follower.outcomes[outcome]


def joined(flushes: Iterable[Tables]) -> Tables:
    """Return the tables of several flushes as those of one."""
    parts = list(flushes)
    return {name: pa.concat_tables([part[name] for part in parts]) for name in parts[0]}
