"""The aims, and the verdicts on them."""

from dataclasses import asdict, dataclass, replace
from typing import Any

from tools import SPOOLSCOPE, STRACE

ENOUGH = 0.9  # probability that the interval holds the true median
DISTURBED = 0.5  # calls of others for each call of the load
PART_OF_STRACE = 30
REACHED, MISSED, OPEN = "reached", "not reached", "undecided"


@dataclass(frozen=True)
class Verdict:
    """One aim.

    Attributes:
        what: The measure and its unit.
        aim: As text.
        measured: As text, with its spread if it has one.
        verdict: reached, not reached, or undecided when the interval holds the aim.
    """

    what: str
    aim: str
    measured: str
    verdict: str


def slowdown(what: str, aim: float, result: dict[str, Any]) -> Verdict:
    """Judge a ratio by its whole interval, in percent; undecided after too few rounds."""
    low, middle, high = (100 * (result[key] - 1) for key in ("low", "median", "high"))
    verdict = REACHED if high <= aim else MISSED if low > aim else OPEN
    if result["coverage"] < ENOUGH:
        verdict = OPEN
    measured = f"{middle:+.1f} % ({low:+.1f} to {high:+.1f})"
    return Verdict(what, f"at most {aim:g} %", measured, verdict)


def at_most(what: str, aim: float, value: float, unit: str) -> Verdict:
    verdict = REACHED if value <= aim else MISSED
    return Verdict(what, f"at most {aim:g} {unit}", f"{value:.1f} {unit}", verdict)


def judge(result: dict[str, Any]) -> list[dict[str, str]]:
    """Return the verdict on every aim whose measure was taken."""
    series, kernel = result.get("series", {}), result.get("kernel")
    verdicts = [*of_series(series), *of_kernel(kernel)]
    if "bytes_per_call" in (trace := result.get("trace", {})):
        size = trace["bytes_per_call"]["all_tables"]
        verdicts.append(at_most("Parquet on the rig, all tables", 10, size, "bytes a call"))
    if hose := result.get("firehose"):
        verdicts += of_firehose(hose)
    return [asdict(verdict) for verdict in verdicts]


def of_series(series: dict[str, Any]) -> list[Verdict]:
    verdicts = []
    for name, aim in (("delivery", 1.0), ("metadata", 10.0), ("metadata_all", 10.0)):
        tools = series.get(name, {}).get("tools", {})
        if SPOOLSCOPE not in tools:
            continue
        title = f"slowdown: {series[name]['title']}"
        verdicts.append(slowdown(title, aim, tools[SPOOLSCOPE]["ns_per_op"]))
        if name == "delivery":
            what = "CPU time added to a delivery, by its median time"
            verdicts.append(slowdown(what, aim, tools[SPOOLSCOPE]["cpu_added"]))
        if name == "metadata" and STRACE in tools:
            verdicts.append(by_strace(*(tools[t]["ns_per_op"] for t in (SPOOLSCOPE, STRACE))))
    return verdicts


def by_strace(ours: dict[str, float], theirs: dict[str, float]) -> Verdict:
    """Judge the added time relative to strace's; undecided if the intervals allow both."""
    verdict = OPEN
    if ours["high"] - 1 <= (theirs["low"] - 1) / PART_OF_STRACE:
        verdict = REACHED
    elif ours["low"] - 1 > (theirs["high"] - 1) / PART_OF_STRACE:
        verdict = MISSED
    added, by_them = ours["median"] - 1, theirs["median"] - 1
    measured = f"1/{by_them / added:.0f}" if added > 0 else "nothing added"
    return Verdict("added time there, by strace's", "at most 1/30", measured, verdict)


def of_kernel(kernel: dict[str, Any] | None) -> list[Verdict]:
    if not kernel:
        return []
    verdicts = []
    for name, part in kernel["traced"].items():
        what = f"in the kernel, a traced call ({name})"
        verdict = at_most(what, 250, part["ns_per_call"]["system calls"], "ns")
        verdicts.append(if_quiet(verdict, part))
    delivery = kernel["traced"]["delivery"]
    spent, median = delivery["bpf_ns_per_op"], delivery["median_op_ns"]
    measured = f"{100 * spent / median:.1f} % ({spent / 1e3:.0f} us of {median / 1e6:.2f} ms)"
    found = REACHED if spent <= 0.01 * median else MISSED
    what = "all BPF programs during a delivery, by its median time"
    verdicts.append(if_quiet(Verdict(what, "at most 1 %", measured, found), delivery))
    for name, ns in kernel["rejected"].items():
        verdicts.append(at_most(f"in the kernel, a call rejected {name}", 120, ns, "ns"))
    return verdicts


def if_quiet(verdict: Verdict, part: dict[str, Any]) -> Verdict:
    """Return the verdict, undecided if other programs made too many calls meanwhile."""
    others = part["others_by_own_calls"]
    if others <= DISTURBED:
        return verdict
    said = f"{verdict.measured}, but {others:.1f} calls of others for each"
    return replace(verdict, measured=said, verdict=OPEN)


def of_firehose(hose: dict[str, Any]) -> list[Verdict]:
    rate, wanted = hose["calls_per_s"], hose["wanted_calls_per_s"]
    lost = hose["lost"] + hose["unaccounted"]
    fast = rate >= 0.99 * wanted
    plain = hose["untraced_calls_per_s"]
    measured = f"{lost:,} of {hose['calls']:,} at {rate:,.0f} calls/s (untraced {plain:,.0f})"
    verdict = MISSED if lost else REACHED if fast else OPEN
    what = f"firehose of {hose['seconds']:.0f} s"
    return [Verdict(what, f"none lost at {wanted:,} calls/s", measured, verdict)]
