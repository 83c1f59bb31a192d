"""spoolscope explain: split every call's time by cause."""

from collections.abc import Iterable, Mapping
from contextlib import nullcontext
from pathlib import Path
from shlex import quote
from typing import TYPE_CHECKING

import click

from spoolscope.cli.blame import blame_lines
from spoolscope.cli.callers import caller_lines
from spoolscope.cli.names import marked, named, names_lines, names_options
from spoolscope.cli.output import (
    AT_LENGTH_S,
    claim_output,
    emit_json,
    force_option,
    json_option,
    next_line,
    progress,
    quiet_option,
    wrapped,
)
from spoolscope.cli.printing import say
from spoolscope.cli.selecting import selected, selection_options
from spoolscope.cli.user_code import user_code_lines
from spoolscope.traces.errors import INCOMPLETE
from spoolscope.traces.trace import Trace

if TYPE_CHECKING:
    from spoolscope.analysis.explain import Explanation
    from spoolscope.analysis.insights import Insight
    from spoolscope.analysis.selection import Selection

TOP_CALLS = 14
TOP_DIRECTORIES = 5
TOP_CLASSES = 8
TOP_ASKERS = 4
BAR = 24
NO_CALL = (
    "No call touched the spool: see that --spool named the right directory, and that",
    "programs used it meanwhile.",
    "Next: sudo spoolscope record --spool MOUNT -d 60s",
)


@click.command("explain", epilog="Example: spoolscope explain mail.trace --blame")
@click.argument("trace", type=click.Path(path_type=Path))
@json_option
@click.option("--unknown", is_flag=True, help="List the stacks that no rule knows.")
@click.option(
    "--blame",
    is_flag=True,
    help="Say what made the journal work, and which process kept which waiting.",
)
@click.option(
    "--edges",
    type=click.Path(path_type=Path, dir_okay=False),
    help="Write which process kept which waiting, wait by wait (Parquet).",
)
@click.option(
    "--rules",
    type=click.Path(path_type=Path),
    help="More rules (TOML); they come before the shipped ones.",
)
@force_option
@names_options
@selection_options
@quiet_option
def command(
    trace: Path,
    as_json: bool,
    unknown: bool,
    blame: bool,
    edges: Path | None,
    rules: Path | None,
    force: bool,
    names: bool,
    key_file: Path | None,
    only: tuple[str, ...],
    but: tuple[str, ...],
    part: str | None,
    quiet: bool,
) -> int:
    """Split the time of every call in TRACE by cause.

    The parts of each call add up to its length exactly. Time that no rule can
    name is called unexplained; --unknown lists where it was spent.

    With --only, --except and --slice all times and shares are of the calls
    shown; those that kept them waiting may be among the others.
    """
    from spoolscope.analysis.disk_traces import is_disk_trace
    from spoolscope.analysis.explain import explain
    from spoolscope.analysis.stack_rules import load_rules

    selection = selected(only, but, part)
    opened = named(Trace.open(trace), key_file, wanted=names)
    if is_disk_trace(opened):
        return _explain_disks(opened, selection, key_file, as_json=as_json)
    claimed = claim_output(edges, force=force, inputs=[trace]) if edges else nullcontext()
    with claimed, progress(quiet=quiet, after_s=AT_LENGTH_S) as show:
        found = explain(
            opened,
            load_rules(rules),
            blame=blame,
            edges=edges,
            selection=selection,
            progress=show,
        )
    if as_json:
        emit_json(marked(found.to_json(), opened))
    else:
        said = names_lines(opened, key_file)
        if _is_idle(found):
            say(*_head(found), *NO_CALL)
            return INCOMPLETE if found.remarks else 0
        lines = [
            *_frozen(found),
            *_insights(found),
            *_head(found),
            *_causes(found),
            *_cpu(found),
            *_calls(found),
        ]
        lines += [
            *caller_lines(found),
            *user_code_lines(found.user_code),
            *_commits(found),
            *(blame_lines(found) if blame else ()),
        ]
        lines += [*_unknown(found)] if unknown else []
        lines += ["", f"Wrote {edges}"] if edges is not None else []
        say(*lines, *_tail(found, trace, said))
    partial = found.remarks or found.split.sum_error_ns
    return INCOMPLETE if partial else 0


def _explain_disks(
    trace: Trace, selection: "Selection", key_file: Path | None, *, as_json: bool
) -> int:
    """Print the analysis of a trace of disks alone; return the exit code."""
    from spoolscope.analysis.disk_traces import study_disks
    from spoolscope.cli.disks import disk_lines

    found = study_disks(trace, selection)
    if as_json:
        emit_json(marked({"trace": str(trace.path), **found.to_json()}, trace))
    else:
        say(*disk_lines(found), *names_lines(trace, key_file))
        say(next_line(f"spoolscope report {quote(str(trace.path))}"))
    return 0 if trace.meta.get("complete") else INCOMPLETE


def _is_idle(found: "Explanation") -> bool:
    """Return whether nothing happened that could be explained."""
    seen = found.n_calls or found.frozen or found.insights
    return not seen and found.selection.is_whole


def _frozen(found: "Explanation") -> Iterable[str]:
    if found.frozen is not None:
        yield from wrapped(found.frozen.sentence)
        yield ""


def _insights(found: "Explanation") -> Iterable[str]:
    for insight in found.insights:
        yield from insight_lines(insight)
    if found.insights:
        yield ""


def insight_lines(insight: "Insight") -> list[str]:
    """Return culprit, mechanism, remedy and price of an insight in eight lines or fewer."""
    return [
        *wrapped(f"* {insight.culprit} {insight.mechanism} ({insight.stake})."),
        *wrapped(f"Try: {insight.remedy}", indent="  "),
        *wrapped(f"Price: {insight.price}", indent="  "),
    ]


def _head(found: "Explanation") -> Iterable[str]:
    from spoolscope.analysis.wording import count, duration

    spools = ", ".join(s.get("fstype", "?") for s in found.meta.get("spools", [])) or "?"
    recorded = duration(found.meta.get("duration_ns"))
    state = "complete" if found.meta.get("complete") else "NOT complete"
    if not found.selection.is_whole:
        yield from wrapped(f"Shown: {found.selection.label}; shares are of these.")
    yield f"{count(found.n_calls)} calls, {duration(found.latency_ns)} in calls"
    if measured := found.evidence.measurement_ns:
        yield f"of which {duration(measured)} waiting for a CPU that this recording had"
    if found.between_programs_ns:
        waited = duration(found.between_programs_ns)
        yield f"of which {waited} waiting for other programs: file locks, vfork (no share below)"
    yield f"recorded {recorded} on {spools}, tier {found.meta.get('tier', '?')}, {state}"
    for remark in found.remarks:
        yield from wrapped(f"Partial: {remark}")


def _causes(found: "Explanation") -> Iterable[str]:
    from spoolscope.analysis.causes import CAUSES, charged
    from spoolscope.analysis.wording import duration, percent

    yield ""
    yield "Where the time went"
    for cause, ns in sorted(charged(found.causes).items(), key=lambda item: -item[1]):
        share = ns / found.filesystem_ns
        label = CAUSES[cause].label
        bar = "#" * round(BAR * share)
        yield f"  {label:<18}{duration(ns):>10}{percent(share):>10}  {bar}".rstrip()


def _cpu(found: "Explanation") -> Iterable[str]:
    from spoolscope.analysis.cpu import CPU_CLASSES
    from spoolscope.analysis.wording import count, duration

    if not found.cpu or not found.cpu.samples:
        return
    yield ""
    yield f"On the CPU, by {count(found.cpu.samples)} samples (95 % interval of the share)"
    if not found.cpu.agrees:
        far = f"{100 * found.cpu.deviation:+.0f} %"
        yield f"  {far} against the exact time: other tracing or a busy host disturbed them"
    for part in found.cpu.classes[:TOP_CLASSES]:
        interval = f"({100 * part.low:.1f} to {100 * part.high:.1f})"
        label = CPU_CLASSES[part.name].label
        yield f"  {label:<18}{duration(part.ns):>10}{100 * part.share:>8.1f} %  {interval}"


def _calls(found: "Explanation") -> Iterable[str]:
    from spoolscope.analysis.wording import count, duration

    yield ""
    yield "By call"
    yield f"  {'call':<16}{'n':>9}{'total':>9}{'p50':>9}{'p99':>9}  mostly, of its total"
    for name, call in list(found.by_syscall.items())[:TOP_CALLS]:
        t = call.latency
        times = "".join(f"{duration(ns):>9}" for ns in (t.total_ns, t.p50_ns, t.p99_ns))
        yield f"  {name:<16}{count(t.n):>9}{times}  {_mostly(call.causes, t.total_ns)}"
    if (hidden := len(found.by_syscall) - TOP_CALLS) > 0:
        yield f"  and {hidden} more calls (--json has all)"
    if any(call.latency.p99_ns is None for call in list(found.by_syscall.values())[:TOP_CALLS]):
        yield "  - stands for too few calls (p50 needs 20, p99 1,000)"


def _mostly(causes: Mapping[str, int], total: int) -> str:
    from spoolscope.analysis.causes import CAUSES

    cause, ns = max(causes.items(), key=lambda item: item[1], default=("cpu", 0))
    return f"{CAUSES[cause].label} {100 * ns / total:.0f} %" if total else ""


def _commits(found: "Explanation") -> Iterable[str]:
    from spoolscope.analysis.commit_parts import part_label
    from spoolscope.analysis.wording import count, duration, percent

    commits = found.commits
    if not commits.n:
        yield ""
        seen = found.commits_recorded
        yield "There were no journal commits." if seen else "Journal commits were not recorded."
        return
    share = percent(commits.trigger_named / commits.n)
    yield ""
    yield f"Commits: {count(commits.n)}, trigger named for {share}"
    for kind in commits.kinds:
        middle, longest = duration(kind.p50_ns or None), duration(kind.max_ns or None)
        yield f"  {kind.kind:<18}{count(kind.n):>9}  median {middle}, longest {longest}"
    yield from wrapped(_asked_by(found), indent="  ")
    for fstype, parts in commits.waits.items():
        total = sum(parts.values())
        said = (f"{part_label(part)} {duration(ns)}" for part, ns in _largest(parts))
        text = f"Waits for commits of {fstype}, {duration(total)}: {', '.join(said)}"
        yield from wrapped(text, indent="  ")


def _asked_by(found: "Explanation") -> str:
    from spoolscope.analysis.wording import count, percent

    programs = found.askers.programs[:TOP_ASKERS]
    said = [f"{a.who} {count(a.n)} ({percent(a.n / a.n_commits)} of them)" for a in programs]
    more = ["others"] if found.askers.n_programs > len(programs) else []
    return f"Asked for by {', '.join([*said, *more])}" if said else "Asked for by no known process"


def _largest(parts: Mapping[str, int]) -> list[tuple[str, int]]:
    return sorted(((part, ns) for part, ns in parts.items() if ns), key=lambda item: -item[1])


def _lookups(found: "Explanation") -> Iterable[str]:
    from spoolscope.analysis.lookups import worth_saying

    if said := worth_saying(found.lookups):
        yield ""
        yield "Directories"
    for sentence in said[:TOP_DIRECTORIES]:
        yield from wrapped(sentence, indent="  ")


def _unknown(found: "Explanation") -> Iterable[str]:
    from spoolscope.analysis.wording import duration, percent

    yield ""
    yield "Stacks without a rule"
    for stack in found.unknown:
        calls = ", ".join(stack.syscalls[:4])
        head = f"{duration(stack.ns)} ({percent(stack.share, 2)} of blocked) in {stack.n} waits"
        yield from wrapped(f"{head}: {calls}", indent="  ")
        yield from wrapped(" < ".join(stack.frames) or "(no stack recorded)", indent="    ")
    if found.unknown:
        yield "  Name one in a file given with --rules, one line in the list rules = [...]:"
        yield f"    {found.unknown[0].rule}"
    else:
        yield "  none"


def _tail(found: "Explanation", trace: Path, said: list[str]) -> Iterable[str]:
    from spoolscope.analysis.wording import duration, percent

    error = found.split.sum_error_ns
    exact = "exactly" if error == 0 else f"NOT: largest error {error:,} ns"
    yield ""
    yield f"The parts of every call add up {exact}."
    blocked, named = duration(found.split.blocked_ns), percent(found.named_share, 2)
    yield f"Blocked {blocked}, of which {named} has a named cause."
    yield from said
    yield next_line(f"spoolscope report {quote(str(trace))}")
