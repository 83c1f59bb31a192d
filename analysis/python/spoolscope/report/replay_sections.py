"""Sections about a replay: verdict, candidates, latency, fidelity, environment."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from spoolscope.analysis.causes import CAUSES
from spoolscope.analysis.certificate import faithful_runs
from spoolscope.analysis.compare import Candidate, Comparison
from spoolscope.analysis.conditions import Conditions
from spoolscope.analysis.latency import Curve, family_curves, family_latencies, supported
from spoolscope.analysis.metrics import METRICS, PRIMARY, common_calls
from spoolscope.analysis.wording import count, duration, interval, percent
from spoolscope.report.figures import causes as cause_figures
from spoolscope.report.figures import compare as compare_figures
from spoolscope.report.figures import latency as latency_figures
from spoolscope.report.kernels import kernels_table
from spoolscope.report.page import Fact, Figure, Section, Table, TableBlock
from spoolscope.report.trace_sections import latency_table

MANY = 3
"""With more candidates than so many beside the reference, figures show the primary metric alone."""
CURVES = 7
"""As many candidates have a line in the figure of tails."""

METHODS = {
    "paired-t": "95 % t-interval over paired rounds",
    "within-run": "within-run bootstrap over time blocks of at least 1 s",
    "none": "no interval",
}


def hero(found: Comparison) -> Figure:
    """Time in calls per candidate: by cause if the runs were recorded, else in total."""
    totals = [(name, c.metrics[PRIMARY] or 0.0) for name, c in found.candidates.items()]
    rows = [(name, dict(c.causes)) for name, c in found.candidates.items() if c.causes]
    rounds = max(c.rounds for c in found.candidates.values())
    basis = f"{count(found.n_calls)} calls, without file locking, were executed on every "
    basis += f"candidate, {rounds} {'round' if rounds == 1 else 'rounds'}."
    said = "; ".join(f"{name} {duration(ns)}" for name, ns in totals)
    if rows:
        missing = [name for name, c in found.candidates.items() if not c.causes]
        basis += " From the recorded trace of each run, mean over rounds, file locks not drawn."
        basis += f" Not recorded: {', '.join(missing)}." if missing else ""
        basis += " Causes under 0.5 % of every bar are only in the table."
        basis += f" The times above ({said}) are by the replayer's clock, and so hold its own work"
        basis += " and the recorder's around each call as well."
    else:
        basis += " Mean over rounds. The runs were not recorded, so causes"
        basis += " are not known."
    return Figure(
        key="hero",
        title="Time in calls, by candidate" + (" and cause" if rows else ""),
        finding=f"Time in calls: {said}.",
        caption=basis,
        table=cause_figures.cause_table(rows, "candidate")
        if rows
        else Table(["candidate", ">time in calls"], [[name, duration(ns)] for name, ns in totals]),
        plot=cause_figures.stacked(rows, row_height=46)
        if rows
        else cause_figures.totals(totals, row_height=46),
    )


def facts(found: Comparison) -> list[Fact]:
    """Return the fidelity box, for all candidates together, the worst one counting."""
    all_ = [c.fidelity for c in found.candidates.values()]
    executed = min(f.executed / f.syscalls if f.syscalls else 1.0 for f in all_)
    divergent = max(f.divergent_share for f in all_)
    late = [f.lateness_p99_ns for f in all_ if f.lateness_p99_ns is not None]
    mismatched, checked = max(f.mismatched for f in all_), max(f.checked for f in all_)
    pace = str(found.replay.header.get("pace", "?"))
    faithful = _faithful(found)
    # The goal of the certificate is stricter, and for the machine's part: where there is one, its
    # mark alone counts.
    judged = late and pace == "original" and not faithful
    return [
        Fact("executed", percent(executed, 2), executed >= 0.999),
        Fact("other result", percent(divergent, 3), divergent <= 0.001),
        Fact(
            "tree differs",
            f"{count(mismatched)} of {count(checked)}" if checked else "not checked",
            mismatched == 0 if checked else None,
        ),
        Fact("pace", pace),
        Fact(
            "late, p99",
            duration(max(late)) if late else "-",
            not any(f.late for f in all_) if judged else None,
        ),
        Fact("rounds", str(max(c.rounds for c in found.candidates.values()))),
        *faithful,
    ]


def _faithful(found: Comparison) -> list[Fact]:
    """How many runs met every goal of their certificate; nothing where no time was to be kept."""
    known = faithful_runs(found.replay.runs)
    if known is None:
        return []
    faithful, runs = known
    return [Fact("faithful runs", f"{faithful} of {runs}", faithful == runs)]


def compare_section(found: Comparison) -> Section:
    """Every candidate against the reference, with intervals."""
    rows = []
    for pair in found.pairs:
        estimates = {PRIMARY: pair.primary, **pair.secondary}
        for key, metric in METRICS.items():
            e = estimates[key]
            values = [found.candidates[n].metrics[key] for n in (pair.candidate, pair.reference)]
            show = duration if metric.unit == "ns" else lambda value: percent(value, 2)
            rows.append(
                [pair.candidate, metric.label, *map(show, values),
                 f"{e.ratio:.2f} x" if e.n else "-", interval(e.low, e.high),
                 f"{e.n_lower}/{e.n}", METHODS[e.method], pair.word if key == PRIMARY else ""]
            )  # fmt: skip
    table = Table(
        ["candidate", "metric", ">candidate's", f">{found.reference}'s", ">ratio", ">interval",
         ">lower", "interval from", "verdict"],
        rows,
    )  # fmt: skip
    caption = (
        "The primary metric (bold) was fixed beforehand and alone carries a verdict; the others "
        "are for reading. The unit is the run: rounds are paired, the interval is Student's t on "
        "the log ratio, and a difference under 5 % is called equivalent. With one round the "
        "interval of the primary metric is from within the run and says nothing of other runs."
    )
    other = found.other_durability
    if len(found.pairs) > MANY:
        caption = (
            "Time in calls: fixed beforehand as what candidates are judged by; the other metrics "
            "are in the table. The unit is the run: rounds are paired, the interval is Student's t "
            "on the log ratio, each by itself: of 20 such, one misses. Grey band: a difference "
            "under 5 % is called equivalent."
        )
    if other:
        caption += " ! does not keep after a crash what the reference keeps."
    figure = Figure(
        key="forest",
        title=f"Against {found.reference}: {_counted_words(found)}",
        finding="; ".join(
            f"{p.candidate} {p.primary.ratio:.2f} times {p.reference}" for p in found.pairs
        ),
        caption=caption,
        table=table,
        plot=compare_figures.forest_of_many(found.pairs, found.reference, other)
        if len(found.pairs) > MANY
        else compare_figures.forest(found.pairs, found.reference, list(found.candidates)),
    )
    blocks: list[Figure | TableBlock] = [figure]
    blocks += [_durability(other, found.reference)] if other else []
    blocks += [kernels_table(found)] if found.kernels else []
    blocks += [_deltas(found)] if any(pair.cause_deltas for pair in found.pairs) else []
    return Section(
        "compare",
        "How sure",
        "How much, and how sure",
        f"Ratios to {found.reference}; left of 1 is better.",
        blocks,
    )


def _counted_words(found: Comparison) -> str:
    words = [pair.word for pair in found.pairs]
    return ", ".join(f"{words.count(word)} {word}" for word in dict.fromkeys(words))


def _durability(other: Mapping[str, str], reference: str) -> TableBlock:
    return TableBlock(
        f"What other candidates keep after a crash, beside {reference}",
        ["candidate", "~durability"],
        [list(item) for item in other.items()],
        "Part of the speed of a less durable one is what it does not do.",
    )


def _deltas(found: Comparison) -> TableBlock:
    pairs = [pair for pair in found.pairs if pair.cause_deltas]
    causes = [c for c in CAUSES if any(abs(p.cause_deltas.get(c, 0)) >= 1e6 for p in pairs)]
    rows = [
        [CAUSES[cause].label, *(_signed(p.cause_deltas.get(cause, 0.0)) for p in pairs),
         CAUSES[cause].meaning]
        for cause in causes
    ]  # fmt: skip
    return TableBlock(
        f"What moved against {found.reference}",
        ["cause", *(f">{pair.candidate}" for pair in pairs), "~meaning"],
        rows,
        "Difference in recorded time by cause, mean over rounds; plus is more time than the "
        "reference. Causes that moved by less than 1 ms are left out.",
    )


def _signed(ns: float) -> str:
    return f"+{duration(ns)}" if ns > 0 else duration(ns)


def latency_section(found: Comparison) -> Section:
    """Distributions and percentiles of the same calls on every candidate."""
    replay = found.replay
    calls = common_calls(replay.runs)
    names = replay.syscalls[calls]
    curves, tables = {}, {}
    for name in found.candidates:
        run = next(run for run in replay.runs if run.candidate == name)
        curves[name] = family_curves(names, run.latency_ns[calls])
        tables[name] = family_latencies(names, run.latency_ns[calls])
    drawn = [*list(found.candidates)[:CURVES]]
    if found.reference not in drawn:
        drawn[-1] = found.reference
    others = len(found.candidates) - len(drawn)
    figure = Figure(
        key="tails",
        title="Share of calls that took longer",
        finding="The tail of the latency distribution, by family of calls and candidate.",
        caption=f"1 - ECDF on log axes, from the replayer's own clock, first round, "
        f"{count(len(calls))} calls that every run executed. Families with fewer than 100 calls "
        "are left out; curves are thinned to 800 points, densest in the tail."
        + (f" The other {others} candidates are only in the tables." if others else ""),
        table=curve_table(curves),
        plot=latency_figures.tails({name: curves[name] for name in drawn}),
    )
    intro = "Further left and lower is better; a step to the right is a stall."
    return Section(
        "latency", "Latency", "How long calls take", intro, [figure, latency_table(tables, "call")]
    )


def curve_table(curves: Mapping[str, Sequence[Curve]]) -> Table:
    """Return where half, 10 %, 1 % and 0.1 % of the calls were slower."""
    rows = []
    for name, found in curves.items():
        for curve in found:
            at = [
                duration(next(x for x, s in zip(curve.x_ns, curve.share, strict=True) if s >= q))
                if supported(curve.n, q)
                else "-"
                for q in (0.5, 0.9, 0.99, 0.999)
            ]
            rows.append([name, curve.name, count(curve.n), *at])
    heads = ["on", "family", ">n", ">half over", ">10 % over", ">1 % over", ">0.1 % over"]
    return Table(heads, rows)


def fidelity_section(found: Comparison) -> Section:
    """How true the replay was."""
    rows = [_fidelity_row(name, c) for name, c in found.candidates.items()]
    blocks = [
        TableBlock(
            "Fidelity",
            ["candidate", ">calls", ">executed", ">skipped", ">other result",
             ">of the filesystem", ">final tree",
">late p50", ">late p99", ">makespan", "verdict allowed"],
            rows,
            "The worst run of each candidate. Late: issued after its scheduled time, including "
            "the wait for the calls it depends on. A candidate over 0.1 % divergent, under "
            "99.9 % executed, with a different final tree, or (at original pace) with p99 over "
            "100 ms late gets no verdict.",
        )
    ]  # fmt: skip
    skips = {name: c.fidelity.skips for name, c in found.candidates.items()}
    blocks.append(_causes({name: c.fidelity.causes for name, c in found.candidates.items()}))
    blocks.append(_counted("Calls that were not made", "call and reason", skips))
    return Section(
        "fidelity", "Fidelity", "Fidelity", "How true the replay was to the recording.", blocks
    )


def _causes(found: Mapping[str, Sequence[Mapping[str, Any]]]) -> TableBlock:
    rows = []
    for name, causes in found.items():
        for cause in causes:
            known = f"{cause['class']} [{cause['source']}]" if cause["class"] else "no"
            example = f"{cause['example']['thread_seq'] or '-'} {cause['example']['path'] or ''}"
            rows.append(
                [name, cause["cause"], cause["path_class"], count(cause["n"]),
                 count(cause["followed"]), known, example.strip()]
            )  # fmt: skip
    return TableBlock(
        "Divergences by first cause",
        [
            "candidate",
            "first cause",
            "files",
            ">times",
            ">followed",
            "of the filesystem",
            "example",
        ],
        rows,
        "All rounds together. Followed: calls on what an earlier divergence had met. Of the "
        "filesystem: a documented difference between the recorded type and the candidate's, with "
        "its source; it is not counted as another result. Example: thread:number of the call in "
        "the trace, and its path."
        if rows
        else "None.",
    )


def _counted(title: str, what: str, counts: Mapping[str, Mapping[str, int]]) -> TableBlock:
    keys = list(dict.fromkeys(key for found in counts.values() for key in found))
    return TableBlock(
        title,
        [what, *(f">{name}" for name in counts)],
        [[key, *(count(found.get(key, 0)) for found in counts.values())] for key in keys],
        "All rounds together." if keys else "None.",
    )


def _fidelity_row(name: str, candidate: Candidate) -> list[str]:
    f = candidate.fidelity
    return [
        name,
        count(f.syscalls),
        percent(f.executed / f.syscalls if f.syscalls else 1.0, 2),
        count(f.skipped),
        percent(f.divergent_share, 3),
        count(f.of_filesystem),
        f"{count(f.mismatched)} of {count(f.checked)}" if f.checked else "not checked",
        duration(f.lateness_p50_ns),
        duration(f.lateness_p99_ns),
        duration(candidate.makespan_ns),
        "yes" if f.ok else "; ".join(f.problems),
    ]


def environment_rows(found: Comparison) -> list[list[str]]:
    """Return what is needed to do the replay again."""
    header = found.replay.header
    rows = [["replayed trace", Path(str(header["trace"])).name],
            ["pace", str(header.get("pace", "?"))],
            ["order", Conditions.of(header).order],
            ["options", " ".join(Conditions.of(header).options()) or "none"],
            ["rounds", str(header.get("rounds", "?"))],
            ["seed", str(header.get("seed", "?"))]]  # fmt: skip
    for name, candidate in found.candidates.items():
        rows.append([f"{name}: made by", candidate.mkfs or "-"])
        rows.append([f"{name}: mounted with", candidate.mount_options or "-"])
        first = next(run.row for run in found.replay.runs if run.candidate == name)
        rows.append([f"{name}: made on", _made_on(first)])
        order = ", ".join(
            str(run.row.get("position", "?")) for run in found.replay.runs if run.candidate == name
        )
        rows.append([f"{name}: place in its round", order])
        rows.append([f"{name}: caches at start", str(first.get("cache", "?"))])
        rows.append([f"{name}: age at start", _aged(first.get("age"))])
        data = ", ".join(
            f"{first[key]} % {key}" for key in ("compressible", "duplicate") if first.get(key)
        )
        rows.append([f"{name}: data", data or "neither compressible nor duplicate"])
    return rows


def _made_on(row: Mapping[str, Any]) -> str:
    """Say what kind of disk a filesystem was made on, and its journal if that lies apart."""
    journal = f"{row['journal_bytes'] / 2**20:,.0f} MiB" if row.get("journal_bytes") else ""
    devices = [_disk(device) for device in row.get("devices", [])]
    if not devices:
        made = "a directory" if row.get("fstype") == "dir" else "an image"
        return f"{made}; its journal of {journal} on another" if journal else made
    return f"; its journal of {journal} on ".join(devices)


def _disk(device: Mapping[str, Any]) -> str:
    words = [
        device["model"] or "no model",
        f"{device['size_bytes'] / 2**30:,.1f} GiB",
        "rotates" if device["rotational"] else "does not rotate",
        f"scheduler {device['scheduler'] or 'unknown'}",
        f"cache {device['write_cache'] or 'unknown'}",
        "trimmed before each run" if device["trimmed"] else "not trimmed",
    ]
    return f"{device['name']} ({', '.join(words)})"


def _aged(age: Mapping[str, Any] | None) -> str:
    """Say how old a filesystem was made and how much it is in pieces, as FIEMAP shows it."""
    if not age:
        return "not aged"
    made, free, kept, probe = (
        f"{age[key] / 2**20:,.0f} MiB"
        for key in ("bytes_made", "free_bytes_before", "bytes_kept", "probe_bytes")
    )
    before, after, fixture = age["probe_before"], age["probe_after"], age["fixture"]
    return (
        f"seed {age['seed']}: {made} of files made in {free} of room, {kept} kept;"
        f" a new file of {probe} had {count(before['extents'])} extents before and"
        f" {count(after['extents'])} after; of {count(fixture['files'])} files of the fixture"
        f" {count(fixture['files_split'])} have more than one extent,"
        f" at most {count(fixture['most'])}"
    )
