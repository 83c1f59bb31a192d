"""The section about the life of each candidate's filesystem, from mkfs to the removal of all."""

from collections.abc import Mapping, Sequence

from spoolscope.analysis.compare import Comparison
from spoolscope.analysis.lives import MEASURES, STEPS, Spread
from spoolscope.report.page import Section, TableBlock

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


def life_section(found: Comparison) -> Section | None:
    """Return a table of times, one of CPU times, and one of space and writes; None without any."""
    lives = {name: c.life for name, c in found.candidates.items() if c.life}
    if not lives:
        return None
    return Section(
        "life",
        "Life",
        "The life of a filesystem",
        "What it takes to make, fill, mount, check and empty it. No verdicts.",
        [
            _table(
                "Time",
                [f"{step}_ns" for step in STEPS],
                lives,
                "Median, from the least to the largest, and of how many runs. The image is made "
                "and filled once and copied for later rounds. Fill: the fixture, until all of it "
                "is on the device. Mount, filled: with cold caches. Umount: after the replay. "
                "Check: by the filesystem's own program, read-only, with cold caches. Remove all: "
                "rm -r on a fresh mount, until that is on the device.",
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
                "Usable: what statvfs says a user can have. Written by byte: what the device was "
                "given, by what calls wrote, from the first call until after umount. Data and "
                "metadata: requests of the recorded replay alone; metadata that a call or a commit "
                "waits for (journals, logs) is awaited. Dirty: most of the machine's page cache "
                "that was to be written, every 0.1 s.",
            ),
        ],
    )


def _table(
    title: str, keys: Sequence[str], lives: Mapping[str, Mapping[str, Spread]], caption: str
) -> TableBlock:
    known = [key for key in keys if any(key in life for life in lives.values())]
    heads = [f">{MEASURES[key].label.removesuffix(': CPU')}" for key in known]
    rows = [[name, *(_cell(key, life.get(key)) for key in known)] for name, life in lives.items()]
    return TableBlock(title, ["candidate", *heads], rows, caption)


def _cell(key: str, spread: Spread | None) -> str:
    if spread is None:
        return "-"
    middle, low, high = (
        MEASURES[key].shown(value) for value in (spread.median, spread.low, spread.high)
    )
    return middle if low == high else f"{middle} ({low} to {high}, n = {spread.n})"
