"""Concepts as ``spoolscope help`` shows them: the same Markdown files as on the site."""

from difflib import get_close_matches
from pathlib import Path

from spoolscope.cli.manual.causes import causes_page

TOPICS = {
    "causes": "what calls wait for, and what helps",
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
"""What each topic is about, in the order in which they are listed."""


def directory() -> Path:
    """Return where the Markdown files are: in the package, or in the checkout."""
    here = Path(__file__).resolve()
    installed = here.with_name("concepts")
    return installed if installed.is_dir() else here.parents[5] / "docs" / "concepts"


def text(topic: str) -> str:
    """Return the page of a topic as Markdown."""
    return causes_page() if topic == "causes" else (directory() / f"{topic}.md").read_text()


def nearest(word: str, words: list[str]) -> str | None:
    """Return the one of ``words`` that was probably meant."""
    return next(iter(get_close_matches(word, words, 1)), None)
