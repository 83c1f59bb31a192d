"""Calls of the native replayer, spoolscope-replay."""

import json
import signal
import subprocess
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from spoolscope.replay.age import Age
from spoolscope.replay.pace import Pace
from spoolscope.traces import native_failures
from spoolscope.traces.errors import USAGE, SpoolscopeError
from spoolscope.traces.native import find_binary

POLL_S = 0.25
# Exit statuses of a command that a signal ended, as Python and as a shell report them.
INTERRUPTED = {s for n in (signal.SIGHUP, signal.SIGINT, signal.SIGTERM) for s in (-n, 128 + n)}
REPORT = "record the trace again, or report this"
# Arrays as long as a plan lie in files beside it; without room on that disk, in memory.
SCARCE = "free memory, or space on the disk of --work or TMPDIR"
# In these orders a call waits for: the calls on the same objects that explain its result; besides
# these every call that had ended when it began; or nothing outside its thread.
ORDERS = ("resource", "recorded", "none")


@dataclass(frozen=True)
class Files:
    """Files that a run writes: results, summary, and a line of progress while it lasts."""

    outcomes: Path
    summary: Path
    progress: Path


@dataclass(frozen=True)
class Content:
    """Properties of the data of files.

    Attributes:
        compressible: Percent of the data that compresses to nothing.
        duplicate: Percent of files that hold the same data, up to their length.
    """

    compressible: int = 0
    duplicate: int = 0

    def words(self) -> list[str]:
        """Return it as options of spoolscope-replay."""
        return [f"--compressible={self.compressible}", f"--duplicate={self.duplicate}"]


class Engine:
    """Runs the verbs of spoolscope-replay on one plan."""

    def __init__(self, plan: Path, content: Content | None = None) -> None:
        self._plan = plan
        self._content = (content or Content()).words()
        self._binary = find_binary("spoolscope-replay")

    def order(self) -> dict[str, Any]:
        """Compute the order of the plan, once; return its statistics.

        The order is kept beside the plan, where `explain`, `fixture`, `verify` and runs read it;
        without it each computes it again. A plan that is written anew needs a new one.
        """
        return self._json("order", str(self._plan))

    def derive(self, *words: str) -> dict[str, Any]:
        """Replace the plan by one without some calls, by a part of it, or by one with more users.

        Args:
            words: Options of ``spoolscope-replay derive``, see ``WhatIf.words``.

        Returns:
            Facts of each step, and counts of what the plan holds then.
        """
        return self._json("derive", str(self._plan), *words)

    def explain(self, order: str, ops: Sequence[int]) -> dict[str, Any]:
        """Return edges by kind, and for some operations which ones they wait for, and why."""
        asked = (f"--op={op}" for op in ops)
        return self._json("explain", str(self._plan), "--order", order, *asked)

    def follow(self, outcomes: Path) -> dict[str, Any]:
        """Return the divergences of a run, each with the earlier ones that it may follow from."""
        return self._json("follow", str(self._plan), "--outcomes", str(outcomes))

    def fixture(self, target: Path, age: Age | None = None) -> dict[str, Any]:
        """Build the tree that existed at start in an empty target, which may be aged first."""
        words = age.words() if age else []
        return self._json("fixture", str(self._plan), "--target", str(target), *words)

    def verify(self, target: Path) -> dict[str, Any]:
        """Compare the target with the state the trace must have left behind."""
        return self._json("verify", str(self._plan), "--target", str(target))

    def _json(self, *words: str) -> dict[str, Any]:
        done = subprocess.run(
            [str(self._binary), *self._content, *words],
            capture_output=True,
            text=True,
            check=False,
            env=native_failures.environment(),
        )
        if done.returncode != 0:
            error = native_failures.of_process(
                "spoolscope-replay",
                done.returncode,
                done.stderr,
                remedy=SCARCE if done.returncode == -signal.SIGKILL else REPORT,
            )
            if error.exit_code == USAGE:
                raise error
            raise SpoolscopeError(f"replay refused: {error.message}", remedy=error.remedy)
        answer: dict[str, Any] = json.loads(done.stdout)
        return answer

    def files(self, directory: Path, scratch: Path) -> Files:
        """Choose where a run leaves its results."""
        return Files(
            (directory / "outcomes.bin").resolve(),
            (scratch / "summary.json").resolve(),
            (scratch / "progress.json").resolve(),
        )

    def command(self, target: Path, pace: Pace, order: str, files: Files) -> list[str]:
        """Return the command that replays the plan on a target that holds the fixture."""
        return [
            str(self._binary), *self._content, "run", str(self._plan.resolve()),
            "--target", str(target), "--prepared", *pace.words(), "--order", order,
            "--outcomes", str(files.outcomes),
            "--summary", str(files.summary),
            "--progress", str(files.progress),
        ]  # fmt: skip

    @contextmanager
    def watching(self, files: Files, show: Callable[[float], None]) -> Iterator[None]:
        """Show the fraction done while the block runs."""
        stop = threading.Event()

        def watch() -> None:
            last = None
            while not stop.wait(POLL_S):
                try:
                    line = json.loads(files.progress.read_text())
                    share = line["done"] / max(line["of"], 1)
                except (OSError, ValueError, KeyError):
                    continue
                # After its end a replay is not shown again: the conversion of its recording is.
                if share != last:
                    show(share)
                last = share

        watcher = threading.Thread(target=watch, daemon=True)
        watcher.start()
        try:
            yield
        finally:
            stop.set()
            watcher.join()
            files.progress.unlink(missing_ok=True)

    def summary(self, files: Files, status: int) -> dict[str, Any]:
        """Read and remove the summary of a run that ended with ``status``."""
        try:
            summary: dict[str, Any] = json.loads(files.summary.read_text())
            files.summary.unlink()
        except (OSError, ValueError):
            if status in INTERRUPTED:
                raise KeyboardInterrupt from None
            raise SpoolscopeError(
                f"spoolscope-replay ended with status {status} and no result",
                remedy="see its message above",
            ) from None
        return summary


def to_its_end(command: Sequence[str]) -> int:
    """Run a command; a first signal makes it end in order, too, and a second one at once.

    Returns:
        Its exit status.

    Raises:
        KeyboardInterrupt: the signal came when it had done all, so that its status is 0.
    """
    process = subprocess.Popen(command)
    try:
        return process.wait()
    except KeyboardInterrupt:
        process.terminate()
        if (status := process.wait()) == 0:
            raise
        return status
    finally:
        process.kill()
        process.wait()


def ended_early(summary: dict[str, Any], outcomes: Path) -> SpoolscopeError:
    """Return the error of a failed or interrupted replay; it names the outcomes that are left."""
    done = summary["ops"] - summary["pending"]
    return SpoolscopeError(
        f"the replay was ended: {summary['failed'] or 'interrupted'}",
        remedy=f"see what became of the {done:,} calls until then in {outcomes}",
    )
