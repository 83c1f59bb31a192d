"""Results in which filesystems may differ: the classes of ``differences.toml``."""

import errno
import tomllib
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from importlib.resources import files
from typing import Any

import numpy as np

from spoolscope.traces.calls import CALLS
from spoolscope.traces.filesystems import FILESYSTEMS, LACKING

Groups = Mapping[str, Sequence[str]]
"""Members of groups by the group's name: types of filesystem, and other groups."""


@dataclass(frozen=True)
class Types:
    """Types of filesystem: those the trace was recorded on, and the candidate's."""

    recorded: frozenset[str]
    candidate: str

    @property
    def same(self) -> bool:
        """True if the replay ran on the recorded type."""
        return self.candidate in self.recorded


@dataclass(frozen=True)
class Answer:
    """A call with another result than recorded.

    Attributes:
        op: The operation, a plan_op record.
        recorded: Errno in the recording, 0 for success.
        replayed: Errno in the replay, 0 for success.
        text_bytes: Length of its second name: a symlink's target.
        direct: Its descriptor was opened with O_DIRECT.
    """

    op: np.void
    recorded: int
    replayed: int
    text_bytes: int
    direct: bool


@dataclass(frozen=True)
class Difference:
    """A class of results that depend on the filesystem.

    Attributes:
        name: Subject of the difference.
        source: Where it is documented.
        calls: Ids of the calls that can have it.
        results: Filesystem types by the errno they may give, 0 for success.
        conditions: Further conditions, see ``differences.toml``.
    """

    name: str
    source: str
    calls: frozenset[int]
    results: dict[int, frozenset[str]]
    conditions: dict[str, Any]

    def fits(self, answer: Answer, types: Types) -> bool:
        """Return whether the two filesystem types explain both results."""
        if types.same or int(answer.op["op"]) not in self.calls:
            return False
        before = self.results.get(answer.recorded, frozenset())
        after = self.results.get(answer.replayed, frozenset())
        known = answer.recorded != answer.replayed and types.candidate in after
        return known and types.recorded <= before and self._applies(answer)

    def _applies(self, answer: Answer) -> bool:
        op, wanted = answer.op, self.conditions
        flags = int(op["flags"])
        reach = int(op["offset"]) + max(int(op["size"]), 0)
        return (
            ("flags_any" not in wanted or bool(flags & wanted["flags_any"]))
            and not flags & wanted.get("flags_none", 0)
            and answer.text_bytes > wanted.get("text_longer", -1)
            and reach > wanted.get("offset_over", -2)
            and (answer.direct or not wanted.get("direct", False))
        )


@cache
def known_differences() -> tuple[Difference, ...]:
    """Read the classes; the first one that fits counts."""
    text = files("spoolscope.replay").joinpath("differences.toml").read_text("utf-8")
    return parse(text)


def parse(text: str) -> tuple[Difference, ...]:
    """Parse the text of differences.toml.

    Raises:
        ValueError: a word is neither a group nor a type of filesystem.
    """
    data = tomllib.loads(text)
    lacking = {
        word: [kind.type for kind in FILESYSTEMS.values() if word in kind.lacks] for word in LACKING
    }
    groups: Groups = {
        **{f"lacks {word}": types for word, types in lacking.items()},
        **{f"has {w}": [one for one in FILESYSTEMS if one not in lacking[w]] for w in LACKING},
        **data["groups"],
    }
    return tuple(one for line in data["class"] for one in _differences(dict(line), groups))


def _differences(line: dict[str, Any], groups: Groups) -> Iterator[Difference]:
    """Yield one class, or one for each step of an ``ascending`` list."""
    name, source = line.pop("name"), line.pop("source")
    calls = frozenset(CALLS[call].id for call in line.pop("calls"))
    steps = [_types(words, groups) for words in line.pop("ascending", ())]
    results = {
        _errno(word): _types(words, groups) for word, words in line.pop("results", {}).items()
    }
    if not steps:
        yield Difference(name, source, calls, results, line)
        return
    refusal, over = _errno(line.pop("refusal")), line.pop("over", [-2] * (len(steps) - 1))
    for number, (least, bytes_over) in enumerate(zip(steps[:-1], over, strict=True)):
        more = frozenset().union(*steps[number + 1 :])
        conditions = line | {"offset_over": bytes_over}
        yield Difference(name, source, calls, {0: more, refusal: least}, conditions)


def _types(words: Sequence[str], groups: Groups) -> frozenset[str]:
    """Return the types that words stand for: each word is a type, or a group, perhaps nested."""
    found: set[str] = set()
    for word in words:
        if word in groups:
            found |= _types(groups[word], groups)
        elif word in FILESYSTEMS:
            found.add(word)
        else:
            raise ValueError(f"{word!r} is neither a group nor a type of filesystem")
    return frozenset(found)


def _errno(word: str) -> int:
    return 0 if word == "success" else int(getattr(errno, word))


def difference_of(answer: Answer, types: Types) -> Difference | None:
    """Return the class of a result; None if no class explains it, as always on the same type."""
    return next((one for one in known_differences() if one.fits(answer, types)), None)
