"""Figures and claims of the published comparisons, from ``comparisons.toml``."""

import tomllib
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any, Literal

from spoolscope.replay.presets import presets

Relation = Literal["less", "alike"]


@dataclass(frozen=True)
class Column:
    """A column of a table: metric, name and unit."""

    metric: str
    title: str
    unit: str

    @property
    def heading(self) -> str:
        """The heading of the column."""
        return f"{self.title}, {self.unit}" if self.unit else self.title


@dataclass(frozen=True)
class Table:
    """A published table.

    Attributes:
        title: Its subject.
        columns: Its columns, in order.
        rows: {candidate: {metric: value}}; a figure that was not published is left out.
    """

    title: str
    columns: tuple[Column, ...]
    rows: Mapping[str, Mapping[str, float]]


@dataclass(frozen=True)
class Pair:
    """A claimed relation of two figures.

    Attributes:
        left: Candidate and metric; ``right`` likewise.
        relation: "less": left is less than right; "alike": they are about equal.
        times: Least factor (less), or largest factor (alike).
    """

    left: tuple[str, str]
    right: tuple[str, str]
    relation: Relation
    times: float


@dataclass(frozen=True)
class Claim:
    """A sentence of a comparison, and the relations that it claims.

    Attributes:
        least_scale: At a smaller scale it cannot be refuted, as it is about sizes.
    """

    text: str
    pairs: tuple[Pair, ...]
    least_scale: float = 0.0

    @property
    def candidates(self) -> tuple[str, ...]:
        """The candidates of the claim."""
        named = (side[0] for pair in self.pairs for side in (pair.left, pair.right))
        return tuple(dict.fromkeys(named))


@dataclass(frozen=True)
class Comparison:
    """A published comparison.

    Attributes:
        name: C2004 and so on.
        year: Year of publication.
        about: Its subject, in a few words.
        machine: The machine used.
        source: Place of publication.
        differs: Sentences on differences between the load here and the published one.
        like: {candidate without the published options: the row that it is compared with}.
    """

    name: str
    year: int
    about: str
    machine: str
    source: str
    differs: tuple[str, ...]
    like: Mapping[str, str]
    tables: tuple[Table, ...]
    claims: tuple[Claim, ...]

    def row_of(self, candidate: str) -> str | None:
        """Return the row of a candidate, with or without a device model or kernel in its name."""
        plain = candidate.partition("@")[0]
        rows = {row for table in self.tables for row in table.rows}
        found = plain if plain in rows else self.like.get(plain)
        return found if found in rows else None

    def plain(self, claim: Claim) -> Mapping[str, str] | None:
        """Return {candidate of a claim: the same filesystem without the published options}.

        None if one of them has no such candidate: then the options are what the claim is about.
        """
        known = presets()
        plain = {
            row: name for name, row in self.like.items() if known[name].fstype == known[row].fstype
        }
        if not plain.keys() >= set(claim.candidates):
            return None
        return {name: plain[name] for name in claim.candidates}

    def value(self, table: Table, candidate: str, metric: str) -> float | None:
        """Return a published figure of the row of a table that a candidate is compared with."""
        row = self.row_of(candidate)
        return table.rows.get(row, {}).get(metric) if row else None


@cache
def comparisons() -> Mapping[str, Comparison]:
    """Return the published comparisons by name."""
    blocks = tomllib.loads(Path(__file__).with_name("comparisons.toml").read_text())
    return {name: _comparison(name, block) for name, block in blocks.items()}


def _comparison(name: str, block: dict[str, Any]) -> Comparison:
    return Comparison(
        name=name,
        year=block["year"],
        about=block["about"],
        machine=block["machine"],
        source=block["source"],
        differs=tuple(block["differs"]),
        like=block["like"],
        tables=tuple(map(_table, block["tables"])),
        claims=tuple(map(_claim, block["claims"])),
    )


def _table(block: dict[str, Any]) -> Table:
    columns = tuple(Column(**column) for column in block["columns"])
    return Table(block["title"], columns, block["rows"])


def _claim(block: dict[str, Any]) -> Claim:
    metric = block.get("metric", "")
    pairs = tuple(_pair(pair, metric) for pair in block["pairs"])
    return Claim(block["text"], pairs, block.get("scale", 0.0))


def _pair(block: dict[str, Any], metric: str) -> Pair:
    def side(text: str) -> tuple[str, str]:
        candidate, _, own = text.partition("/")
        return candidate, own or metric

    if "alike" in block:
        return Pair(side(block["alike"]), side(block["to"]), "alike", block["within"])
    return Pair(side(block["less"]), side(block["than"]), "less", block.get("times", 1))
