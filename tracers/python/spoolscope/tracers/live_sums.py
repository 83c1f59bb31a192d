"""Sums of calls as they come, interval by interval, for a live view."""

import tempfile
from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from pathlib import Path

from spoolscope.tracers.recorder import Recorder
from spoolscope.tracers.request import Request
from spoolscope.tracers.rolling import RING_MIB
from spoolscope.tracers.session import hiding_of, refuse_output_on_spool
from spoolscope.tracers.summed import Names, Summed
from spoolscope.traces.errors import SpoolscopeError
from spoolscope.traces.scratch import scratch


@dataclass
class LiveSums:
    """A recorder that sums calls over short intervals of the wall clock.

    Attributes:
        request: The parameters; ``rollup_s`` is the interval. The output is a name only.
        names: Shows or hides names of programs and units.
        failure: Why the recorder ended early, or None.
    """

    request: Request
    names: Names = field(init=False)
    failure: str | None = None

    def __post_init__(self) -> None:
        """Read the key for hidden names."""
        self.names = Names(hiding_of(self.request))

    def intervals(self) -> Iterator[Summed]:
        """Yield the sums of each interval soon after its end, until the recording ends.

        Raises:
            SpoolscopeError: wrong target, missing rights, or the recorder failed at once.
        """
        refuse_output_on_spool(self.request.output, self.request.spools)
        seen = 0
        with tempfile.TemporaryDirectory(dir=scratch()) as place:
            alone = replace(self.request, snapshot="none", sample_hz=0, ring_mib=RING_MIB)
            recorder = Recorder(alone, Path(place) / "capture.seg")
            try:
                for event in recorder.events():
                    if event is not None and event["event"] == "minute":
                        file = Path(place) / event["file"]
                        summed = Summed.read(file)
                        file.unlink()
                        seen += 1
                        self.names.learn(set(), summed.mounts)
                        yield summed
                recorder.end()
            except SpoolscopeError as error:
                if not seen:
                    raise
                self.failure = f"{error.message}: {error.remedy}"
            finally:
                recorder.kill()
