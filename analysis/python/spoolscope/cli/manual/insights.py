"""The page of all insights, from the rules that find them."""

import re

from spoolscope.analysis.insights import LEAST_SHARE, OF, InsightRule, insight_rules
from spoolscope.analysis.wording import percent

SUBJECTS = {
    "J": "Journals and commits",
    "S": "Syncs",
    "D": "Directories",
    "L": "Locks",
    "R": "Requests and disks",
    "X": "XFS",
    "B": "btrfs",
    "M": "Memory",
    "C": "CPUs",
    "P": "Programs and snapshots",
}
"""Headings by the letter that a code begins with, in the order of the page."""

WORDS = {
    "who": "`program`",
    "which": "`processes`",
    "rate": "",
    "larger": "Make the journal or log larger",
}
"""Replacements for values whose names are not clear enough."""

INTRO = f"""\
# Insights

The first lines of `explain`, and the section *Insights* of a report, come from the rules below.
Each rule looks for one thing that is known to make mail servers slow. An insight is shown from
{percent(LEAST_SHARE, 0)} of the time on, unless its rule says otherwise. Insights may overlap.
Words in code font stand for values of your trace.

**The price** is what a remedy costs in durability or risk. Read it before you change anything.
"""


def insights_page() -> str:
    """Return the page as Markdown."""
    lines = [INTRO]
    rules = insight_rules()
    for letter, subject in SUBJECTS.items():
        found = [rule for rule in rules if rule.code.startswith(letter)]
        lines += [f"## {subject}", ""] if found else []
        lines += [line for rule in found for line in _section(rule)]
    return "\n".join(lines)


def _section(rule: InsightRule) -> list[str]:
    share = f"{percent(rule.least_share, 0)} of {OF[rule.of]}"
    own = rule.least_share != LEAST_SHARE or rule.of != "calls"
    return [
        f"### {rule.code} {rule.title}",
        "",
        _worded(f"{rule.culprit} {rule.mechanism}.") + (f" Shown from {share}." if own else ""),
        "",
        f"* **Try.** {_worded(rule.remedy)}",
        f"* **Price.** {_worded(rule.price)}",
        "",
    ]


def _worded(template: str) -> str:
    """Return a sentence with the names of its values in place of the values."""

    def name(match: re.Match[str]) -> str:
        value = match[1]
        return WORDS.get(value, f"`{value.removesuffix('_ns').replace('_', ' ')}`")

    return re.sub(r"{(\w+)}", name, template)
