"""Messages from the part of a replay inside a machine to the outside: lines of JSON.

Terminal and clock are outside: a machine's clock may count instructions, and restarts with each
machine.
"""

import io
import json
import time
from collections.abc import Callable, Mapping, Sequence
from itertools import count
from typing import Any

from spoolscope.cli.printing import say
from spoolscope.replay.expected import Expected
from spoolscope.replay.job import Slot, blocks
from spoolscope.traces.errors import SpoolscopeError
from spoolscope.traces.phases import Phases, Progress

Row = Mapping[str, Any]

BOOT = 0.3
"""Approximate duration of a boot, as a share of a run's time."""


class Lines(io.BytesIO):
    """A stream that passes on each complete line, and the rest when it is closed."""

    def __init__(self, hand_on: Callable[[str], None]) -> None:
        super().__init__()
        self._hand_on, self._rest = hand_on, b""

    def write(self, data: Any, /) -> int:
        """Take a piece of any length."""
        *lines, self._rest = (self._rest + bytes(data)).split(b"\n")
        for line in lines:
            self._hand_on(line.decode(errors="replace"))
        return len(data)

    def close(self) -> None:
        """Pass on a line without a line end."""
        if self._rest:
            self.write(b"\n")
        super().close()


class Telling:
    """The machine's side: it sends the progress of runs instead of displaying it."""

    def at(self, what: str, share: float | None) -> None:
        """Send the current phase; see ``traces.phases.Progress``."""
        say(json.dumps({"at": [what, share]}))

    def begin(self, _runs: Sequence[Slot], _rows: Sequence[Row], guess_s: float) -> None:
        """Send that the machine is ready for its runs; see ``replay.expected.Timing``."""
        say(json.dumps({"guess_s": guess_s}))

    def after(self, row: Row) -> None:
        """Send that a run is finished."""
        say(json.dumps({"finished": row["candidate"]}))

    def error(self, error: SpoolscopeError) -> None:
        """Send an error that was raised."""
        content = {"message": error.message, "remedy": error.remedy, "exit_code": error.exit_code}
        say(json.dumps({"error": content}))


class Heard:
    """The outside: it shows the progress of the runs in all machines, by the clock here.

    Attributes:
        error: The error that was raised in a machine, or None.
    """

    def __init__(
        self,
        order: Sequence[Slot],
        rows: Sequence[Row],
        show: Progress,
        tell: Callable[[str], None],
    ) -> None:
        """Prepare to receive messages.

        Args:
            order: All runs of the replay.
            rows: Rows of the finished runs.
            show: Function that shows progress.
            tell: Function that prints a line.
        """
        self.error: dict[str, Any] | None = None
        self._order, self._rows, self._expected = order, rows, Expected(tell)
        left = list(blocks(order[len(rows) :]))
        self._phases = Phases(show, {str(i): BOOT + len(block) for i, block in enumerate(left)})
        self._runs = [len(block) for block in left]
        self._number, self._show, self._since = count(), show, time.monotonic()
        self._is_first = True

    def booting(self, release: str) -> None:
        """Note that a machine is booted for the next runs of one round on one kernel."""
        number, self._since = next(self._number), time.monotonic()
        steps = self._phases.within(str(number), {"boot": BOOT, "runs": self._runs[number]})
        steps.sub("boot")(f"booting {release}", 0.0)
        self._show = steps.sub("runs")

    def line(self, text: str) -> None:
        """Take a line that a machine printed; a line not from ``Telling`` is part of an error."""
        try:
            content = json.loads(text)
        except ValueError:
            say(text, err=True)
            return
        match content:
            case {"at": [what, share]}:
                self._show(what, share)
            case {"guess_s": guess_s}:
                self._is_up(guess_s)
            case {"finished": candidate}:
                self._expected.took(candidate, self._lap())
            case {"error": error}:
                self.error = error

    def _is_up(self, guess_s: float) -> None:
        if self._is_first:
            self._expected.begin(self._order, self._rows, guess_s, self._lap())
        else:
            self._expected.booted(self._lap())
        self._is_first = False

    def _lap(self) -> float:
        """Return the seconds since the last call of this, or since a machine was booted."""
        since, self._since = self._since, time.monotonic()
        return self._since - since
