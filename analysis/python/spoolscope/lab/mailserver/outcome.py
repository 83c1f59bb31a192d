"""The result of a load: counts, rates, latencies, failures."""

import re
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np

Row = tuple[str, int, int, int, int, str]
"""Kind, due, begin and end (ns since the epoch), bytes, error: see ``clients.Times``."""

WHOLE = ("message", "session")
MINUTE_NS = 60 * 10**9


@dataclass(frozen=True)
class Kind:
    """One kind of transaction.

    Attributes:
        name: ``smtp message``, ``imap session``, or a command such as ``imap fetch``.
        n: Number of successes; ``failed``: number of failures.
        per_s: Successes a second, over the whole load.
        bytes: Bytes of mail in successes.
        p50_ns: Median of the time from due to end, without pauses; likewise ``p99_ns`` and
            ``max_ns``. None without a success.
    """

    name: str
    n: int
    failed: int
    per_s: float
    bytes: int
    p50_ns: int | None
    p99_ns: int | None
    max_ns: int | None

    @property
    def is_whole(self) -> bool:
        """True for an arrival, False for a command within a session."""
        return self.name.endswith(WHOLE)


@dataclass(frozen=True)
class Outcome:
    """The result of a load.

    Attributes:
        kinds: Every kind of transaction.
        failures: {kind and answer without numbers: count}.
        seconds: Time from the first arrival to the end of the last.
        delivered: Messages that reached their mailboxes.
        left: Messages that were accepted but did not reach their mailboxes in time.
        load_cpu_s: CPU time of the load itself.
        minutes: {kind: successful arrivals by minute}.
        beside_status: Exit status of the command beside the load; None if there was none.
    """

    kinds: tuple[Kind, ...]
    failures: dict[str, int]
    seconds: float
    delivered: int
    left: int
    load_cpu_s: float
    minutes: dict[str, list[int]]
    beside_status: int | None = None

    @property
    def failed(self) -> int:
        """Number of failed messages and sessions."""
        return sum(kind.failed for kind in self.kinds if kind.is_whole)

    @property
    def reached_per_s(self) -> float:
        """Successful messages and sessions a second, until the end of the last one."""
        return sum(kind.n for kind in self.kinds if kind.is_whole) / self.seconds

    def kind(self, name: str) -> Kind | None:
        """Return a kind of transaction, None if there was none."""
        return next((kind for kind in self.kinds if kind.name == name), None)

    def to_json(self) -> dict[str, Any]:
        """Return the object that ``--json`` prints."""
        return asdict(self) | {"reached_per_s": self.reached_per_s}

    def text(self) -> Iterator[str]:
        """Yield the lines for a terminal."""
        yield (
            f"{'':<18}{'done':>8}{'failed':>8}{'a second':>10}{'p50':>12}{'p99':>12}{'slowest':>12}"
        )
        for kind in sorted(self.kinds, key=lambda kind: (not kind.is_whole, kind.name)):
            times = (kind.p50_ns, kind.p99_ns, kind.max_ns)
            shown = "".join(f"{'-' if ns is None else f'{ns / 1e6:,.2f} ms':>12}" for ns in times)
            yield f"{kind.name:<18}{kind.n:>8,}{kind.failed:>8,}{kind.per_s:>10.2f}{shown}"
        yield f"{self.delivered:,} messages delivered in {self.seconds:.1f} s"
        for what, times_ in sorted(self.failures.items(), key=lambda one: -one[1])[:5]:
            yield f"{times_:,} times {what}"


def outcome(
    rows: Sequence[Row], begun_ns: int, ended_ns: int, load_cpu_s: float, by_queue: int
) -> Outcome:
    """Sum up a load.

    Args:
        rows: All actions.
        begun_ns: Begin of the load, since the epoch.
        ended_ns: End of its last arrival.
        load_cpu_s: CPU time of the load itself.
        by_queue: Number of SMTP messages that have reached mailboxes.
    """
    seconds = (ended_ns - begun_ns) / 1e9
    kinds = tuple(_kind(name, rows, seconds) for name in sorted({row[0] for row in rows}))
    done = {kind.name: kind.n for kind in kinds}
    sent = done.get("smtp message", 0)
    failures = Counter(f"{row[0]}: {_plain(row[5])}" for row in rows if row[5])
    return Outcome(
        kinds=kinds,
        failures=dict(failures),
        seconds=seconds,
        delivered=by_queue + done.get("lmtp message", 0),
        left=max(0, sent - by_queue),
        load_cpu_s=load_cpu_s,
        minutes={
            kind.name: _by_minute(rows, kind.name, begun_ns, ended_ns)
            for kind in kinds
            if kind.is_whole
        },
    )


def _kind(name: str, rows: Sequence[Row], seconds: float) -> Kind:
    well = [row for row in rows if row[0] == name and not row[5]]
    took = np.array([end - due for _, due, _, end, _, _ in well], dtype=np.int64)
    p50, p99, most = (
        (int(ns) for ns in np.quantile(took, (0.5, 0.99, 1.0), method="inverted_cdf"))
        if well
        else (None, None, None)
    )
    return Kind(
        name=name,
        n=len(well),
        failed=sum(row[0] == name and bool(row[5]) for row in rows),
        per_s=len(well) / seconds,
        bytes=sum(row[4] for row in well),
        p50_ns=p50,
        p99_ns=p99,
        max_ns=most,
    )


def _plain(answer: str) -> str:
    """Return an answer without its variable parts, so that equal ones can be counted."""
    return re.sub(r"\d+(\.\d+)?", "N", answer)[:100]


def _by_minute(rows: Sequence[Row], name: str, begun_ns: int, ended_ns: int) -> list[int]:
    minutes = [0] * max(1, -(-(ended_ns - begun_ns) // MINUTE_NS))
    for kind, _, _, end, _, error in rows:
        if kind == name and not error:
            minutes[min((end - begun_ns) // MINUTE_NS, len(minutes) - 1)] += 1
    return minutes
