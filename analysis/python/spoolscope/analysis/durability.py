"""Comparison of candidates by what they keep after a crash."""

from collections.abc import Mapping

SAME = "same"
"""The durability of a candidate that keeps after a crash what filesystems usually keep."""

WEAKER = "weaker: "
"""Prefix of the durability of a candidate that keeps less; what is lost follows it."""


def beside(kept: Mapping[str, str], reference: str) -> dict[str, str]:
    """Return the difference to the reference's durability for each candidate that has one.

    Args:
        kept: The durability of each candidate, by name.
        reference: One of these names.
    """
    theirs = kept[reference]
    return {
        name: _difference(ours, theirs, reference) for name, ours in kept.items() if ours != theirs
    }


def _difference(ours: str, theirs: str, reference: str) -> str:
    if ours.startswith(WEAKER):
        return f"less durable: {ours.removeprefix(WEAKER)}"
    if ours == SAME and theirs.startswith(WEAKER):
        return f"more durable; {reference}: {theirs.removeprefix(WEAKER)}"
    unknown = "it" if ours != SAME else reference
    return f"whether one is more durable is not known: what {unknown} keeps is not stated"
