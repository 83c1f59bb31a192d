"""Causes of time in the recorded steps of a workload, which show why candidates differ."""

from pathlib import Path

from spoolscope.analysis.explain import explain
from spoolscope.traces.trace import Trace


def causes_of_steps(out: Path) -> dict[str, dict[str, dict[str, float]]]:
    """Return {step: {candidate: {cause: ns}}} of the first round of ``lab workload --record``.

    Args:
        out: The directory that it wrote.

    Raises:
        SpoolscopeError: a trace cannot be read.
    """
    found: dict[str, dict[str, dict[str, float]]] = {}
    for trace in sorted(out.glob("*-r1/*.trace")):
        candidate = trace.parent.name.removesuffix("-r1")
        causes = explain(Trace.open(trace)).causes
        found.setdefault(trace.stem, {})[candidate] = {k: float(ns) for k, ns in causes.items()}
    return found
