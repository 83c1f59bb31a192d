"""Stages of an analysis, which make tables from others, and the code that runs them in order.

A stage declares the tables that it needs and makes. A request for a table makes it and all the
tables that it depends on, each once.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from graphlib import TopologicalSorter
from typing import Any

import duckdb

from spoolscope.analysis.stack_rules import Rule
from spoolscope.traces.schema import TABLES


@dataclass(frozen=True)
class Field:
    """One column: its unit ("" if it has none) and meaning."""

    name: str
    unit: str
    meaning: str


FROM, TO = ("ns", "Start, since the epoch."), ("ns", "End, since the epoch.")
CAUSE = ("", "A cause of the closed list.")
SHOWN = ("", "The call is among what is shown; sums are of those.")
"""Units and meanings of columns that occur in many tables."""


@dataclass(frozen=True)
class Made:
    """One table that a stage makes: the meaning of a row, and its columns."""

    name: str
    row: str
    columns: tuple[Field, ...]


@dataclass(frozen=True)
class Stage:
    """One step of the analysis.

    Attributes:
        name: Unique.
        needs: Tables, of the recording or made by other stages.
        makes: Tables that others may use.
        make: Function that makes them on a connection with the needed tables.
        inner: Further tables that it makes, for stages that name them among their needs.
    """

    name: str
    needs: tuple[str, ...]
    makes: tuple[Made, ...]
    make: Callable[["Work"], None]
    inner: tuple[str, ...] = ()

    @property
    def tables(self) -> tuple[str, ...]:
        """The names of all tables that it makes."""
        return (*(made.name for made in self.makes), *self.inner)


@dataclass
class Work:
    """An analysis under way, on a connection of ``Trace.connect``.

    Attributes:
        con: The connection; tables made so far are temporary tables and views there.
        stages: All stages that can be run.
        meta: meta.json of the trace.
        rules: Rules that name stacks, by default the shipped ones.
        shown: SQL condition that a row of ``syscalls`` is shown (``selection.select``): sums are
            over shown calls, tables have all calls.
        facts: Python values for stages, by name.
    """

    con: duckdb.DuckDBPyConnection
    stages: Sequence[Stage]
    meta: Mapping[str, Any] = field(default_factory=dict)
    rules: Sequence[Rule] | None = None
    shown: str = "true"
    facts: dict[str, Any] = field(default_factory=dict)
    made: set[str] = field(default_factory=set)

    def make(self, *tables: str) -> None:
        """Make tables and what they need, unless they have been made."""
        for stage in in_order(self.stages, tables):
            if stage.name not in self.made:
                stage.make(self)
                self.made.add(stage.name)


def in_order(stages: Sequence[Stage], tables: Iterable[str]) -> list[Stage]:
    """Return the stages that make some tables, each after those that it needs.

    Raises:
        KeyError: no stage makes a table, and no recording has it.
        graphlib.CycleError: stages need each other.
    """
    makers = {table: stage for stage in stages for table in stage.tables}
    graph: dict[str, set[str]] = {}
    left = [table for table in tables if table not in TABLES]
    while left:
        stage = makers[left.pop()]
        if stage.name not in graph:
            needs = [table for table in stage.needs if table not in TABLES]
            graph[stage.name] = {makers[table].name for table in needs}
            left += needs
    by_name = {stage.name: stage for stage in stages}
    return [by_name[name] for name in TopologicalSorter(graph).static_order()]


def columns(of: Iterable[str], words: str, **own: tuple[str, str]) -> tuple[Field, ...]:
    """Describe columns.

    Args:
        of: Recorded tables whose columns have the same names and meanings.
        words: The names in order.
        own: The unit and the meaning of columns of other names, or with other meanings.
    """
    known = {c.name: Field(c.name, c.unit, c.meaning) for t in of for c in TABLES[t].columns}
    return tuple(Field(name, *own[name]) if name in own else known[name] for name in words.split())


def on(make: Callable[[duckdb.DuckDBPyConnection], object]) -> Callable[[Work], None]:
    """Return a stage's function made from one that needs only the connection."""

    def made(work: Work) -> None:
        make(work.con)

    return made
