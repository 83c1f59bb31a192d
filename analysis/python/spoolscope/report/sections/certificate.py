"""The fidelity certificate of every candidate, in words and figures."""

from collections.abc import Sequence

from spoolscope.analysis.certificate import Certificate, certificates
from spoolscope.analysis.wording import count, duration, percent
from spoolscope.report.figures import concurrency as concurrency_figures
from spoolscope.report.inputs import Inputs
from spoolscope.report.page import Figure, Section, Table, TableBlock
from spoolscope.traces.goals import GOALS, Goal
from spoolscope.traces.results_certificate import Lateness, Quantiles

anchor = "certificate"
PARTS = {
    "slower_calls": "calls of the thread took longer",
    "dependencies": "calls of other threads came first",
    "machine": "the machine did not run it in time",
}
SKIPPED = {
    "unsupported": "not replayable",
    "not_a_file": "on pipes, sockets or devices",
    "used_up": "the recorded machine had no space, descriptors or memory left, or met a limit",
    "broken": "the recorded disk failed or was read-only",
    "around": "another filesystem, a mount point or a running program was in the way",
    "stand_in": "on device nodes, for which sockets stand in",
}
LOOPS = {
    "open": "Calls come when they came, however slow the target is (open loop).",
    "closed": "A thread's next call waits for the one before (closed loop).",
}


def applies(page: Inputs) -> bool:
    """Return True if a run of the replay has a certificate."""
    return bool(_certificates(page))


def make(page: Inputs) -> Section:
    """Lay out the certificates of the chosen candidates, in their order."""
    found = _certificates(page)
    blocks: list[Figure | TableBlock] = []
    for certificate in found:
        blocks += [_goals(certificate), _numbers(certificate)]
    return Section(
        anchor,
        "Certificate",
        "How far each replay can be trusted",
        "What was kept of the recording, and what was not: the least faithful run of each "
        "candidate. Lateness is taken apart, so that a slow target is not mistaken for a "
        "machine that could not keep up.",
        [*blocks, _figure(found, page.chosen)],
    )


def _certificates(page: Inputs) -> list[Certificate]:
    if page.found is None:
        return []
    runs = [run for run in page.found.replay.runs if run.candidate in page.chosen]
    return sorted(certificates(runs), key=lambda one: page.chosen.index(one.candidate))


def _goals(found: Certificate) -> TableBlock:
    rows = [
        [GOALS[one.name].meaning, _shown(GOALS[one.name], one.value),
         _shown(GOALS[one.name], one.limit), _answer(one.met)]
        for one in found.data.goals if one.name in GOALS
    ]  # fmt: skip
    of = f" ({found.faithful} of {found.rounds} runs are faithful)" if found.rounds > 1 else ""
    said = " ".join(sentence[:1].upper() + sentence[1:] for sentence in found.sentences)
    priority = ", real-time priority" if found.data.realtime else ""
    return TableBlock(
        f"{found.candidate}: {found.verdict}{of}",
        ["what", ">measured", ">goal, at most", "met"],
        rows,
        f"{said} Pace {found.data.pace}{priority}. {LOOPS[found.data.loop]} Makespan and "
        "calls in flight are goals on the recorded type of filesystem only: elsewhere they are "
        "results.",
    )


def _numbers(found: Certificate) -> TableBlock:
    data = found.data
    late, calls = data.lateness, data.calls
    rows = []
    if late:
        rows.append(["lateness of a call", "", *_quantiles(late)])
        rows += [
            [f"of it: {PARTS[name]}", percent(part.share), *_quantiles(part)]
            for name, part in late.parts.items()
        ]
    left_out = (
        f"{count(calls.executed)} of {count(calls.recorded)} recorded calls were executed, "
        f"{count(calls.diverged)} with another result; {count(calls.skipped)} were skipped"
        f"{_why_skipped(calls.skipped_for)}, "
        f"{count(calls.never_reached)} not reached, {count(calls.never_returned)} had not "
        f"returned when the recording ended, {count(calls.of_unknown_threads)} are of threads "
        f"it does not know, {count(calls.elsewhere)} are on other filesystems mounted "
        f"below the spool; {count(calls.reconstructed)} are reconstructed, "
        f"{count(calls.before_start)} returned before the snapshot that the replay "
        "begins with, "
        f"{count(calls.left_out_on_purpose)} were left out on purpose."
    )
    return TableBlock(
        f"{found.candidate}: lateness",
        ["what", ">share", ">p50", ">p90", ">p99", ">longest"],
        rows,
        f"{_lateness_caption(late)}{left_out} The CPUs were {percent(data.cpu_idle)} idle.",
    )


def _why_skipped(numbers: dict[str, int]) -> str:
    said = ", ".join(f"{count(n)}: {SKIPPED.get(why, why)}" for why, n in numbers.items())
    return f" ({said})" if said else ""


def _lateness_caption(late: Lateness | None) -> str:
    if not late:
        return "There was no schedule to be late for. "
    return (
        f"{count(late.calls)} calls, {count(late.over_1ms)} over 1 ms late, "
        f"{count(late.over_1ms_by_machine)} by the machine alone. The parts of each call add "
        "up to its lateness exactly. "
    )


def _quantiles(of: Quantiles) -> list[str]:
    return [duration(ns) for ns in (of.p50_ns, of.p90_ns, of.p99_ns, of.max_ns)]


def _figure(found: Sequence[Certificate], order: Sequence[str]) -> Figure:
    flights = {c.candidate: c.data.in_flight for c in found}
    rows = [
        [name, f"{flight.recorded_mean:.3f}", f"{flight.replayed_mean:.3f}",
         f"{flight.recorded_max}", f"{flight.replayed_max}", f"{flight.emd:.3f}",
         percent(flight.emd_by_mean, 2)]
        for name, flight in flights.items()
    ]  # fmt: skip
    width = max(flight.bin_ns for flight in flights.values())
    return Figure(
        key="in-flight",
        title="Calls in flight over time",
        finding="Calls in flight, recorded and replayed: "
        + "; ".join(
            f"{name} {flight.recorded_mean:.2f} and {flight.replayed_mean:.2f}"
            for name, flight in flights.items()
        ),
        caption=f"Mean per {duration(width)}, each from its own first call. The distance is the "
        "earth mover's, in calls, of the shares of time with 0, 1, 2, ... calls in flight.",
        table=Table(
            ["on", ">recorded mean", ">replayed mean", ">recorded most", ">replayed most",
             ">distance", ">by mean"],
            rows,
        ),
        plot=concurrency_figures.in_flight(flights, order),
    )  # fmt: skip


def _shown(goal: Goal, value: float | None) -> str:
    if value is None:
        return "-"
    match goal.unit:
        case "names":
            return count(int(value))
        case "ppm":
            return percent(value / 1e6, 3)
        case "ns":
            return duration(value)
        case _:
            return percent(value, 2)


def _answer(met: bool | None) -> str:  # noqa: FBT001
    return {True: "yes", False: "no", None: "does not apply"}[met]
