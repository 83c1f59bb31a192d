"""Block events beside a recording: by blktrace if it works here, else by ftrace."""

import json
import shutil
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from spoolscope.tracers.blktrace.columns import stage_columns
from spoolscope.tracers.blktrace.disks import disks_of
from spoolscope.tracers.blktrace.ftrace import tracing_by_ftrace
from spoolscope.tracers.blktrace.records import Events, read_events
from spoolscope.tracers.blktrace.relay import BlktraceRefusedError, tracing_by_blktrace
from spoolscope.traces.capture import Capture
from spoolscope.traces.comms import Comms
from spoolscope.traces.files import write_file

# Names beside a capture: directory of blktrace's files, or of one in their format, and facts.
BLOCKS, FACTS = "blocks", "facts.json"
FILES = "*.blktrace.*"


@contextmanager
def block_tracing(spools: Sequence[Path], directory: Path) -> Iterator[None]:
    """Keep the block events of the spools' disks while the block runs.

    Args:
        spools: Mount points.
        directory: Parent of the directory BLOCKS; a killed recording leaves that without FACTS.

    Raises:
        SpoolscopeError: neither way is possible, or no spool has a disk.
    """
    disks = disks_of(spools)
    if not disks:
        yield
        return
    output = directory / BLOCKS
    output.mkdir()
    facts: dict[str, Any] = {"disks": disks, "by": "blktrace"}
    lost: Callable[[], int] | None = None

    def tell() -> None:
        if lost:
            write_file(output / FACTS, json.dumps(facts | {"lost": lost()}), private=True)

    with ExitStack() as stack:
        stack.callback(tell)  # last: the losses are known then
        try:
            lost = stack.enter_context(tracing_by_blktrace(disks, output))
        except BlktraceRefusedError as refusal:
            facts |= {"by": "ftrace", "not_blktrace": str(refusal)}
            lost = stack.enter_context(tracing_by_ftrace(disks, output / "ftrace.blktrace.0"))
        yield


def remove_block_events(directory: Path) -> None:
    """Remove the files of block_tracing(), once they are converted."""
    shutil.rmtree(directory / BLOCKS, ignore_errors=True)


@dataclass(frozen=True)
class BlockEvents:
    """The block events kept beside a capture.

    Attributes:
        events: The events.
        facts: ``block_trace`` of meta.json.
    """

    events: Events
    facts: dict[str, Any]

    @classmethod
    def beside(cls, capture: Path) -> "BlockEvents | None":
        """Read the events kept beside a capture; None if it was made without."""
        kept = capture.with_name(BLOCKS)
        if not kept.is_dir():
            return None
        events = read_events(sorted(kept.glob(FILES)))
        beside = kept / FACTS
        facts = {"lost": events.lost} | (json.loads(beside.read_text()) if beside.exists() else {})
        facts |= {"events": len(events), "foreign_bytes": events.foreign_bytes}
        return cls(events, facts)

    def columns(self, capture: Capture, comms: Comms) -> dict[str, Any]:
        """Return the columns of block_stages for the time of a capture."""
        begin = capture.start_mono_ns
        end = capture.meta.get("end_mono_ns")
        return stage_columns(
            self.events,
            capture.start_real_ns - begin,
            comms,
            (begin, int(end)) if end is not None else None,
        )
