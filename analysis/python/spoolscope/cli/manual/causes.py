"""The page of all causes: definitions from the analysis, examples and remedies from causes.toml."""

import tomllib
from pathlib import Path

from spoolscope.analysis.causes import BETWEEN_PROGRAMS, CAUSES

GROUPS = {
    "journal": "The journal",
    "device": "The disk and what is below the filesystem",
    "read": "Reading what is not in memory",
    "lock": "Locks",
    "machine": "CPU and memory",
}
"""Groups of causes, in the order of the page."""

INTRO = """\
# Causes

The time of every call is split into parts: on the CPU, blocked, waiting for a CPU, and pushed off
the CPU. The parts add up exactly. Each part has one cause of the list below. The list is the same
for all filesystems, so that you can compare them.

The cause of a blocked part is named by rules. A rule looks at the kernel stack on which the thread
went to sleep. `spoolscope explain TRACE --unknown` lists the stacks that no rule knows.
"""


def entries() -> dict[str, dict[str, str]]:
    """Return {cause: {"example", "helps"}}."""
    return tomllib.loads(Path(__file__).with_name("causes.toml").read_text())


def causes_page() -> str:
    """Return the page as Markdown."""
    lines = [INTRO]
    known = entries()
    for group, title in GROUPS.items():
        lines += [f"## {title}", ""]
        for name, cause in CAUSES.items():
            if cause.group == group:
                lines += _section(name, known[name])
    return "\n".join(lines)


def _section(name: str, entry: dict[str, str]) -> list[str]:
    cause = CAUSES[name]
    apart = "This time is shown, but it is not charged to the filesystem."
    meaning = f"{cause.meaning} {apart}" if name in BETWEEN_PROGRAMS else cause.meaning
    return [
        f"### {cause.label}",
        "",
        f"`{name}`. {meaning}",
        "",
        f"* **Example.** {' '.join(entry['example'].split())}",
        f"* **What helps.** {' '.join(entry['helps'].split())}",
        "",
    ]
