"""The section on the life of each candidate's filesystem, from mkfs to the removal of all."""

from collections.abc import Mapping, Sequence

from spoolscope.analysis.lives import MEASURES, STEPS, Spread
from spoolscope.report.inputs import Inputs
from spoolscope.report.page import Ranged, Section, TableBlock

anchor = "life"
SPACE = (
    "total_bytes",
    "usable_bytes",
    "usable_emptied_bytes",
    "fill_writes",
    "mail_bytes",
    "written_bytes",
    "replay_writes",
    "data_bytes",
    "metadata_awaited_bytes",
    "metadata_later_bytes",
    "dirty_bytes",
)


def applies(page: Inputs) -> bool:
    """Return True if a replay measured it."""
    return bool(_lives(page))


def make(page: Inputs) -> Section:
    """Lay out a table of times, one of CPU times, and one of space and writes."""
    lives = _lives(page)
    return Section(
        anchor,
        "Life",
        "The life of a filesystem",
        "What it takes to make, fill, mount, check and empty it. No verdicts.",
        [
            _table(
                "Time",
                [f"{step}_ns" for step in STEPS],
                lives,
                "Median over n runs, and from the least to the largest. An image is made and "
                "filled new in the first round, and copied for later ones. Fill: the fixture, "
                "until all of it is on the device. Mount, filled: with cold caches. Umount: after "
                "the replay. Check: by the filesystem's own program, read-only, with cold caches. "
                "Remove all: rm -r on a fresh mount, until that is on the device.",
            ),
            _table(
                "CPU time",
                [f"{step}_cpu_ns" for step in STEPS],
                lives,
                "Of the programs and of all kernel threads of the machine in that time.",
            ),
            _table(
                "Space and writes",
                SPACE,
                lives,
                "Usable: what statvfs says a user can have. Writes: bytes given to the device by "
                "bytes of files or calls, until after umount. Data and meta(data): requests of the "
                "recorded replay alone; metadata that a call or a commit waits for (journals, "
                "logs) is awaited. Dirty: most of the machine's page cache that was to be written, "
                "every 0.1 s.",
            ),
        ],
    )


def _lives(page: Inputs) -> Mapping[str, Mapping[str, Spread]]:
    if page.found is None:
        return {}
    return {name: c.life for name, c in page.found.candidates.items() if c.life}


def _table(
    title: str, keys: Sequence[str], lives: Mapping[str, Mapping[str, Spread]], caption: str
) -> TableBlock:
    known = [key for key in keys if any(key in life for life in lives.values())]
    heads = [f">{MEASURES[key].label.removesuffix(': CPU')}" for key in known]
    rows = [
        [name, *(_cell(key, life.get(key)) for key in known), *_numbers(known, life)]
        for name, life in lives.items()
    ]
    return TableBlock(title, ["candidate", *heads, ">n, new", ">n"], rows, caption)


def _cell(key: str, spread: Spread | None) -> str | Ranged:
    if spread is None:
        return "-"
    middle, low, high = (
        MEASURES[key].shown(value) for value in (spread.median, spread.low, spread.high)
    )
    return middle if low == high else Ranged(middle, f"{low} to {high}")


def _numbers(keys: Sequence[str], life: Mapping[str, Spread]) -> list[str]:
    """Return the number of runs that made and filled an image, and of all runs."""
    found = [life[key].n for key in keys if key in life]
    return [str(min(found, default=0)), str(max(found, default=0))]
