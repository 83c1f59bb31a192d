"""Stages whose tables the report lays out: processes, and bins of time."""

from spoolscope.analysis.bins import LEVELS_A_DECADE, MARKS, SLOWEST, in_bins
from spoolscope.analysis.causes import MACHINE
from spoolscope.analysis.stage import CAUSE, FROM, TO, Made, Stage, Work, columns

_BIN = ("", "Number of the bin, from 0 (bin_lengths).")
_PART = ("", "Number of the process, or of several (process_parts).")


def _bins(work: Work) -> None:
    in_bins(work.con, work.meta)


REPORT_STAGES: tuple[Stage, ...] = (
    Stage(
        "bins",
        ("shown_calls", "waited", "named_waits", "commit_spans", "services", "paths"),
        (
            Made(
                "process_parts",
                "one process, and the part of the report that it belongs to",
                columns(
                    ("syscalls",),
                    "pid name part",
                    name=("", "Program and process, or number of processes."),
                    part=("", "Number of that name."),
                ),
            ),
            Made(
                "bin_lengths",
                "the bins of the recording",
                columns(
                    (),
                    "start_ns bin_ns n",
                    start_ns=("ns", "Start of the first, since the epoch."),
                    bin_ns=("ns", "Length of each."),
                    n=("", "Number of bins."),
                ),
            ),
            Made(
                "bin_calls",
                "calls of one name and length that a process began in one bin",
                columns(
                    ("syscalls",),
                    f"bin part syscall level n {' '.join(f'{cause}_ns' for cause in MACHINE)}",
                    bin=_BIN,
                    part=_PART,
                    level=(
                        "",
                        f"k: from 10^(k/{LEVELS_A_DECADE}) to 10^((k+1)/{LEVELS_A_DECADE}) ns.",
                    ),
                    n=("", "Calls."),
                    **{
                        f"{cause}_ns": ("ns", "Time that went into this cause.")
                        for cause in MACHINE
                    },
                ),
            ),
            Made(
                "bin_times",
                "the time of one kind of call of a process begun in one bin, by cause",
                columns(
                    ("syscalls",),
                    "bin part syscall cause ns",
                    bin=_BIN,
                    part=_PART,
                    cause=CAUSE,
                    ns=("ns", "Time."),
                ),
            ),
            Made(
                "bin_slowest",
                f"one of the {SLOWEST} slowest calls begun in one bin",
                columns(
                    ("syscalls",), "bin tid seq ts_ns comm pid syscall path_id dur_ns", bin=_BIN
                ),
            ),
            Made(
                "marks",
                "one event on the time axis",
                columns(
                    (),
                    "mark from_ns to_ns",
                    mark=("", f"{', '.join(MARKS)}."),
                    from_ns=FROM,
                    to_ns=TO,
                ),
            ),
        ),
        _bins,
    ),
)
