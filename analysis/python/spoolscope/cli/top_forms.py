"""Intervals of top for programs: JSON lines, CSV or Markdown instead of text."""

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import click

from spoolscope.cli.markdown import pipes
from spoolscope.cli.names import MARK
from spoolscope.cli.output import CSV, JSON, MARKDOWN
from spoolscope.cli.printing import say
from spoolscope.export.rows import csv_line
from spoolscope.traces.reveal import DO_NOT_GIVE_AWAY
from spoolscope.traces.text import shown_json


def form_options(command: Callable[..., Any]) -> Callable[..., Any]:
    """Add --json, --csv and --markdown, whose value is ``form``; None without one of them."""
    for form, what in (
        (MARKDOWN, "Print a table in Markdown for each interval."),
        (CSV, "Print one CSV table: a row for each interval and program (--deep: process)."),
        (JSON, "Print one JSON object a line, an interval."),
    ):
        command = click.option(f"--{form}", "form", flag_value=form, help=what)(command)
    return command


class FormPrinter:
    """Printer of intervals in one form; only the first row of CSV has names of columns."""

    def __init__(self, form: str, *, names: bool) -> None:
        """Begin a table.

        Args:
            form: JSON, CSV or MARKDOWN.
            names: Real names are shown; JSON and Markdown say so.
        """
        self.form, self.names = form, names
        self._headed = False

    def show(self, interval: Mapping[str, Any], users: str) -> None:
        """Print an interval.

        Args:
            interval: The object that --json prints.
            users: Key of its rows: "programs" or "processes".
        """
        if self.form == JSON:
            mark = {"names": DO_NOT_GIVE_AWAY} if self.names else {}
            say(shown_json({**mark, **interval}))
            return
        rows = [_row(interval, user) for user in interval[users]]
        if self.form == CSV:
            self._csv(rows)
        else:
            table = pipes(list(rows[0]), [list(row.values()) for row in rows]) if rows else ()
            say(*((MARK, "") if self.names else ()), *table, "")

    def _csv(self, rows: Sequence[Mapping[str, Any]]) -> None:
        if rows and not self._headed:
            say(csv_line(rows[0]))
            self._headed = True
        for row in rows:
            say(csv_line(row.values()))


def _row(interval: Mapping[str, Any], user: Mapping[str, Any]) -> dict[str, Any]:
    """Return one row: the interval, then the facts of a user with its largest cause only."""
    causes = user["causes"]
    largest = max(causes, key=causes.__getitem__, default=None)
    return {
        "start_ns": interval["start_ns"],
        "duration_ns": interval["duration_ns"],
        **{key: value for key, value in user.items() if not isinstance(value, dict)},
        "largest_cause": largest,
        "largest_cause_ns": causes[largest] if largest is not None else None,
    }
