"""Virtual machines that a replay booted: names of their runs, and the value of their times."""

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace

from spoolscope.traces.calls import of_effect
from spoolscope.traces.results import RunResult

EMULATED = (
    "The runs were made in an emulated machine, where what needs the CPU takes three to ten times "
    "as long as on real hardware: its share of the time is too large; --icount compares CPU times "
    "exactly."
)
COUNTED = (
    "The runs were made in an emulated machine whose clock counts instructions, 1 ns each: what is "
    "compared is the CPU time of calls, exact, and that of no hardware; disks take no time there."
)
OF_PROCESSES = frozenset(of_effect("forks", "execs", "exits"))
"""Calls that the replayer makes in its own way: their CPU time differs from the recorded one."""


def accelerator(run: RunResult) -> str:
    """Return what executed the instructions of a run's machine; empty if none was booted."""
    if run.machine is None:
        return ""
    return f"{run.machine.accelerator}{' with --icount' if run.machine.icount else ''}"


def series(run: RunResult) -> str:
    """Return the series of the kernel that was booted, "6.1"; empty if none was."""
    return run.machine.series if run.machine else ""


def base_name(run: RunResult) -> str:
    """Return a candidate's name without its kernel."""
    # A candidate on a device model has an "@" of its own.
    return run.candidate.replace(_label(run), "", 1)


def _label(run: RunResult) -> str:
    return f"@{series(run) or run.kernel or None}"


def age_of_kernel(run: RunResult) -> list[int]:
    """Return the sort key of a run by kernel, the oldest first."""
    return [int(number) for number in re.findall(r"\d+", _label(run))]


def on_newer_kernels(runs: Iterable[RunResult]) -> list[tuple[str, str]]:
    """Return pairs of one candidate on a newer kernel and on the oldest kernel."""
    on: dict[str, dict[str, str]] = {}
    for run in sorted(runs, key=age_of_kernel):
        on.setdefault(base_name(run), {})[_label(run)] = run.candidate
    pairs = []
    for names in on.values():
        oldest, *newer = dict.fromkeys(names.values())
        pairs += [(name, oldest) for name in newer]
    return pairs


def counts_instructions(run: RunResult) -> bool:
    """Return True if a run's times are counts of instructions."""
    return run.machine is not None and run.machine.icount


def on_cpu(by_syscall: Mapping[str, Mapping[str, int]]) -> dict[str, dict[str, int]]:
    """Return the CPU time in {call: {cause: ns}}, without calls ``OF_PROCESSES``."""
    return {
        call: {"cpu": causes.get("cpu", 0)}
        for call, causes in by_syscall.items()
        if call not in OF_PROCESSES
    }


def with_kernels(runs: Sequence[RunResult]) -> list[RunResult]:
    """Return the runs; if they are on several kernels, each kernel makes its own candidates."""
    if len({run.kernel for run in runs if run.kernel}) <= 1:
        return list(runs)
    return [
        run
        if _label(run) in run.candidate
        else replace(run, candidate=f"{run.candidate}{_label(run)}")
        for run in runs
    ]


def weaknesses(runs: Iterable[RunResult]) -> list[str]:
    """Return a sentence on the times of emulated machines, if there are any."""
    used = {accelerator(run) for run in runs}
    sentences = {"tcg": EMULATED, "tcg with --icount": COUNTED}
    return [sentence for name, sentence in sentences.items() if name in used]
