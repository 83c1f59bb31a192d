"""The certificate of a run, part of the format of ``results``."""

from dataclasses import dataclass

from spoolscope.traces.typed_json import part


@dataclass(frozen=True, kw_only=True)
class Quantiles:
    """Quantiles of a time; null where there is nothing to count."""

    p50_ns: int | None = part("Median.", "ns")
    p90_ns: int | None = part("90 % are at most this.", "ns")
    p99_ns: int | None = part("99 % are at most this.", "ns")
    max_ns: int | None = part("The longest.", "ns")


@dataclass(frozen=True, kw_only=True)
class LatePart(Quantiles):
    """One of the three parts that the lateness of every call is the sum of."""

    ns: int = part("Sum over all calls.", "ns")
    share: float = part("Of all lateness; 1 is all.")


@dataclass(frozen=True, kw_only=True)
class IdleWhen(Quantiles):
    """The time in which tasks did not run although nothing was in their way."""

    calls: int = part("Calls of this kind.")


@dataclass(frozen=True, kw_only=True)
class Stall:
    """The longest time that a task was not run although nothing was in its way."""

    ns: int = part("Its length.", "ns")
    due_ns: int = part("When the call was due, since the start.", "ns")


@dataclass(frozen=True, kw_only=True)
class Lateness(Quantiles):
    """The lateness of calls, and its reasons."""

    calls: int = part("Calls that were made.")
    over_1ms: int = part("Calls over 1 ms late.")
    over_1ms_by_machine: int = part("Calls that the machine alone made over 1 ms late.")
    parts: dict[str, LatePart] = part(
        "slower_calls: calls of the thread took longer; dependencies: calls of other threads had "
        "to end first; machine: the machine, or the replayer, did not run the task in time."
    )
    idle_when: dict[str, IdleWhen] = part(
        "The machine's own part by what came before: after_sleep, after_waiting (for a call of "
        "another thread), between_calls.",
        default_factory=dict,
    )
    drift_ppm: float | None = part(
        "Slope of lateness over time; null if the run is too short.", "1e-6"
    )
    longest_stall: Stall | None = part("Null if there was none.", default=None)


@dataclass(frozen=True, kw_only=True)
class Calls:
    """Recorded calls by what became of them."""

    recorded: int = part("Calls of the trace that are asked for.")
    before_start: int = part("Calls before the snapshot that the replay begins with.", default=0)
    executed: int = part("Calls made for real.")
    same: int = part("Calls with the recorded result.")
    diverged: int = part("Calls with another result.")
    of_filesystem: int = part(
        "Calls with another result that is a documented difference of the filesystem, or follows "
        "from one.",
        default=0,
    )
    skipped: int = part("Calls of the plan that were not made.")
    skipped_for: dict[str, int] = part("The same by reason.", default_factory=dict)
    never_reached: int = part("Calls of the plan whose turn did not come.")
    never_returned: int = part("Calls that had not returned when the recording ended.")
    of_unknown_threads: int = part("Calls of threads that the trace does not know.")
    elsewhere: int = part("Calls on other filesystems mounted below the spool.", default=0)
    left_out_on_purpose: int = part("Calls left out by a what-if.")
    reconstructed: int = part("Calls in no record that bring about what was so at the start.")


@dataclass(frozen=True, kw_only=True)
class Judged:
    """A number of the run beside the limit of its goal."""

    name: str = part("Name of the goal.")
    value: float | None = part("What was measured; null if it does not apply.")
    limit: float = part("Largest absolute value that meets the goal.")
    met: bool | None = part("Null where the goal does not apply.")


@dataclass(frozen=True, kw_only=True)
class Makespan:
    """From the first issue to the last end."""

    recorded_ns: int = part("In the recording.", "ns")
    replayed_ns: int = part("In the run.", "ns")
    error: float | None = part("Relative difference to the schedule; null without one.")


@dataclass(frozen=True, kw_only=True)
class InFlight:
    """Calls in flight in the recording and in the run."""

    recorded_mean: float = part("Mean over time, in the recording.", "calls")
    replayed_mean: float = part("Mean over time, in the run.", "calls")
    recorded_max: int = part("Most at once, in the recording.", "calls")
    replayed_max: int = part("Most at once, in the run.", "calls")
    emd: float = part("Earth mover's distance of the two distributions.", "calls")
    emd_by_mean: float | None = part("The same by the recorded mean; null if that is 0.")
    bin_ns: int = part("Width of a bin of the next two.", "ns")
    recorded: list[float] = part("Mean of each bin, in the recording.", "calls")
    replayed: list[float] = part("Mean of each bin, in the run.", "calls")


@dataclass(frozen=True, kw_only=True)
class Certificate:
    """The faithfulness of a run to its recording."""

    verdict: str = part(
        "faithful: every goal that applies was met; unfaithful: one was not; untimed: no time was "
        "to be kept."
    )
    reasons: list[str] = part("Why it is not faithful, a sentence without a full stop each.")
    pace: str = part("How calls were timed.")
    loop: str = part("open: calls come when they came; closed: after the one before.")
    realtime: bool = part("Tasks had real-time priority.")
    same_filesystem: bool = part("The filesystem is of the recorded type.")
    calls: Calls = part("Recorded calls by what became of them.")
    goals: list[Judged] = part("Every goal with its number.")
    lateness: Lateness | None = part("Null without a schedule.")
    makespan: Makespan = part("From the first issue to the last end.")
    in_flight: InFlight = part("Calls in flight.")
    cpu_idle: float | None = part("Share of the CPUs' time; null unknown.", default=None)
    cpu_steal: float | None = part("Share that the host took; null unknown.", default=None)
