"""spoolscope explain: split every call's time by cause."""

from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING

import click

from spoolscope.cli.output import emit_json, json_option
from spoolscope.traces.errors import INCOMPLETE

if TYPE_CHECKING:
    from spoolscope.analysis.explain import Explanation

TOP_CALLS = 14
BAR = 24


@click.command("explain", epilog="Example: spoolscope explain mail.trace --blame")
@click.argument("trace", type=click.Path(path_type=Path))
@json_option
@click.option("--unknown", is_flag=True, help="List the stacks that no rule knows.")
@click.option("--blame", is_flag=True, help="Charge journal commits to what caused them.")
@click.option(
    "--rules",
    type=click.Path(path_type=Path),
    help="More rules (TOML); they come before the shipped ones.",
)
def command(trace: Path, as_json: bool, unknown: bool, blame: bool, rules: Path | None) -> int:
    """Split the time of every call in TRACE by cause.

    The parts of each call add up to its length exactly. Time that no rule can
    name is called unexplained; --unknown lists where it was spent.
    """
    from spoolscope.analysis.causes import load_rules
    from spoolscope.analysis.explain import explain

    found = explain(trace, load_rules(rules))
    if as_json:
        emit_json(found.to_json())
    else:
        lines = [*_head(found), *_causes(found), *_calls(found), *_commits(found)]
        lines += [*(_blame(found) if blame else ()), *(_unknown(found) if unknown else ())]
        click.echo("\n".join([*lines, *_tail(found, trace)]))
    partial = found.remarks or found.split.sum_error_ns
    return INCOMPLETE if partial else 0


def _head(found: "Explanation") -> Iterable[str]:
    from spoolscope.analysis.wording import count, duration

    spools = ", ".join(s.get("fstype", "?") for s in found.meta.get("spools", [])) or "?"
    recorded = duration(found.meta.get("duration_ns"))
    state = "complete" if found.meta.get("complete") else "NOT complete"
    yield f"{count(found.n_calls)} calls, {duration(found.latency_ns)} in calls"
    if found.between_programs_ns:
        waited = duration(found.between_programs_ns)
        yield f"of which {waited} waiting for file locks of other programs (no share below)"
    yield f"recorded {recorded} on {spools}, tier {found.meta.get('tier', '?')}, {state}"
    for remark in found.remarks:
        yield from _wrapped(f"Partial: {remark}")


def _causes(found: "Explanation") -> Iterable[str]:
    from spoolscope.analysis.causes import CAUSES, charged
    from spoolscope.analysis.wording import duration, percent

    yield "\nWhere the time went"
    for cause, ns in sorted(charged(found.causes).items(), key=lambda item: -item[1]):
        share = ns / found.filesystem_ns
        label = CAUSES[cause].label
        bar = "#" * round(BAR * share)
        yield f"  {label:<18}{duration(ns):>10}{percent(share):>10}  {bar}".rstrip()


def _calls(found: "Explanation") -> Iterable[str]:
    from spoolscope.analysis.wording import count, duration

    yield "\nBy call"
    yield f"  {'call':<16}{'n':>9}{'total':>9}{'p50':>9}{'p99':>9}  mostly"
    for name, call in list(found.by_syscall.items())[:TOP_CALLS]:
        t = call.latency
        times = "".join(f"{duration(ns):>9}" for ns in (t.total_ns, t.p50_ns, t.p99_ns))
        yield f"  {name:<16}{count(t.n):>9}{times}  {_mostly(call.causes, t.total_ns)}"
    if (hidden := len(found.by_syscall) - TOP_CALLS) > 0:
        yield f"  and {hidden} more calls (--json has all)"


def _mostly(causes: Mapping[str, int], total: int) -> str:
    from spoolscope.analysis.causes import CAUSES

    cause, ns = max(causes.items(), key=lambda item: item[1], default=("cpu", 0))
    return f"{CAUSES[cause].label} {100 * ns / total:.0f} %" if total else ""


def _commits(found: "Explanation") -> Iterable[str]:
    from spoolscope.analysis.wording import count, duration, percent

    commits = found.commits
    if not commits.n:
        yield "\nNo journal commits were recorded."
        return
    share = percent(commits.trigger_named / commits.n)
    yield f"\nCommits: {count(commits.n)}, trigger named for {share}"
    for kind in commits.kinds:
        middle, longest = duration(kind.p50_ns or None), duration(kind.max_ns or None)
        yield f"  {kind.kind:<18}{count(kind.n):>9}  median {middle}, longest {longest}"
    if commits.phases:
        parts = (f"{n.replace('_', ' ')} {duration(ns)}" for n, ns in commits.phases.items() if ns)
        yield from _wrapped("Waits for commits: " + ", ".join(parts), indent="  ")
    if commits.thread:
        parts = (f"{what} {duration(ns)}" for what, ns in commits.thread.items() if ns)
        yield from _wrapped("Meanwhile jbd2: " + ", ".join(parts), indent="  ")


def _blame(found: "Explanation") -> Iterable[str]:
    from spoolscope.analysis.wording import count, duration

    yield "\nWho caused the commits, and how long others waited for them"
    yield f"  {'process':<13}{'call':<11}{'on':<24}{'n':>7}{'own':>9}{'others':>9}"
    for row in found.commits.blame[:20]:
        times = f"{duration(row.own_ns):>9}{duration(row.others_ns):>9}"
        where = f"{row.comm[:12]:<13}{row.syscall[:10]:<11}{row.path_class[:23]:<24}"
        yield f"  {where}{count(row.n):>7}{times}"


def _unknown(found: "Explanation") -> Iterable[str]:
    from spoolscope.analysis.wording import duration, percent

    yield "\nStacks without a rule"
    for stack in found.unknown:
        calls = ", ".join(stack.syscalls[:4])
        head = f"{duration(stack.ns)} ({percent(stack.share, 2)} of blocked) in {stack.n} waits"
        yield from _wrapped(f"{head}: {calls}", indent="  ")
        yield from _wrapped(" < ".join(stack.frames) or "(no stack recorded)", indent="    ")
    if found.unknown:
        yield "  Name one in a file given with --rules, one line in the list rules = [...]:"
        yield f"    {found.unknown[0].rule}"
    else:
        yield "  none"


def _tail(found: "Explanation", trace: Path) -> Iterable[str]:
    from spoolscope.analysis.wording import duration, percent

    error = found.split.sum_error_ns
    exact = "exactly" if error == 0 else f"NOT: largest error {error:,} ns"
    yield f"\nThe parts of every call add up {exact}."
    blocked, named = duration(found.split.blocked_ns), percent(found.named_share, 2)
    yield f"Blocked {blocked}, of which {named} has a named cause."
    yield f"Next: spoolscope report {trace}"


def _wrapped(text: str, indent: str = "") -> list[str]:
    import textwrap

    return textwrap.wrap(text, 80, initial_indent=indent, subsequent_indent=indent + "  ")
