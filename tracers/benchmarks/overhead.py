"""What recording costs, beside strace, perf and bpftrace, on this machine.

All tools run in one interleaved series, in random order within each round; a figure is the median
of the ratios to the untraced run of the same round, with the order-statistic interval around it.
Needs root, mkfs.ext4 and cc; a tool or server that is missing is named with its reason.
"""

import argparse
import json
import sys
from contextlib import ExitStack
from typing import Any

import kernel_time
import rig
import stream
import table
import targets
from series import RIG_TITLE, Series, ahead_of_others, machine, say
from tools import OTHERS, OURS, UnusableError, lost_events
from workloads import WORKLOADS, Ground, ground

LOADS = {load.name: load for load in WORKLOADS}
PARTS = (*LOADS, "rig", "kernel", "consumer", "firehose", "trace")
MESSAGES = 150


def main() -> None:
    options = parse()
    began = machine()
    with ahead_of_others(), ground() as place:
        result = {"machine": began, **measure(place, options)}
    result["targets"] = targets.judge(result)
    if options.json:
        json.dump(result, sys.stdout, indent=2)
    else:
        print(table.brief(result) if options.markdown else table.full(result))


def parse() -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--rounds", type=int, default=12, help="of the cheap tools; default 12")
    parser.add_argument(
        "--quick", action="store_true", help="a smoke test: the figures mean nothing"
    )
    parser.add_argument("--duration", type=float, default=30, help="of the firehose, s; default 30")
    parser.add_argument("--only", action="append", choices=PARTS, help="this part; may be repeated")
    parser.add_argument("--ours", action="store_true", help="without the other tools")
    parser.add_argument("--json", action="store_true", help="all figures, not the tables")
    parser.add_argument("--markdown", action="store_true", help="only the tables for a README")
    options = parser.parse_args()
    options.parts = options.only or PARTS
    options.scale = 1.0
    if options.quick:
        options.rounds, options.scale, options.duration = 1, 0.1, 0.5
    return options


def measure(place: Ground, options: argparse.Namespace) -> dict[str, Any]:
    """Measure every part that was asked for."""
    parts, scale = options.parts, options.scale
    result: dict[str, Any] = {}
    series = Series(OURS if options.ours else (*OURS, *OTHERS), options.rounds, scale)
    if loads := [load for name, load in LOADS.items() if name in parts]:
        series.on_loads(place, loads)
    if "rig" in parts or "trace" in parts:
        on_rig(place, options, series, result)
    titles = {load.name: load.title for load in WORKLOADS}
    titles["rig"] = RIG_TITLE.format(messages(scale))
    result |= {"series": series.summary(titles), "missing": series.missing, "lost": lost_events()}
    if "kernel" in parts:
        say("time in the kernel")
        result["kernel"] = kernel_time.measure(place, LOADS, scale / 2)
    if "consumer" in parts:
        say("consumer")
        names = ("delivery", "metadata")
        result["consumer"] = {name: stream.measure(place, LOADS[name], scale) for name in names}
    if "firehose" in parts:
        say(f"firehose, {options.duration:g} s")
        result["firehose"] = stream.firehose(place, options.duration)
    return result


def messages(scale: float) -> int:
    return max(5, round(MESSAGES * scale))


def on_rig(
    place: Ground, options: argparse.Namespace, series: Series, result: dict[str, Any]
) -> None:
    """Run the parts that need the mail servers, or note why there are none."""
    with ExitStack() as cleanup:
        try:
            servers = cleanup.enter_context(rig.rig(place.work))
            if "rig" in options.parts:
                rounds = max(1, options.rounds // 3)
                series.on_rig(place.work, servers, rounds, messages(options.scale))
            if "trace" in options.parts:
                say("trace of the rig")
                seconds = max(3.0, 15 * options.scale)
                size = servers.trace_size(place.work, seconds)
                result["trace"] = {"bytes_per_call": size}
        except UnusableError as error:
            series.missing["rig"] = str(error)


if __name__ == "__main__":
    main()
