"""The stages of an explanation: all tables that it makes from a recording, with units.

``query`` offers the tables that a stage makes as views; inner tables are for other stages.
"""

from collections.abc import Mapping, Sequence
from typing import Any

import duckdb

from spoolscope.analysis.call_stages import CALL_STAGES
from spoolscope.analysis.commit_stages import COMMIT_STAGES
from spoolscope.analysis.insight_stages import INSIGHT_STAGES
from spoolscope.analysis.report_stages import REPORT_STAGES
from spoolscope.analysis.services import Window
from spoolscope.analysis.stack_rules import Rule
from spoolscope.analysis.stage import Stage, Work

STAGES: tuple[Stage, ...] = (*CALL_STAGES, *COMMIT_STAGES, *INSIGHT_STAGES, *REPORT_STAGES)


def begin(
    con: duckdb.DuckDBPyConnection,
    meta: Mapping[str, Any] | None = None,
    rules: Sequence[Rule] | None = None,
    shown: str = "true",
    span: Window = None,
) -> Work:
    """Return an analysis with nothing made yet; see ``stage.Work``.

    Statements that count commits or requests have the condition ``in_slice(from_ns, to_ns)``: an
    interval overlaps the span, which is the shown part of the recording; None is all of it.
    """
    within = "true" if span is None else f"from_ns < {span[1]} AND to_ns > {span[0]}"
    con.execute(f"CREATE OR REPLACE TEMP MACRO in_slice(from_ns, to_ns) AS ({within})")
    return Work(con, STAGES, meta or {}, rules, shown)
