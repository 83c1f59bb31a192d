"""Answers that filesystems may give differently: the classes of ``differences.toml``."""

import errno
import tomllib
from dataclasses import dataclass
from functools import cache
from importlib.resources import files
from typing import Any

import numpy as np

from spoolscope.traces.calls import CALLS


@dataclass(frozen=True)
class Types:
    """Types of filesystem: those the trace was recorded on, and the candidate's."""

    recorded: frozenset[str]
    candidate: str

    @property
    def same(self) -> bool:
        """Whether the replay ran on the recorded type."""
        return self.candidate in self.recorded


@dataclass(frozen=True)
class Answer:
    """A call that was answered differently.

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
    """A class of answers that depend on the filesystem.

    Attributes:
        name: What they are about.
        source: Where it is documented.
        calls: Ids of the calls that meet it.
        results: Filesystem types by the errno they may give, 0 for success.
        conditions: What else must hold, see ``differences.toml``.
    """

    name: str
    source: str
    calls: frozenset[int]
    results: dict[int, frozenset[str]]
    conditions: dict[str, Any]

    def fits(self, answer: Answer, types: Types) -> bool:
        """Tell whether both answers are those of their filesystems."""
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
    return tuple(_difference(dict(line)) for line in tomllib.loads(text)["class"])


def _difference(line: dict[str, Any]) -> Difference:
    return Difference(
        name=line.pop("name"),
        source=line.pop("source"),
        calls=frozenset(CALLS[name].id for name in line.pop("calls")),
        results={_errno(word): frozenset(types) for word, types in line.pop("results").items()},
        conditions=line,
    )


def _errno(word: str) -> int:
    return 0 if word == "success" else int(getattr(errno, word))


def difference_of(answer: Answer, types: Types) -> Difference | None:
    """Return the class an answer is of; None if nothing excuses it, always so on the same type."""
    return next((one for one in known_differences() if one.fits(answer, types)), None)
