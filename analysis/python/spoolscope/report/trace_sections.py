"""Sections about recorded time: one study, or one per candidate, side by side."""

from collections.abc import Mapping, Sequence

from spoolscope.analysis.causes import CAUSES, charged
from spoolscope.analysis.latency import QUANTILES, Latency
from spoolscope.analysis.lookups import FEW_SAMPLES, INDEX, worth_saying
from spoolscope.analysis.study import Study
from spoolscope.analysis.why import by_family, family_label
from spoolscope.analysis.wording import count, duration, percent
from spoolscope.report.figures import causes as cause_figures
from spoolscope.report.figures import timeline as timeline_figures
from spoolscope.report.page import Figure, Section, Split, Table, TableBlock

Studies = Mapping[str, Study]
"""Studies by the name shown: the candidates, or the one trace."""

TOP_CALLS = 10
TOP_CLASSES = 12


def method(studies: Studies) -> str:
    """Return the sentence of a caption that says where its numbers come from."""
    said = [f"{name}: {count(study.explanation.n_calls)} calls" for name, study in studies.items()]
    named = min(study.explanation.named_share for study in studies.values())
    lost = sum(int(study.explanation.meta.get("lost", 0)) for study in studies.values())
    text = f"{'; '.join(said)}. Every call is split exactly, nothing is sampled; "
    text += f"{percent(named, 2)} of blocked time has a named cause"
    text += f"; {count(lost)} lost records are missing. " if lost else "; no record was lost. "
    between = sum(study.explanation.between_programs_ns for study in studies.values())
    if between:
        text += f"Not drawn: {duration(between)} waiting for other programs: file locks, vfork."
    return text.strip()


def calls_section(studies: Studies) -> Section:
    """Time by call and cause."""
    top = _largest(studies)
    groups = [
        (name, [(call, study.explanation.by_syscall[call].causes) for call in top
                if call in study.explanation.by_syscall])
        for name, study in studies.items()
    ]  # fmt: skip
    hidden = max(len(s.explanation.by_syscall) for s in studies.values()) - len(top)
    figure = Figure(
        key="calls",
        title="Time in calls, by call and cause",
        finding="; ".join(study.headline for study in studies.values()),
        caption=f"The {len(top)} calls with most time"
        + (f" ({hidden} more in the table of latencies)" if hidden > 0 else "")
        + f", from the recorded traces. {method(studies)}",
        table=_merged([(f"{n}: {call}", c) for n, rows in groups for call, c in rows], "call"),
        plot=cause_figures.panels(groups),
    )
    return Section(
        "calls", "Calls", "Which calls", "The same time, by the call it was spent in.", [figure]
    )


def _largest(studies: Studies) -> list[str]:
    totals: dict[str, float] = {}
    for study in studies.values():
        for name, call in study.explanation.by_syscall.items():
            totals[name] = totals.get(name, 0) + sum(charged(call.causes).values())
    return sorted(totals, key=lambda name: -totals[name])[:TOP_CALLS]


def _merged(rows: Sequence[tuple[str, Mapping[str, float]]], what: str) -> Table:
    return cause_figures.cause_table(rows, what)


def files_section(studies: Studies) -> Section:
    """Time by kind of file, and the hot directories."""
    names: dict[str, float] = {}
    for study in studies.values():
        for row in study.path_classes:
            names[row.name] = names.get(row.name, 0) + sum(charged(row.causes).values())
    shown = sorted(names, key=lambda name: -names[name])[:TOP_CLASSES]
    groups = []
    for name, study in studies.items():
        found = {row.name: row.causes for row in study.path_classes}
        groups.append((name, [(kind, found.get(kind, {})) for kind in shown]))
    figure = Figure(
        key="files",
        title="Time in calls, by kind of file",
        finding=f"Most time is spent on: {', '.join(shown[:3])}.",
        caption="The kind is told from the name (pseudonyms keep the words a mail server uses). "
        f"{method(studies)}",
        table=_merged([(f"{n}: {kind}", c) for n, rows in groups for kind, c in rows], "kind"),
        plot=cause_figures.panels(groups),
    )
    tables = [_directories(name, study) for name, study in studies.items()]
    tables += [_lookups(name, study) for name, study in studies.items()]
    intro = "Mail servers use few kinds of files; each waits for other things."
    return Section("files", "Files", "Which files", intro, [figure, *tables])


def _directories(name: str, study: Study) -> TableBlock:
    rows = [
        [
            directory.path or "(top of the spool)",
            count(directory.entries),
            count(directory.n),
            duration(directory.total_ns),
            duration(directory.total_ns / max(directory.n, 1)),
            f"{CAUSES[directory.cause].label} "
            f"{percent(directory.cause_ns / max(directory.total_ns, 1), 0)}",
        ]
        for directory in study.directories
    ]
    return TableBlock(
        f"Hot directories: {name}",
        ["~directory", ">names at start", ">calls", ">time", ">mean", "mostly"],
        rows,
        f"The {len(rows)} directories whose calls took longest in total. Names at start come "
        "from the snapshot; 0 means none was taken or the directory is newer.",
        folded=True,
    )


def _lookups(name: str, study: Study) -> TableBlock:
    found = study.explanation.lookups
    costs = [cost for cost in found if not cost.guessed]
    guessed = len(found) - len(costs)
    rows = [
        [
            cost.path or "(top of the spool)",
            "-" if cost.entries is None else count(cost.entries),
            INDEX[cost.index],
            duration(cost.lookup_io_ns),
            cost.reads_for or "-",
            duration(cost.dir_lock_ns),
            duration(cost.cpu_ns) if study.explanation.cpu else "-",
            percent(cost.share),
        ]
        for cost in costs
    ]
    return TableBlock(
        f"Directory lookups: {name}",
        ["~directory", ">names", "index", ">reads", "mostly", ">lock", ">CPU", ">share"],
        rows,
        " ".join([
            *worth_saying(costs)[:5],
            "What finding, adding and removing names cost: waiting for blocks of the directory "
            "and for its lock, exactly; time on the CPU by samples. Share: of the time in calls.",
            *([f"Left out: {count(guessed)} known from fewer than {FEW_SAMPLES} samples only."]
              if guessed else []),
        ]),
    )  # fmt: skip


def time_section(studies: Studies) -> Section:
    """The timeline."""
    lines = {name: study.timeline for name, study in studies.items()}
    busiest = {name: max(line.charged_ns, default=0) for name, line in lines.items()}
    bin_s = next(iter(lines.values())).bin_ns / 1e9
    figure = Figure(
        key="timeline",
        title="Time in calls, second by second",
        finding="Busiest bin: "
        + "; ".join(f"{name} {duration(ns)}" for name, ns in busiest.items())
        + ".",
        caption=f"Bins of {bin_s:g} s; a wait counts where it began, so a bin can hold more than "
        "its length, many calls run at once. Causes under 1 % of all are left out of the drawing. "
        f"The line counts commits begun. {method(studies)}",
        table=_timeline_table(studies),
        plot=timeline_figures.timelines(lines),
    )
    return Section(
        "timeline", "Timeline", "When", "Bursts, stalls, and the commits behind them.", [figure]
    )


def _timeline_table(studies: Studies) -> Table:
    rows = []
    for name, study in studies.items():
        line = study.timeline
        for index in range(line.n_bins):
            parts = {cause: bins[index] for cause, bins in line.causes.items()}
            top = max(parts, key=lambda cause: parts[cause], default="cpu")
            rows.append(
                [name, f"{index * line.bin_ns / 1e9:g} s", count(line.calls[index]),
                 duration(sum(parts.values())), CAUSES[top].label, count(line.commits[index])]
            )  # fmt: skip
    return Table(["trace", ">at", ">calls", ">time", "mostly", ">commits"], rows)


def slowest_section(studies: Studies) -> Section:
    """The slowest calls with their whole split."""
    blocks = [
        TableBlock(
            f"Slowest calls: {name}",
            [">at", "process", "call", "~path", ">took", "split"],
            [
                [f"{c.at_ns / 1e9:.3f} s", f"{c.comm} {c.pid}", _outcome(c.syscall, c.errno),
                 c.path or "-", duration(c.dur_ns), Split.of(c.causes)]
                for c in study.slowest
            ],
            f"The {len(study.slowest)} longest of {count(study.explanation.n_calls)} calls, waits "
            "for other programs left out; the parts of each add up to its length exactly.",
            folded=number > 0,
        )
        for number, (name, study) in enumerate(studies.items())
    ]  # fmt: skip
    return Section(
        "slowest", "Slowest", "Slowest calls", "One line each, with the whole split.", blocks
    )


def _outcome(syscall: str, errno: int) -> str:
    return f"{syscall} (errno {errno})" if errno else syscall


def latency_table(latencies: Mapping[str, Sequence[Latency]], what: str) -> TableBlock:
    """Percentiles by call or family of calls, with the candidates side by side."""
    names = list(dict.fromkeys(one.syscall for found in latencies.values() for one in found))
    rows = []
    for call in names:
        for name, found in latencies.items():
            one = next((latency for latency in found if latency.syscall == call), None)
            if one is not None:
                times = (one.total_ns, one.mean_ns, one.p50_ns, one.p90_ns, one.p99_ns)
                rows.append([family_label(call), name, count(one.n),
                             *map(duration, (*times, one.p999_ns, one.max_ns))])  # fmt: skip
    needs = ", ".join(f"p{100 * q:g}: {10 / (1 - q):,.0f}" for q in QUANTILES)
    return TableBlock(
        f"Latency by {what}",
        [what, "on", ">n", ">total", ">mean", ">p50", ">p90", ">p99", ">p99.9", ">max"],
        rows,
        f"Exact percentiles. A dash stands for too few calls to say (needed: {needs}).",
    )


def quality_section(studies: Studies) -> Section:
    """What was recorded, lost, and left unexplained."""
    rows = []
    for name, study in studies.items():
        found, meta = study.explanation, study.explanation.meta
        rows.append(
            [name, count(found.n_calls), "yes" if meta.get("complete") else "NO",
             count(int(meta.get("lost", 0))), str(meta.get("tier", "?")),
             f"{found.split.sum_error_ns} ns", percent(found.named_share, 2),
             duration(found.split.without_segment_ns),
             count(int(meta.get("paths_unresolved", 0)))]
        )  # fmt: skip
    blocks = [
        TableBlock(
            "Recording quality",
            ["trace", ">calls", "complete", ">lost", "tier", ">sum error", ">blocked named",
             ">without segment", ">paths unresolved"],
            rows,
            "Sum error: largest difference between a call's length and the sum of its causes. "
            "Tier: T0 totals only, T1 causes from kernel stacks, T2 with journal and block "
            "events. " + " ".join(f"{n}: {r}" for n, s in studies.items()
                                  for r in s.explanation.remarks),
        ),
        _unknown(studies),
    ]  # fmt: skip
    return Section(
        "quality", "Recording", "Recording quality", "What the numbers above rest on.", blocks
    )


def _unknown(studies: Studies) -> TableBlock:
    rows = [
        [name, " < ".join(stack.frames[:6]) or "(no stack)", ", ".join(stack.syscalls[:3]),
         count(stack.n), duration(stack.ns), percent(stack.share, 2)]
        for name, study in studies.items()
        for stack in study.explanation.unknown[:10]
    ]  # fmt: skip
    return TableBlock(
        "Unexplained stacks",
        ["trace", "~stack, innermost first", "calls", ">waits", ">time", ">of blocked"],
        rows,
        "Waits that no rule knows. 'spoolscope explain TRACE --unknown' prints a rule to start "
        "from; --rules FILE applies it." if rows else "None: every stack has a rule.",
        folded=True,
    )  # fmt: skip


def hero_rows(studies: Studies) -> list[tuple[str, Mapping[str, float]]]:
    """Return one bar per family of calls, for the first screen of a single trace."""
    (study,) = studies.values()
    table = by_family({n: c.causes for n, c in study.explanation.by_syscall.items()})
    families: dict[str, dict[str, float]] = {}
    for (family, cause), ns in table.items():
        families.setdefault(family, {})[cause] = ns
    ordered = sorted(families.items(), key=lambda item: -sum(charged(item[1]).values()))
    return [(family_label(family), causes) for family, causes in ordered[:7]]
