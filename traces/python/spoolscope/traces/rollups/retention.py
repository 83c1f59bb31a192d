"""Removal of the oldest days of a local roll-up directory, by age and by size.

A day goes as a whole, with ``minutes`` first, so that readers see all of a flush or nothing. The
current day is never removed.
"""

import os
from collections.abc import Collection, Iterator
from dataclasses import dataclass, field
from datetime import UTC, date, datetime, timedelta
from pathlib import Path

from spoolscope.traces.errors import USAGE, SpoolscopeError
from spoolscope.traces.rollups.names import MARKER

AGE, SIZE = "age", "size"
_DAY = "schema=*/*/host={host}/date=*"


@dataclass
class _Day:
    """A host's day: its directories in all tables and versions."""

    places: list[Path] = field(default_factory=list)
    n_bytes: int = 0


@dataclass
class Retained:
    """The result of a removal, or of one that was only tried.

    Attributes:
        removed: Days that were removed, oldest first: host, date and why (AGE or SIZE).
        files: Number of files that were removed.
        n_bytes: Their size.
        left_bytes: Size of the roll-ups that are left.
        refused: Why nothing was removed by age; "" if nothing speaks against it.
    """

    removed: list[tuple[str, date, str]] = field(default_factory=list)
    files: int = 0
    n_bytes: int = 0
    left_bytes: int = 0
    refused: str = ""


def retain(
    root: Path,
    *,
    days: int | None = None,
    quota_bytes: int | None = None,
    hosts: Collection[str] | None = None,
    now: datetime | None = None,
    dry_run: bool = False,
) -> Retained:
    """Remove days that are too old, then the oldest ones until the rest fits.

    By age nothing is removed if all days but the current one would go: then the clock is wrong, or
    the recorder was off for so long that the data are worth a look.

    Args:
        root: The roll-up directory.
        days: Age in days beyond which a day is too old; None: none is.
        quota_bytes: Size that is too large; None: none is.
        hosts: Only days of these hosts; None: of all.
        now: The present time; default: the clock's.
        dry_run: Remove nothing, but say what would be.

    Raises:
        SpoolscopeError: it is no directory.
        OSError: something in it cannot be read or removed.
    """
    if not root.is_dir():
        raise SpoolscopeError(
            f"{root} is no directory of this machine",
            remedy="give a local directory; a bucket has rules of its own for old objects",
            exit_code=USAGE,
        )
    today = (now or datetime.now(UTC)).date()
    found = _days(root, hosts)
    done = Retained(left_bytes=sum(day.n_bytes for day in found.values()))
    past = {key: day for key, day in found.items() if key[0] < today}
    old = {key: day for key, day in past.items() if days is not None and _age(key, today) > days}
    if old and len(old) == len(past):
        last = max(past)[0]
        done.refused = f"the clock says {today}, and the last day that is over is {last}"
        old = {}
    for key in sorted(old):
        _remove(key, past.pop(key), AGE, done, dry_run=dry_run)
    for key in sorted(past):
        if quota_bytes is None or done.left_bytes <= quota_bytes:
            break
        _remove(key, past[key], SIZE, done, dry_run=dry_run)
    return done


_Key = tuple[date, str]


def _age(key: _Key, today: date) -> int:
    return (today - key[0]) // timedelta(days=1)


def _days(root: Path, hosts: Collection[str] | None) -> dict[_Key, _Day]:
    """Return the days of hosts by date and host; what has no date is nobody's to remove."""
    found: dict[_Key, _Day] = {}
    for place in root.glob(_DAY.format(host="*")):
        host = place.parent.name.removeprefix("host=")
        try:
            when = date.fromisoformat(place.name.removeprefix("date="))
        except ValueError:
            continue
        if place.is_symlink() or (hosts is not None and host not in hosts):
            continue
        day = found.setdefault((when, host), _Day())
        day.places.append(place)
        day.n_bytes += sum(entry.stat(follow_symlinks=False).st_size for entry in _files(place))
    return found


def _files(place: Path) -> Iterator[os.DirEntry[str]]:
    with os.scandir(place) as entries:
        yield from (entry for entry in entries if entry.is_file(follow_symlinks=False))


def _remove(key: _Key, day: _Day, why: str, done: Retained, *, dry_run: bool) -> None:
    done.removed.append((key[1], key[0], why))
    done.n_bytes += day.n_bytes
    done.left_bytes -= day.n_bytes
    for place in sorted(day.places, key=lambda place: place.parents[1].name != MARKER):
        files = list(_files(place))
        done.files += len(files)
        if dry_run:
            continue
        for file in files:
            Path(file.path).unlink(missing_ok=True)
        place.rmdir()
