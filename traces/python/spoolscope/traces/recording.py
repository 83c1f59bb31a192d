"""A directory of several traces, which --rotate and --last write.

``recording.json`` names the recorder; every trace lies beside it under its own name; segments
that are not converted yet are in ``.capture``.
"""

import itertools
import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from spoolscope.traces.digests import META, read_meta
from spoolscope.traces.errors import USAGE, SpoolscopeError
from spoolscope.traces.files import regular, write_file
from spoolscope.traces.trace import damaged

CONTROL = "recording.json"
CAPTURES = ".capture"
ANSWERS = "capture.json"
"""Messages of the native recorder, in the directory of its segments."""
DISK_FULL = "disk full"
"""Why a recording ended, in the meta.json of its last trace."""
ROTATED, FROZEN = "trace", "frozen"
FORMAT = "spoolscope-recording/1"


@dataclass(frozen=True)
class Recording:
    """A directory of traces.

    Attributes:
        path: The directory.
        control: The content of recording.json: format, kind (trace or frozen), recorder_pid,
            recorder_started (clock ticks, proc(5)), ended, early (when and why it ended early, in
            words, or null), skipped (segments that --keep dropped before they were converted),
            hooks (commands that were run for frozen traces: trace, status, seconds, output),
            failures (traces that could not be made so far: trace, failure, numbers of segments).
    """

    path: Path
    control: dict[str, Any]

    @classmethod
    def open(cls, directory: Path) -> "Recording":
        """Open the recording in a directory.

        Raises:
            SpoolscopeError: the directory is not a recording of several traces.
        """
        try:
            control = json.loads(regular(directory / CONTROL).read_text())
        except (OSError, ValueError):
            control = None
        if not isinstance(control, dict) or control.get("format") != FORMAT:
            raise SpoolscopeError(
                f"{directory} is not a recording of several traces (no {CONTROL})",
                remedy="give the -o of 'spoolscope record --rotate' or '--last'",
                exit_code=USAGE,
            )
        return cls(directory, control)

    @staticmethod
    def is_one(directory: Path) -> bool:
        """Return whether a directory holds several traces."""
        return (directory / CONTROL).is_file()

    def traces(self) -> list[Path]:
        """Return its traces, oldest first."""
        return sorted(path.parent for path in self.path.glob(f"{self.control['kind']}-*/{META}"))

    def described(self) -> list[tuple[Path, dict[str, Any]]]:
        """Return each trace and its meta.json, oldest first.

        A recorder may add a trace, or remove one (--keep), at the same time.

        Raises:
            SpoolscopeError: the meta.json of one is damaged.
        """
        found = []
        for trace in self.traces():
            try:
                found.append((trace, read_meta(trace)))
            except FileNotFoundError:
                continue
            except (OSError, ValueError) as error:
                raise damaged(trace, META, error) from None
        return found

    def totals(self, metas: list[dict[str, Any]]) -> dict[str, Any]:
        """Return sums over traces, by the names of meta.json.

        ``complete`` is true if every trace is complete, none between two of them is missing, and
        none could not be made.
        """
        gapless = self.control["kind"] == FROZEN or all(
            after["segment"] == before["segment"] + 1 for before, after in itertools.pairwise(metas)
        )
        complete = gapless and not self.failures and all(meta["complete"] for meta in metas)
        return {
            "counts": {"syscalls": sum(meta["counts"]["syscalls"] for meta in metas)},
            "duration_ns": sum(meta["duration_ns"] for meta in metas),
            "lost": sum(meta["lost"] for meta in metas),
            "shed": sum(meta["shed"] for meta in metas),
            "complete": bool(metas) and complete,
            "unbooked": next((m["unbooked"] for m in metas if m.get("unbooked")), None),
            "ended": metas[-1].get("ended") if metas else None,
            "tier": min((str(meta["tier"]) for meta in metas), default="unknown"),
        }

    @property
    def failures(self) -> list[dict[str, Any]]:
        """Traces that could not be made so far: trace, failure, numbers of segments."""
        return list(self.control.get("failures", []))

    def pending(self) -> list[Path]:
        """Return the segments that are in no trace yet, oldest first."""
        return sorted((self.path / CAPTURES).glob("capture-*.seg"))

    def recorder(self) -> int | None:
        """Return the pid of the recorder if it still runs."""
        pid, started = self.control["recorder_pid"], self.control["recorder_started"]
        return int(pid) if started is not None and started_at(pid) == started else None


def segment_name(number: int) -> str:
    """Return the name of the file of a segment."""
    return f"capture-{number:06}.seg"


def segment_number(segment: Path) -> int:
    """Return the number of the file of a segment."""
    return int(segment.stem.rpartition("-")[2])


def started_at(pid: int) -> int | None:
    """Return when a process began, in clock ticks; it distinguishes processes with a reused pid."""
    try:
        text = Path(f"/proc/{pid}/stat").read_text(errors="replace")
    except OSError:
        return None
    fields = text.rpartition(") ")[2].split()  # from field 3, the state, on
    return None if fields[0] in "ZX" else int(fields[19])


def write_control(directory: Path, control: dict[str, Any]) -> None:
    """Replace recording.json in one step, readable for its owner only."""
    text = json.dumps({"format": FORMAT, **control}, indent=1)
    write_file(directory / CONTROL, text, private=True)
