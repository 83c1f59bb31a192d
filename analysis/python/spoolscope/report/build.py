"""Build the report: read the inputs, lay out the page, write one HTML file."""

import json
import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from html import escape
from importlib.metadata import version
from importlib.resources import files
from pathlib import Path
from typing import Any

from jinja2 import Environment, StrictUndefined
from markupsafe import Markup
from plotly.offline import get_plotlyjs

from spoolscope.analysis.beyond import beyond_calls, unjudged_calls
from spoolscope.analysis.causes import CAUSES
from spoolscope.analysis.compare import Comparison, compare
from spoolscope.analysis.conditions import caches_at_begin
from spoolscope.analysis.explain import Explanation
from spoolscope.analysis.outcomes import is_replay
from spoolscope.analysis.own_filesystem import own_sentence
from spoolscope.analysis.study import Study, study
from spoolscope.analysis.wording import count, duration, percent
from spoolscope.report import commit_sections, replay_sections, trace_sections
from spoolscope.report.callers_section import callers_section
from spoolscope.report.certificate_section import certificate_section
from spoolscope.report.cpu_section import cpu_section
from spoolscope.report.figures import causes as cause_figures
from spoolscope.report.figures import latency as latency_figures
from spoolscope.report.life_section import life_section
from spoolscope.report.page import Fact, Figure, Page, Ranged, Section, Split, TableBlock
from spoolscope.report.palette import CAUSE_INKS
from spoolscope.traces.errors import USAGE, SpoolscopeError
from spoolscope.traces.files import write_file
from spoolscope.traces.output import place_of
from spoolscope.traces.phases import Phases, Progress, unseen
from spoolscope.traces.reveal import DO_NOT_GIVE_AWAY, RealNames
from spoolscope.traces.text import shown, shown_json
from spoolscope.traces.trace import Trace

LIMIT_BYTES = 15_000_000
STUDIED = 4
"""Callers, commits, culprits and files are of all candidates up to so many."""

# Texts of a figure with tags of ours.
TAGGED = ("hovertemplate", "ticktext")
Named = Callable[[Trace], Trace]


@dataclass(frozen=True)
class Report:
    """A built report: the file, its page, its size, and the trace that it is about, if at hand."""

    path: Path
    page: Page
    bytes: int
    trace: Trace | None


def build(
    inputs: Sequence[Path],
    output: Path,
    progress: Progress | None = None,
    trace: Path | None = None,
    named: Named = lambda trace: trace,
    reference: str | None = None,
) -> Report:
    """Write the report of a trace, or of one or more replays of a trace.

    Args:
        inputs: The trace, or directories that replays wrote.
        output: File to write.
        progress: Called with a sentence and the fraction done.
        trace: The replayed trace, if it is no longer where it was beside the replay.
        named: Gives a trace real names; the report is then for its owner only.
        reference: Candidate to hold the others against.

    Raises:
        SpoolscopeError: an input is neither, is damaged, or the inputs do not belong together.
    """
    show = progress or unseen
    if all(is_replay(path) for path in inputs):
        found = compare(inputs, reference, show, trace)
        about = named(found.replay.trace) if found.replay.trace else None
        page = _replay_page(found, show, about.names if about else None)
    elif len(inputs) == 1:
        about = named(Trace.open(inputs[0]))
        page = trace_page(about, show)
    else:
        raise SpoolscopeError(
            "a report is of one trace, or of replays of one trace",
            remedy="give one trace, or only directories that 'spoolscope replay -o' wrote",
            exit_code=USAGE,
        )
    show("Writing the report", None)
    real = about is not None and about.names is not None
    if real:
        page = replace(page, eyebrow=f"{DO_NOT_GIVE_AWAY} \u00b7 {page.eyebrow}")
    html = render(page)
    size = len(html.encode())
    if size > LIMIT_BYTES:
        raise SpoolscopeError(
            f"the report would be {size / 1e6:.0f} MB, browsers fail on that",
            remedy="give fewer candidates, or single traces",
        )
    kept = about is not None and not about.meta.get("pseudonymised")
    write_file(place_of(output), html, private=real or kept)
    return Report(output, page, size, about)


def trace_page(trace: Trace | Path, progress: Progress = unseen) -> Page:
    """Lay out the report of a single trace."""
    found = study(trace, progress=progress)
    path = found.explanation.trace
    studies = {found.name: found}
    explanation = found.explanation
    rows = trace_sections.hero_rows(studies)
    hero = Figure(
        key="hero",
        title="Time in calls, by family of calls and cause",
        finding=found.headline,
        caption=f"{trace_sections.method(studies)} Causes under 0.5 % of every bar are only in "
        "the table.",
        table=cause_figures.cause_table(rows, "calls"),
        plot=cause_figures.stacked(rows),
    )
    sections = [
        trace_sections.calls_section(studies),
        _trace_latency(found),
        *_recorded_sections(studies),
        trace_sections.quality_section(studies),
        _environment([["trace", str(path)]], studies),
    ]
    spools = ", ".join(s.get("fstype", "?") for s in explanation.meta.get("spools", []))
    return Page(
        title=f"spoolscope: {found.name}",
        eyebrow=f"{found.name} · recorded on {spools or 'an unknown filesystem'}",
        badge="partial" if explanation.remarks else "exact",
        headline=found.headline,
        sure=_trace_sure(explanation),
        reasons=found.findings,
        problems=explanation.remarks,
        next_command=f"spoolscope replay {path} --on ext4 --on xfs --on btrfs -o OUT",
        facts_title="Recording",
        facts=_trace_facts(found),
        hero=hero if rows else None,
        sections=sections,
        footer=_footer(),
    )


def replay_page(inputs: Sequence[Path], progress: Progress, trace: Path | None = None) -> Page:
    """Lay out the report of a replay."""
    return _replay_page(compare(inputs, progress=progress, trace=trace), progress)


def _replay_page(found: Comparison, progress: Progress, names: RealNames | None = None) -> Page:
    studies: dict[str, Study] = {}
    chosen = _studied(found)
    for name in chosen:
        candidate = found.candidates[name]
        run = next(r for r in found.replay.runs if r.candidate == name)
        part = len(studies) / len(chosen), (len(studies) + 1) / len(chosen)
        show = Phases(progress, {"studied": 1}, part=part, prefix=f"{run.directory.name}: ")
        if candidate.causes and run.trace is not None:
            comms = found.replay.recorded_comms(run)
            if names is not None:
                comms = {tid: names.comm(comm) for tid, comm in comms.items()}
            studies[name] = study(
                Trace.open(run.trace).with_names(names), name, comms, show.sub("studied")
            )
    verdict = found.verdict
    certificate = certificate_section(
        [run for run in found.replay.runs if run.candidate in chosen], chosen
    )
    life = life_section(found)
    sections = [
        *([replay_sections.compare_section(found)] if found.pairs else []),
        *([life] if life else []),
        *([trace_sections.calls_section(studies)] if studies else []),
        replay_sections.latency_section(found),
        *(_recorded_sections(studies) if studies else []),
        replay_sections.fidelity_section(found),
        *([certificate] if certificate else []),
        *([trace_sections.quality_section(studies)] if studies else []),
        _environment(replay_sections.environment_rows(found), studies, mounts=False),
    ]
    replayed = Path(str(found.replay.header["trace"])).name
    what = f"{replayed} {found.replay.what_if}".strip()
    notes = [] if studies else ["The runs were not recorded: causes are left out."]
    if left := len(found.candidates) - len(chosen):
        notes.append(
            f"Callers, commits, files and certificates are of {' and '.join(chosen)} alone; "
            f"'spoolscope explain' tells them of runs of the other {left}."
        )
    if found.replay.trace is None:
        notes.append(found.replay.without_trace)
    return Page(
        title=f"spoolscope: {what} on {', '.join(found.candidates)}",
        eyebrow=f"{what} replayed on {', '.join(found.candidates)}",
        badge=verdict.word,
        headline=verdict.headline,
        sure=" ".join((verdict.sure, *_conditions(found))),
        reasons=_reasons(found),
        problems=[*verdict.warnings, *verdict.problems, *notes],
        next_command=verdict.next_command,
        facts_title="Fidelity of the replay",
        facts=replay_sections.facts(found),
        hero=replay_sections.hero(found),
        sections=sections,
        footer=_footer(),
    )


def _studied(found: Comparison) -> list[str]:
    """Return the candidates that the page goes into: of many the best and the reference alone."""
    names = list(found.candidates)
    if len(names) <= STUDIED:
        return names
    return list(dict.fromkeys([names[0], found.reference, *names[1:2]]))[:2]


def _conditions(found: Comparison) -> tuple[str, str]:
    return caches_at_begin(found.replay.header), own_sentence(found.replay, found.own)


def _reasons(found: Comparison) -> list[str]:
    """Return the verdict's reasons, and the largest one of each candidate left out, if few are."""
    verdict = found.verdict
    if len(found.candidates) > STUDIED:
        return verdict.reasons
    others = [p for p in found.pairs if {p.candidate, p.reference} != {verdict.best, verdict.other}]
    more = [f"{p.why[0].text}." for p in others if p.why]
    return [*verdict.reasons[:3], *more]


def _recorded_sections(studies: dict[str, Study]) -> list[Section]:
    cpu = cpu_section(studies)
    return [
        callers_section(studies),
        trace_sections.time_section(studies),
        commit_sections.commits_section(studies),
        *([cpu] if cpu else []),
        commit_sections.culprits_section(studies),
        trace_sections.files_section(studies),
        trace_sections.slowest_section(studies),
    ]


def _trace_latency(found: Study) -> Section:
    calls = {found.name: [call.latency for call in found.explanation.by_syscall.values()]}
    curves = {found.name: found.curves}
    figure = Figure(
        key="tails",
        title="Share of calls that took longer",
        finding="The tail of the latency distribution by family of calls.",
        caption=f"1 - ECDF on log axes. {trace_sections.method({found.name: found})} Families "
        "with fewer than 100 calls are left out; curves are thinned to 800 points, densest in "
        "the tail.",
        table=replay_sections.curve_table(curves),
        plot=latency_figures.tails(curves),
    )
    table = trace_sections.latency_table(calls, "call")
    intro = "Further left and lower is better; a step to the right is a stall."
    return Section("latency", "Latency", "How long calls take", intro, [figure, table])


def _trace_sure(found: Explanation) -> str:
    recorded = duration(found.meta.get("duration_ns"))
    said = f"In {recorded}, {count(found.n_calls)} calls took {duration(found.filesystem_ns)}"
    if found.between_programs_ns:
        waited = duration(found.between_programs_ns)
        said += f" (and {waited} waiting for other programs: file locks, vfork; left out here)"
    return said + ". The parts of every call add up to its length exactly."


def _trace_facts(found: Study) -> list[Fact]:
    explanation, meta = found.explanation, found.explanation.meta
    lost, complete = int(meta.get("lost", 0)), bool(meta.get("complete", False))
    named, error = explanation.named_share, explanation.split.sum_error_ns
    return [
        Fact("complete", "yes" if complete else "no", complete),
        Fact("lost records", count(lost), lost == 0),
        Fact("sum error", f"{error} ns", error == 0),
        Fact("blocked, named", percent(named, 2), named >= 0.99),
        Fact("tier", str(meta.get("tier", "?"))),
        Fact("commits", count(explanation.commits.n)),
    ]


def _at(spool: dict[str, Any]) -> str:
    return f"{spool.get('mount')} "


def _environment(
    rows: list[list[str]], studies: dict[str, Study], *, mounts: bool = True
) -> Section:
    """Return the last section; where a replay was mounted for its time is nobody's business."""
    for name, found in studies.items():
        meta = found.explanation.meta
        rows.append([f"{name}: kernel", f"{meta.get('kernel', '?')} {meta.get('arch', '')}, "
                                        f"{meta.get('cpus') or '?'} CPUs"])  # fmt: skip
        rows += [
            [f"{name}: spool", f"{_at(s) if mounts else ''}{s.get('fstype')} ({s.get('options')})"]
            for s in meta.get("spools", [])
        ]
        if missing := meta.get("programs", {}).get("missing"):
            said = "; ".join(f"{program}: {reason}" for program, reason in missing.items())
            rows.append([f"{name}: not traced", said])
        beside = [*beyond_calls(Trace.open(found.explanation.trace)), *unjudged_calls(meta)]
        rows += [[f"{name}: beside calls", sentence] for sentence in beside]
        pseudonyms = "yes" if meta.get("pseudonymised") else "no"
        rows.append([f"{name}: names pseudonymised", pseudonyms])
    table = TableBlock("Environment", ["what", "~value"], rows, "As recorded by the tools.")
    return Section(
        "environment", "Environment", "Environment", "What is needed to do it again.", [table]
    )


def _footer() -> str:
    when = datetime.now(UTC).strftime("%Y-%m-%d %H:%M UTC")
    return f"Made by spoolscope {version('spoolscope')}, {when}."


def render(page: Page) -> str:
    """Return the HTML of a page: everything inline, nothing fetched."""
    folder = files("spoolscope.report").joinpath("templates")
    environment = Environment(
        autoescape=True, undefined=StrictUndefined, trim_blocks=True, finalize=_unbroken
    )
    environment.filters["shown"] = shown
    environment.tests["figure"] = lambda block: isinstance(block, Figure)
    environment.tests["split"] = lambda cell: isinstance(cell, Split)
    environment.tests["ranged"] = lambda cell: isinstance(cell, Ranged)
    template = environment.from_string(folder.joinpath("report.html.j2").read_text("utf-8"))
    return template.render(
        page=page,
        css=Markup(folder.joinpath("report.css").read_text("utf-8")),
        js=Markup(folder.joinpath("report.js").read_text("utf-8")),
        plotly=Markup(get_plotlyjs()),
        plot_json=_plot_json,
        kinds={">": "number", "~": "long"},
        causes=[(CAUSES[c], CAUSE_INKS[c].css) for c in CAUSES],
    )


def _unbroken(value: object) -> object:
    """Show every character, and keep a number and its unit on one line; markup stays as it is."""
    if isinstance(value, str) and not isinstance(value, Markup):
        return re.sub(r"(?<=\d) (?=(s|ms|µs|ns|%|x)(\W|$))", "\u00a0", shown(value))
    return value


def _plot_json(figure: Figure) -> Markup:
    text = shown_json(_plain(json.loads(figure.plot.to_json())))
    # A "</script>" inside a string would end the element that holds the JSON.
    return Markup(text.replace("</", "<\\/"))


def _plain(value: Any, key: str = "") -> Any:
    """Return a part of a figure with names in it as plain text: Plotly reads tags in texts."""
    if isinstance(value, dict):
        return {name: _plain(part, name) for name, part in value.items()}
    if isinstance(value, list):
        return [_plain(part, key) for part in value]
    if isinstance(value, str):
        return shown(value) if key in TAGGED else escape(shown(value), quote=False)
    return value
