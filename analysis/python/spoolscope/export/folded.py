"""Folded stacks: one line for each process, call and cause, with its nanoseconds."""

from pathlib import Path

from spoolscope.analysis.causes import MACHINE
from spoolscope.export.content import Content
from spoolscope.traces.text import shown

BY_CAUSE = f"""
SELECT comm, syscall, cause, CAST(sum(ns) AS BIGINT) AS ns FROM (
    SELECT comm, syscall, cause, dur_ns AS ns FROM named_waits WHERE shown
    UNION ALL
    SELECT comm, syscall, unnest({list(MACHINE)}) AS cause,
        unnest([{", ".join(MACHINE.values())}]) AS ns FROM shown_calls
) GROUP BY ALL HAVING sum(ns) > 0 ORDER BY comm, syscall, cause
"""
"""Time of shown calls, ns, by thread name, call and cause; adds up to the length of the calls."""


class Folded:
    """Folded stacks, as flame graphs read them."""

    sentence = "Folded stacks, process;call;cause and its nanoseconds, for flame graphs."
    opens = "flamegraph.pl --countname ns {output} > flame.svg, or drop it on speedscope.app"
    call_by_call = False

    def write(self, content: Content, output: Path) -> None:
        """Write the lines; their numbers add up to the time of the calls."""
        with output.open("x", encoding="utf-8") as file:
            for *stack, ns in content.rows(BY_CAUSE):
                file.write(f"{';'.join(map(_frame, stack))} {ns}\n")


def _frame(name: str) -> str:
    """Return a name as one frame, without ';', which ends a frame."""
    return shown(name).replace(";", "\\x3b") or "?"
