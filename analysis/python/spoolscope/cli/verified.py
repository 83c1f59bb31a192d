"""The answer of info --verify: a check that the files of traces are unchanged."""

from dataclasses import asdict, dataclass
from pathlib import Path

from spoolscope.cli.output import emit_json, warn
from spoolscope.cli.printing import say
from spoolscope.traces.errors import INCOMPLETE
from spoolscope.traces.recording import Recording
from spoolscope.traces.trace import Trace


@dataclass(frozen=True)
class Verified:
    """A checked trace: its tables with digests, and their length; none in old traces."""

    trace: str
    tables: int
    bytes: int


def show_verified(path: Path, *, as_json: bool) -> int:
    """Check the digests of a trace, or of all of a recording; return the exit code.

    Raises:
        SpoolscopeError: a file has changed since it was written.
    """
    traces = Recording.open(path).traces() if Recording.is_one(path) else [path]
    found = [_verify(trace) for trace in traces]
    unknown = [one.trace for one in found if not one.tables]
    for trace in unknown:
        warn(f"trace {trace} has no digests: an older spoolscope wrote it")
    if as_json:
        emit_json({"verified": not unknown, "traces": [asdict(one) for one in found]})
    else:
        known = [one for one in found if one.tables]
        tables, size = sum(one.tables for one in known), sum(one.bytes for one in known)
        say(
            f"{len(known)} of {len(found)} traces are as they were written:"
            f" meta.json and {tables} tables, {size:,} bytes"
        )
    return INCOMPLETE if unknown else 0


def _verify(path: Path) -> Verified:
    files = Trace.open(path).verify() or []
    return Verified(str(path), len(files), sum(file.stat().st_size for file in files))
