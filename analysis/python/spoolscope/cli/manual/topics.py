"""Concepts as ``spoolscope help`` shows them: the same Markdown files as on the site."""

import re
from difflib import get_close_matches
from pathlib import Path

from spoolscope.cli.manual.causes import causes_page
from spoolscope.cli.manual.insights import insights_page

TOPICS = {
    "causes": "what calls wait for, and what helps",
    "insights": "what explain looks for, what to try, and what that costs",
    "fidelity": "how true a replay was: verdicts, lateness, the certificate",
    "pace": "when a replayed call is due",
    "order": "which call waits for which",
    "candidates": "what a replay can run on, and how to add your own",
    "cache": "what is in memory when a replay begins; aged filesystems",
    "what-if": "parts of a recording, calls left out, more users",
    "pseudonyms": "which names a trace hides, and how you see them",
    "completeness": "what was lost, and how a trace says so",
    "devices": "images, real disks and device models",
    "machines": "other kernels in a virtual machine",
    "limits": "what is not recorded, replayed or explained",
    "glossary": "the words of this project",
}
"""Subject of each topic, in the order of the list."""
MADE = {"causes": causes_page, "insights": insights_page}
"""Pages that are made from definitions; the others are files."""
_LINK = re.compile(r"(?<!!)\[([^\]]+)\]\((?!https?:)[^)]*\)")
_TOPIC = re.compile(r"\]\(([a-z-]+)\.md")


def directory() -> Path:
    """Return the directory of the Markdown files: in the package, or in the checkout."""
    here = Path(__file__).resolve()
    installed = here.with_name("concepts")
    return installed if installed.is_dir() else here.parents[5] / "docs" / "concepts"


def text(topic: str) -> str:
    """Return the page of a topic as Markdown."""
    made = MADE.get(topic)
    return made() if made else (directory() / f"{topic}.md").read_text()


def shown(topic: str) -> str:
    """Return the page of a topic without links, with a list of the linked topics."""
    page = text(topic)
    linked = [target for target in _TOPIC.findall(page) if target in TOPICS and target != topic]
    plain = _LINK.sub(r"\1", page).rstrip("\n")
    also = ", ".join(f"`spoolscope help {name}`" for name in dict.fromkeys(linked))
    return f"{plain}\n\nSee also: {also}.\n" if also else f"{plain}\n"


def nearest(word: str, words: list[str]) -> str | None:
    """Return the most similar one of ``words``, if any is similar."""
    return next(iter(get_close_matches(word, words, 1)), None)
