"""Directories in which a replay works and leaves its results, and checks of them."""

import shutil
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

from spoolscope.replay.artifacts import ABOUT
from spoolscope.replay.candidates import Candidate
from spoolscope.replay.disks import Disks
from spoolscope.replay.interrupts import undisturbed
from spoolscope.traces import unfinished
from spoolscope.traces.errors import usage_error
from spoolscope.traces.output import discard, place_of


def check_places(candidates: Sequence[Candidate], out: Path, work: Path | None) -> None:
    """Make sure, before anything is changed, that runs do not get into each other's way.

    Args:
        candidates: The candidates of the replay.
        out: Directory for the results.
        work: Directory for images; None is the same.

    Raises:
        SpoolscopeError: two runs would share a directory, a directory would be emptied with its
            target, or there is none to work in.
    """
    if work is not None and not work.is_dir():
        raise usage_error(f"--work {work} is no directory", f"mkdir -p {work}")
    _check_labels(candidates)
    for candidate in candidates:
        for place in (out, work or out):
            real = place.resolve()
            if candidate.directory and candidate.directory.resolve() in (real, *real.parents):
                raise usage_error(
                    f"{place} lies in target {candidate.directory}, which is emptied at the end",
                    "give -o and --work elsewhere",
                )


def _check_labels(candidates: Sequence[Candidate]) -> None:
    seen: dict[str, Candidate] = {}
    for candidate in candidates:
        if candidate.label in seen:
            raise usage_error(
                f"runs on {seen[candidate.label].name} and {candidate.name} would have one name",
                "give one of them, or --rounds 2 to replay twice",
            )
        seen[candidate.label] = candidate


@contextmanager
def scratch(
    parent: Path,
    out: Path,
    disks: Disks | None = None,
    kind: unfinished.Kind = "replay",
) -> Iterator[Path]:
    """Yield a directory for the plan and the images of a replay; it is removed afterwards.

    It stays, with its note, if a disk could not be wiped.

    Args:
        parent: Directory in which it is made.
        out: Directory for the results.
        disks: Block devices that are formatted meanwhile, for ``clean``.
        kind: The name that ``clean`` uses for it.
    """
    path = Path(tempfile.mkdtemp(prefix=".spoolscope-", dir=parent))
    unfinished.begin(path, kind, out, disks.paths if disks else [])
    try:
        yield path
    finally:
        with undisturbed():
            if disks is None or not disks.unwiped:
                discard(path)


@contextmanager
def results(out: Path) -> Iterator[None]:
    """Make the directory of the results; after a failure, remove it if it has nothing of a run."""
    made = not out.exists()
    out.parent.mkdir(parents=True, exist_ok=True)
    place_of(out).mkdir(exist_ok=True)
    try:
        yield
    except BaseException:
        with undisturbed():
            _forget(out, made=made)
        raise


def _forget(out: Path, *, made: bool) -> None:
    if any(not path.is_dir() and path.name not in ABOUT for path in out.rglob("*")):
        return
    for path in out.iterdir():
        shutil.rmtree(path) if path.is_dir() else path.unlink()
    if made:
        out.rmdir()
