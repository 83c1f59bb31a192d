"""The results as Markdown, which is printed to a terminal as well."""

from typing import Any

from tools import OTHERS, OURS

COSTLIEST = 6
COLUMNS = {
    "ns_per_op": "time / untraced",
    "p50_ns": "median operation",
    "p99_ns": "99th percentile",
    "cpu_ns_per_op": "CPU time of the load",
}
TITLES = {tool.name: tool.title for tool in (*OURS, *OTHERS)}


def rows(header: list[str], lines: list[list[str]]) -> str:
    """Return a Markdown table whose columns line up."""
    widths = [max(len(line[i]) for line in (header, *lines)) for i in range(len(header))]

    def row(cells: list[str]) -> str:
        padded = (cell.ljust(width) for cell, width in zip(cells, widths, strict=True))
        return f"| {' | '.join(padded)} |"

    rule = "|" + "|".join("-" * (width + 2) for width in widths) + "|"
    return "\n".join([row(header), rule, *map(row, lines)])


def brief(result: dict[str, Any]) -> str:
    """Return the two tables for a README: slowdown by tool and load, and the aims."""
    loads = result["series"]
    lines = [
        [title, *(ratio(part["tools"].get(name, {}).get("ns_per_op")) for part in loads.values())]
        for name, title in TITLES.items()
        if any(name in part["tools"] for part in loads.values())
    ]
    notes = [f"{name}: {part['title']}." for name, part in loads.items()]
    header = ["time / untraced", *(name.replace("_", " ") for name in loads)]
    parts = [rows(header, lines), " ".join(notes), *unmeasured(result), aims(result)]
    return "\n\n".join([about(result["machine"]), *filter(None, parts)])


def about(machine: dict[str, Any]) -> str:
    others = machine["bpf_programs_of_others"]
    return (
        f"Linux {machine['kernel']}, {machine['cpus']} CPUs, load average before the start "
        f"{machine['load_average']:.1f}, {machine['date']}."
        + (f" {others} BPF programs of others traced meanwhile." if others else "")
    )


def unmeasured(result: dict[str, Any]) -> list[str]:
    """Return a sentence for each tool that is missing, and one for events that others lost."""
    said = [f"Not measured: {TITLES.get(k, k)}: {v}." for k, v in result["missing"].items()]
    lost = [f"{TITLES[name]} {n:,}" for name, n in result["lost"].items() if n]
    return [*said, *([f"Events lost by their own word: {'; '.join(lost)}."] if lost else [])]


def aims(result: dict[str, Any]) -> str:
    lines = [list(verdict.values()) for verdict in result["targets"]]
    return rows(["measure", "aim", "measured", ""], lines) if lines else ""


def full(result: dict[str, Any]) -> str:
    """Return every part that was measured, each with a heading."""
    parts = [about(result["machine"])]
    parts += [series(part, result["missing"]) for part in result["series"].values()]
    parts += unmeasured(result)
    if "kernel" in result:
        parts += [kernel(result["kernel"]), costliest(result["kernel"])]
    if "consumer" in result or "firehose" in result:
        parts.append(streams(result))
    if "bytes_per_call" in result.get("trace", {}):
        parts.append(trace(result["trace"]["bytes_per_call"]))
    return "\n\n".join(filter(None, [*parts, aims(result)]))


def series(part: dict[str, Any], missing: dict[str, str]) -> str:
    columns = {
        key: title
        for key, title in COLUMNS.items()
        if any(key in tool for tool in part["tools"].values())
    }
    lines = []
    for name, title in TITLES.items():
        if tool := part["tools"].get(name):
            cells = [ratio(tool.get(key)) for key in columns]
            lines.append([title, time(tool["ns_per_op"]["ns"]), *cells, str(tool["n"])])
        elif name in missing:
            lines.append([title, "does not run here", *("" for _ in columns), "0"])
    header = ["tool", "time", *columns.values(), "rounds"]
    return f"**{part['title']}**\n\n{rows(header, lines)}"


def ratio(found: dict[str, float] | None) -> str:
    if not found:
        return ""
    if found["low"] == found["high"]:
        return f"{found['median']:.2f}"
    digits = 3 if found["high"] < 3 else 1
    numbers = (f"{found[key]:.{digits}f}" for key in ("median", "low", "high"))
    return "{} ({} to {})".format(*numbers)


def time(ns: float) -> str:
    """Return a time in a unit that makes it readable."""
    for unit, size in (("ms", 1e6), ("us", 1e3)):
        if ns >= size:
            return f"{ns / size:.1f} {unit}"
    return f"{ns:.0f} ns"


def kernel(part: dict[str, Any]) -> str:
    floor = part["floor"]
    lines = []
    if "missing" not in floor:
        both = floor["sys_enter"] + floor["sys_exit"]
        lines.append(["two programs that do nothing", f"{both:.0f}", ""])
        lines.append(["one at sched_switch that does nothing", f"{floor['sched_switch']:.0f}", ""])
    for name, ns in part["rejected"].items():
        lines.append([f"a call rejected {name}", f"{ns:.0f}", ""])
    for name, found in part["traced"].items():
        by_class = found["ns_per_call"]
        rest = ", ".join(f"{kind} {ns:.0f}" for kind, ns in list(by_class.items())[1:])
        lines.append([f"a traced call, {name}", f"{by_class['system calls']:.0f}", rest])
    header = ["time in BPF programs, statistics on", "ns a call", "other programs, ns a call"]
    return rows(header, lines)


def costliest(part: dict[str, Any]) -> str:
    """Return the programs that take most of the time of an operation, by load."""
    lines = []
    for name, found in part["traced"].items():
        times = {p: t["runs"] * t["ns_per_run"] for p, t in found["programs"].items()}
        for program in sorted(times, key=times.__getitem__, reverse=True)[:COSTLIEST]:
            time = found["programs"][program]
            cells = [time["runs"] / found["ops"], time["ns_per_run"], times[program] / found["ops"]]
            lines.append([name, program, *(f"{n:,.1f}" for n in cells)])
        lines.append([name, "all", "", "", f"{found['bpf_ns_per_op']:,.1f}"])
    return rows(["load", "program", "runs an operation", "ns a run", "ns an operation"], lines)


def streams(result: dict[str, Any]) -> str:
    found = {**result.get("consumer", {})}
    if "firehose" in result:
        hose = result["firehose"]
        found[f"firehose, {hose['calls_per_s']:,.0f} calls/s"] = hose
    lines = [
        [
            name,
            f"{part['consumer_cpu_share']:.2f}",
            f"{part['consumer_ns_per_call']:.0f}",
            f"{part['ring_bytes_per_call']:.0f}",
            f"{part['ring_high_water_bytes'] / 2**20:.1f}",
            f"{part['capture_bytes_per_call']:.1f}",
            str(part["lost"]),
        ]
        for name, part in found.items()
    ]
    header = ["load", "recorder CPUs", "ns a call", "ring bytes a call", "most waiting, MiB"]
    return rows([*header, "capture bytes a call", "lost"], lines)


def trace(size: dict[str, Any]) -> str:
    tables = ", ".join(f"{name} {n:.1f}" for name, n in size["by_table"].items() if n >= 0.05)
    whole = "" if size["complete"] else " (incomplete)"
    return (
        f"Trace of the rig, {size['calls']:,} calls{whole}: {size['all_tables']:.1f} bytes a call "
        f"in all tables, {size['syscalls_and_paths']:.1f} in syscalls and paths ({tables})."
    )
