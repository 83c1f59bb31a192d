"""Speedscope's own JSON: one profile for each thread, each call with its causes inside it."""

import json
import shutil
import tempfile
from collections import defaultdict
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import TextIO

from spoolscope.analysis.causes import CAUSES
from spoolscope.export.content import Call, Content
from spoolscope.export.lanes import Lanes
from spoolscope.traces.text import shown

SCHEMA = "https://www.speedscope.app/file-format-schema.json"
BETWEEN = ",\n"
CALLS_HELD = 100_000
"""Calls in memory, of all threads."""


class Speedscope:
    """A file for speedscope.app, which works without a server."""

    sentence = "Every call of every thread in time order, its causes inside, for speedscope.app."
    opens = "drop {output} on https://www.speedscope.app, or run 'npx speedscope {output}'"
    call_by_call = True

    def write(self, content: Content, output: Path) -> None:
        """Write a profile for each thread; times are ns since the recording began."""
        frames: dict[str, int] = {}
        with tempfile.TemporaryDirectory(dir=output.parent) as place:
            profiles = _Profiles(Path(place), frames, content.start_ns)
            for call in content.calls():
                profiles.add(call)
            with output.open("x", encoding="ascii") as file:
                head = {"$schema": SCHEMA, "exporter": "spoolscope"}
                head["name"] = shown(content.trace.path.name)
                file.write(f'{json.dumps(head)[:-1]}, "profiles": [')
                profiles.write(file)
                shared = {"frames": [{"name": name} for name in frames]}
                file.write(f'], "shared": {json.dumps(shared)}}}\n')


@dataclass(slots=True)
class _Profile:
    """The part that is not yet in a file of the profile of a thread, or of its overlapping calls.

    Attributes:
        name: Name in the list of profiles.
        file: File with the events so far.
        events: The events that follow.
        begin_ns: Its begin, since the recording began; ``end_ns`` its end.
    """

    name: str
    file: Path
    events: list[str]
    begin_ns: int = 0
    end_ns: int = 0


class _Profiles:
    """Collector of events by thread, which come in order of time; most of them are in files."""

    def __init__(self, place: Path, frames: dict[str, int], start_ns: int) -> None:
        self._place = place
        self._frames = frames
        self._start_ns = start_ns
        self._lanes: dict[tuple[int, int], Lanes] = defaultdict(Lanes)
        self._profiles: dict[tuple[int, int, int], _Profile] = {}
        self._held = 0

    def add(self, call: Call) -> None:
        """Add a call."""
        lane = self._lanes[call.pid, call.tid].of(call.from_ns, call.to_ns)
        at = call.pid, call.tid, lane
        if at not in self._profiles:
            remark = f" (overlapping, {lane})" if lane else ""
            name = f"{shown(call.comm)} {call.pid}/{call.tid}{remark}"
            self._profiles[at] = _Profile(name, self._place / str(len(self._profiles)), [])
        profile = self._profiles[at]
        profile.events.append(", ".join(self._events(call)))
        profile.begin_ns = min(profile.begin_ns, call.from_ns - self._start_ns)
        profile.end_ns = max(profile.end_ns, call.to_ns - self._start_ns)
        self._held += 1
        if self._held >= CALLS_HELD:
            self._put_away()

    def write(self, file: TextIO) -> None:
        """Write all profiles, thread by thread."""
        self._put_away()
        between = ""
        for _, profile in sorted(self._profiles.items()):
            file.write(f'{between}{{"type": "evented", "unit": "nanoseconds", "events": [')
            with profile.file.open(encoding="ascii") as events:
                events.read(len(BETWEEN))  # skips the separator before the first
                shutil.copyfileobj(events, file)
            rest = {"name": profile.name, "startValue": profile.begin_ns}
            rest["endValue"] = profile.end_ns
            file.write(f"], {json.dumps(rest)[1:]}")
            between = BETWEEN

    def _put_away(self) -> None:
        """Append the held events to the files."""
        for profile in self._profiles.values():
            if profile.events:
                with profile.file.open("a", encoding="ascii") as file:
                    file.writelines(f"{BETWEEN}{events}" for events in profile.events)
                profile.events.clear()
        self._held = 0

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
        return self._frames.setdefault(name, len(self._frames))
