"""Speedscope's own JSON: one profile for each thread, each call with its causes inside it."""

import json
from collections import defaultdict
from collections.abc import Iterable, Iterator
from itertools import groupby
from pathlib import Path
from typing import TextIO

from spoolscope.analysis.causes import CAUSES
from spoolscope.export.content import Call, Content
from spoolscope.export.lanes import Lanes
from spoolscope.traces.text import shown

SCHEMA = "https://www.speedscope.app/file-format-schema.json"


class Speedscope:
    """A file for speedscope.app, which works without a server."""

    sentence = "Every call of every thread in time order, its causes inside, for speedscope.app."
    opens = "drop {output} on https://www.speedscope.app, or run 'npx speedscope {output}'"
    call_by_call = True

    def write(self, content: Content, output: Path) -> None:
        """Write a profile for each thread; times are ns since the recording began."""
        with output.open("w", encoding="ascii") as file:
            head = {"$schema": SCHEMA, "exporter": "spoolscope", "name": content.trace.path.name}
            file.write(f'{json.dumps(head)[:-1]}, "profiles": [')
            writer = _Writer(file, content.start_ns)
            for _, calls in groupby(content.calls(), lambda call: (call.pid, call.tid)):
                writer.thread(calls)
            shared = {"frames": [{"name": name} for name in writer.frames]}
            file.write(f'], "shared": {json.dumps(shared)}}}\n')


class _Writer:
    """Writes profiles; ``frames`` numbers their names."""

    def __init__(self, file: TextIO, start_ns: int) -> None:
        self.frames: dict[str, int] = {}
        self._file = file
        self._start_ns = start_ns
        self._between = ""

    def thread(self, calls: Iterator[Call]) -> None:
        """Write the calls of a thread; those that overlap others get profiles of their own."""
        lanes = Lanes()
        others: dict[int, list[Call]] = defaultdict(list)
        last: list[Call] = []

        def first_lane() -> Iterator[Call]:
            for call in calls:
                last[:] = [call]
                if lane := lanes.of(call.from_ns, call.to_ns):
                    others[lane].append(call)
                else:
                    yield call

        self._profile(first_lane(), last, "")
        for lane, overlapping in others.items():
            self._profile(overlapping, overlapping[-1:], f" (overlapping, {lane})")

    def _profile(self, calls: Iterable[Call], last: list[Call], remark: str) -> None:
        """Write one profile, event by event; ``last`` has its last call once they are through."""
        self._file.write(f'{self._between}{{"type": "evented", "unit": "nanoseconds", "events": [')
        self._between = ",\n"
        between = ""
        begin_ns = end_ns = 0
        for call in calls:
            events = self._events(call)
            self._file.write(f"{between}{', '.join(events)}")
            between = ",\n"
            begin_ns = min(begin_ns, call.from_ns - self._start_ns)
            end_ns = max(end_ns, call.to_ns - self._start_ns)
        name = f"{shown(last[0].comm)} {last[0].pid}/{last[0].tid}{remark}"
        rest = {"name": name, "startValue": begin_ns, "endValue": end_ns}
        self._file.write(f"], {json.dumps(rest)[1:]}")

    def _events(self, call: Call) -> Iterator[str]:
        name = self._frame(shown(call.name))
        yield self._event("O", name, call.from_ns)
        for part in call.parts:
            cause = self._frame(CAUSES[part.cause].label)
            yield self._event("O", cause, part.from_ns)
            yield self._event("C", cause, part.to_ns)
        yield self._event("C", name, call.to_ns)

    def _event(self, kind: str, frame: int, at_ns: int) -> str:
        return f'{{"type": "{kind}", "frame": {frame}, "at": {at_ns - self._start_ns}}}'

    def _frame(self, name: str) -> int:
        return self.frames.setdefault(name, len(self.frames))
