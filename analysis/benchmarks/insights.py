"""Accuracy of the rules of insights: precision and recall over scenarios.

Writes INSIGHTS.md. The troubles of ``spoolscope lab troubles`` and the faults of ``spoolscope lab
faults`` are brought about under a real load and recorded (needs root, BPF and FUSE; ``--hand-made``
leaves them out); beside them are traces written by hand. Troubles and traces come in pairs for each
rule: one in which it must fire, one that only looks similar. ``--kept DIR``
has the results of an interrupted run, and gets those of this one; ``--seconds N`` is the length of
each fault's load (3); names of faults or troubles select these.
"""

import argparse
import json
import os
import platform
import sys
import tempfile
import time
from collections import defaultdict
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from spoolscope.analysis.explain import explain
from spoolscope.analysis.insights import insight_rules
from spoolscope.analysis.wording import percent
from spoolscope.lab.faults import FAULTS
from spoolscope.lab.private import enter, memory_directory
from spoolscope.lab.suite import run
from spoolscope.lab.trouble_runs import run_all, to_json
from spoolscope.lab.troubles import TROUBLES
from spoolscope.traces.errors import SpoolscopeError

sys.path.insert(0, str(Path(__file__).parents[1] / "tests" / "scenarios"))
sys.path.insert(0, str(Path(__file__).parents[2] / "traces" / "testing"))

from insight_scenarios import PAIRS
from spoolscope_testing.trace_builder import TraceBuilder

TEXT = Path(__file__).parents[1] / "INSIGHTS.md"

DISK = {"slow_disk", "saturated_disk", "busy_disk", "sync_price", "cold_inodes", "small_appends"}
"""Insights that any disk with delays causes besides the intended one: true, and so allowed."""

EXPECTED: dict[str, set[str]] = {
    "slow-flush": {"commit_flush"},
    "slow-flush-crowd": {"commit_flush"},
    "slow-journal": set(),
    "slow-journal-crowd": set(),
    "slow-data": set(),
    "slow-write": {"slow_disk"},
    "slow-read": {"slow_disk"},
    "slow-allocation": {"slow_disk"},
    "held-directory": {"busy_directory"},
    "held-lock": {"file_lock"},
    "held-handle": {"held_transaction"},
    "held-handle-crowd": {"held_transaction"},
    "full-journal": {"full_journal"},
    "full-journal-crowd": {"full_journal"},
    "cpu-hog": {"busy_cpu"},
    "throttled": {"io_limit"},
    "small-memory": {"memory", "dirty_limit"},
}
"""Rules by fault, one of which must fire, as each of them is right."""

ALSO: dict[str, set[str]] = {
    "held-directory": {"busy_file"},
    "held-handle": {"forced_commits"},
    "full-journal": {"busy_directory"},
    "full-journal-crowd": {"busy_directory"},
    "slow-read": {"hash_order"},
    "slow-flush": {"log_tree_queue", "full_commits"},
    "slow-flush-crowd": {"log_tree_queue", "full_commits", "forced_commits"},
    "slow-write": {"log_tree_queue", "full_commits", "data_journal", "neighbours_data"},
    "slow-data": {"neighbours_data"},
}
"""Rules that may fire, too, as the load also has these problems."""


TROUBLE, FAULT, HAND = "trouble", "fault", "hand"


@dataclass(frozen=True)
class Case:
    """One scenario of a group: rules that must fire, that may, and that did."""

    name: str
    must: frozenset[str]
    may: frozenset[str]
    fired: frozenset[str]
    group: str


def by_hand() -> Iterator[Case]:
    """Yield the traces written by hand, each of which tests one rule only."""
    for kind, pair in PAIRS.items():
        for what, scene in (("fires", pair.fires), ("alike", pair.alike)):
            with tempfile.TemporaryDirectory() as place:
                builder = TraceBuilder(Path(place) / "trace")
                scene(builder)
                fired = {insight.kind for insight in explain(builder.write()).insights}
            must = {kind} if what == "fires" else set()
            yield Case(f"{kind}, {what}", frozenset(must), frozenset(fired - {kind}),
                       frozenset(fired), group=HAND)  # fmt: skip


def made(names: list[str], kept: Path) -> Iterator[Case]:
    """Yield the troubles of the lab and what looks like them, each recorded."""
    for kind in TROUBLES:
        if names and kind not in names:
            continue
        file = kept / f"trouble-{kind}.json"
        if not file.exists():
            found, left_out = run_all([kind], lambda _what, _share: None)
            for sentence in left_out:
                print(sentence, file=sys.stderr)
            if left_out:
                continue
            file.write_text(json.dumps([to_json(one) for one in found]))
        for scene in json.loads(file.read_text()):
            must, fired = frozenset() if scene["alike"] else frozenset({kind}), set(scene["fired"])
            name = f"{kind}{', alike' if scene['alike'] else ''}: {scene['says']}"
            yield Case(name, must, frozenset(fired - {kind}), frozenset(fired), TROUBLE)


def injected(names: list[str], seconds: float, kept: Path) -> Iterator[Case]:
    """Yield the faults of the lab, each recorded under its load."""
    for name, fault in FAULTS.items():
        for fstype in fault.filesystems:
            if names and name not in names:
                continue
            file = kept / f"{name}-{fstype}.json"
            if not file.exists():
                try:
                    with memory_directory() as place:
                        outcome = run(fault, fstype, place, seconds)
                except (SpoolscopeError, OSError) as error:
                    print(f"{name} on {fstype}: {error}", file=sys.stderr)
                    continue
                shares = {i.kind: i.share for i in outcome.explanation.insights}
                file.write_text(json.dumps(shares))
            yield case_of(name, fstype, frozenset(json.loads(file.read_text())))


def case_of(name: str, fstype: str, fired: frozenset[str]) -> Case:
    """Return the expected and actual rules of a fault."""
    may = DISK | ALSO.get(name, set()) if FAULTS[name].delays else ALSO.get(name, set())
    # Too few CPUs of the machine are neither part of the scenario nor an error of the rule.
    may = may | {"too_few_cpus", "commit_without_cpu", "busy_cpu", "host_steal", "recorder_cost"}
    must = EXPECTED[name] & fired or EXPECTED[name] - {"dirty_limit"}
    return Case(f"{name} on {fstype}", frozenset(must), frozenset(may - must), fired, FAULT)


def table(cases: list[Case]) -> Iterator[str]:
    """Yield a row for each rule: how often it should have fired, fired, and was right."""
    counts: dict[str, list[int]] = defaultdict(lambda: [0, 0, 0])
    for case in cases:
        for kind in case.must | (case.fired - case.may):
            right = kind in case.must and kind in case.fired
            missed, wrong = kind not in case.fired, kind not in case.must
            for place, true in enumerate((right, missed, wrong)):
                counts[kind][place] += true
    total = [sum(column) for column in zip(*counts.values(), strict=True)] or [0, 0, 0]
    for rule in insight_rules():
        if rule.kind in counts:
            yield _row(f"{rule.code} {rule.kind}", *counts[rule.kind])
    yield _row("**all**", *total)


def _row(name: str, right: int, missed: int, wrong: int) -> str:
    precision = percent(right / (right + wrong)) if right + wrong else "-"
    recall = percent(right / (right + missed)) if right + missed else "-"
    return f"| {name} | {right + missed} | {right} | {wrong} | {precision} | {recall} |"


def page(cases: list[Case], seconds: float, command: str) -> str:
    """Return the Markdown page."""
    troubles, real, made = (
        [case for case in cases if case.group == group] for group in (TROUBLE, FAULT, HAND)
    )
    head = [
        "| rule | should fire | right | wrong | precision | recall |",
        "|---|---|---|---|---|---|",
    ]
    lines = [
        "# How often insights are right",
        "",
        f"`{command}`, {time.strftime('%Y-%m-%d', time.gmtime())}: Linux {platform.release()}, "
        f"{os.cpu_count()} CPUs, load {os.getloadavg()[0]:.1f}.",
        "",
        "A rule is right if it fires where the scenario brings its trouble about, and wrong if it "
        "fires where that is neither so nor true for another reason: a slow disk is slow in every "
        "scenario that slows it down, whatever else it is for. Such firings, listed as fired "
        "besides, count neither way: they are allowed by a list in the script, so a precision here "
        "is an upper bound. A trace written by hand says nothing of rules that it is not for.",
        "",
    ]
    if troubles:
        lines += [
            *_recorded_sentence(troubles, real), "",
            f"## Troubles made, and what looks like them ({len(troubles)} recordings)",
            "",
            "`spoolscope lab troubles`: each rule's trouble must make it fire, what looks like it "
            "must not. Other rules that fired are named: most are true of the scene, too.",
            "", *head, *table(troubles), "",
            "| scene | must fire | fired besides | missed | wrong |", "|---|---|---|---|---|",
            *(_case(case) for case in troubles), "",
        ]  # fmt: skip
    if real:
        lines += [
            f"## Faults injected under a recorded load ({len(real)} recordings of {seconds:g} s)",
            "", *head, *table(real), "",
            "| scenario | must fire | fired besides | missed | wrong |", "|---|---|---|---|---|",
            *(_case(case) for case in real), "",
        ]  # fmt: skip
    if made:
        lines += [
            f"## Traces written by hand ({len(made)})",
            "",
            "One for each rule that brings it about, one that looks alike; these are tests, too.",
            "", *head, *table(made), "",
        ]  # fmt: skip
    return "\n".join(lines)


def _recorded_sentence(troubles: list[Case], real: list[Case]) -> Iterator[str]:
    """Yield how many rules rest on recordings, and which do not."""
    proven = {kind for case in (*troubles, *real) for kind in case.must & case.fired}
    rules = insight_rules()
    rest = [rule.kind for rule in rules if rule.kind not in proven]
    yield (
        f"**{len(rules) - len(rest)} of {len(rules)} rules rest on recordings** in which their "
        f"trouble was brought about; {', '.join(rest)} on traces written by hand only."
    )


def _case(case: Case) -> str:
    wrong = case.fired - case.must - case.may
    cells = (case.must, case.fired & case.may, case.must - case.fired, wrong)
    return f"| {case.name} | " + " | ".join(", ".join(sorted(c)) or "-" for c in cells) + " |"


def main() -> None:
    """Run the scenarios and write the page."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("names", nargs="*", choices=[[], *FAULTS, *TROUBLES], metavar="NAME")
    parser.add_argument("--seconds", type=float, default=3.0)
    parser.add_argument("--hand-made", action="store_true")
    parser.add_argument("--kept", type=Path)
    parser.add_argument("-o", "--output", type=Path, default=TEXT)
    args = parser.parse_args()
    with tempfile.TemporaryDirectory() as place:
        kept = args.kept or Path(place)
        kept.mkdir(parents=True, exist_ok=True)
        cases: list[Case] = []
        if not args.hand_made:
            enter(args.output)
            cases += made(args.names, kept)
            cases += injected(args.names, args.seconds, kept)
        if not args.names:
            cases += by_hand()
    args.output.write_text(page(cases, args.seconds, "python analysis/benchmarks/insights.py"))
    print(f"Wrote {args.output}")


if __name__ == "__main__":
    main()
