"""Commands that repeat replays with more rounds, under the same conditions."""

import shlex
from collections.abc import Sequence
from dataclasses import replace

from spoolscope.analysis.conditions import ORIGINAL, Conditions
from spoolscope.analysis.guests import age_of_kernel, base_name, series
from spoolscope.analysis.outcomes import Replay, Run
from spoolscope.traces.results import RunResult

HALF = "scaled=0.5"


def more_rounds(
    replay: Replay, wanted: Sequence[str], rounds: int, *, late: bool, undecided: Sequence[str] = ()
) -> str | None:
    """Return a command for some candidates, and one more for each different what-if.

    Args:
        replay: The compared replays.
        wanted: Candidates that the command must have; None is returned if one cannot be had.
        rounds: Number of rounds for the command.
        undecided: Other candidates that more rounds may distinguish from these.
        late: The machine could not keep the pace; instead of the recorded pace, half of it is
            tried.
    """
    made = replay.conditions
    if late and made.pace == ORIGINAL:
        made = replace(made, pace=HALF)
    groups: dict[tuple[str, ...], dict[str, str]] = {}
    for run in replay.runs:
        # Replays of earlier versions do not store the options of their what-if.
        options = run.result.what_if.options if run.result.what_if else []
        if options is not None and run.candidate in (*wanted, *undecided):
            groups.setdefault(tuple(options), {})[run.candidate] = _asked_for(run.result)
    if not set(wanted) <= {name for names in groups.values() for name in names}:
        return None
    trace = str(replay.trace.path) if replay.trace else "TRACE"
    booted = dict.fromkeys(series(run.result) for run in sorted(replay.runs, key=_age))
    machines = [word for kernel in booted if kernel for word in ("--vm", kernel)]
    machines += ["--icount"] if "icount" in made.accelerator else []
    return "; ".join(
        _command(
            trace,
            list(dict.fromkeys(names.values())),
            [*made.options(), *machines, *options],
            rounds,
            made,
        )
        + f" -o OUT{number if len(groups) > 1 else ''}"
        for number, (options, names) in enumerate(groups.items(), 1)
    )


def _age(run: Run) -> list[int]:
    return age_of_kernel(run.result)


def _asked_for(run: RunResult) -> str:
    """Return a candidate as it was given to ``--on``, without the label of the what-if."""
    name = base_name(run)
    return name.removesuffix(f" {run.what_if.label}") if run.what_if else name


def _command(
    trace: str, on: Sequence[str], options: Sequence[str], rounds: int, made: Conditions
) -> str:
    words = [word for name in on for word in ("--on", name)]
    images = any(not name.startswith("dir:") for name in on)
    # An image is mounted; a recording needs BPF.
    root = ["sudo"] if images or made.recorded else []
    words = [*root, "spoolscope", "replay", trace, *words, *options, "--rounds", str(rounds)]
    return shlex.join(words)
