"""Build the report: read the inputs, lay out the page, write one HTML file."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from pathlib import Path
from shlex import quote

from spoolscope.analysis.bins import MAX_BINS
from spoolscope.analysis.compare import Comparison, compare
from spoolscope.analysis.conditions import caches_at_begin
from spoolscope.analysis.disk_traces import is_disk_trace
from spoolscope.analysis.outcomes import is_replay
from spoolscope.analysis.own_filesystem import own_sentence
from spoolscope.analysis.recordings.moved import compare_recordings
from spoolscope.analysis.study import Study, study
from spoolscope.report import first_screen
from spoolscope.report.disk_page import disk_page
from spoolscope.report.inputs import Inputs
from spoolscope.report.page import Page
from spoolscope.report.recordings_page import recordings_page
from spoolscope.report.render import render
from spoolscope.report.sections import laid_out
from spoolscope.traces.errors import USAGE, SpoolscopeError
from spoolscope.traces.files import write_file
from spoolscope.traces.output import place_of
from spoolscope.traces.phases import Phases, Progress, unseen
from spoolscope.traces.reveal import DO_NOT_GIVE_AWAY, RealNames
from spoolscope.traces.trace import Trace
from spoolscope.traces.version import version

LIMIT_BYTES = 8_000_000
STUDIED = 4
"""Most candidates for which callers, commits, culprits and files of all are shown."""

Named = Callable[[Trace], Trace]


@dataclass(frozen=True)
class Report:
    """A built report: the file, its page, its size, and its trace if available."""

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
    """Write the report of a trace, of two recordings, or of one or more replays of a trace.

    Args:
        inputs: The trace, two traces before and after a change, or directories of replays.
        output: File to write.
        progress: Called with a sentence and the fraction done.
        trace: The replayed trace, if it is no longer where it was beside the replay.
        named: Function that gives a trace real names; only its owner can then read the report.
        reference: Candidate with which the others are compared.

    Raises:
        SpoolscopeError: an input is neither, is damaged, or the inputs do not belong together.
    """
    show = progress or unseen
    kept = False
    if all(is_replay(path) for path in inputs):
        found = compare(inputs, reference, show, trace)
        about = named(found.replay.trace) if found.replay.trace else None
        page = _replay_page(found, show, about.names if about else None)
    elif len(inputs) == 1:
        about = named(Trace.open(inputs[0]))
        page = trace_page(about, show)
    elif len(inputs) == 2 and not any(is_replay(path) for path in inputs):
        about, after = (named(Trace.open(path)) for path in inputs)
        page = recordings_page(compare_recordings(about, after, show), _footer())
        kept = not after.meta.get("pseudonymised")
    else:
        raise SpoolscopeError(
            "a report is of one trace, of two that are compared, or of replays of one trace",
            remedy="give one or two traces, or only directories that 'spoolscope replay -o' wrote",
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
    kept |= about is not None and not about.meta.get("pseudonymised")
    write_file(place_of(output), html, private=real or kept)
    return Report(output, page, size, about)


def trace_page(trace: Trace | Path, progress: Progress = unseen) -> Page:
    """Lay out the report of a single trace."""
    opened = trace if isinstance(trace, Trace) else Trace.open(trace)
    if is_disk_trace(opened):
        return disk_page(opened, _footer(), progress)
    found = study(opened, progress=progress)
    inputs = Inputs({found.name: found})
    explanation = found.explanation
    spools = ", ".join(s.get("fstype", "?") for s in explanation.meta.get("spools", []))
    candidates = "--on ext4 --on xfs --on btrfs -o OUT"
    again = f"sudo spoolscope replay {quote(str(explanation.trace))} {candidates}"
    return Page(
        title=f"spoolscope: {found.name}",
        eyebrow=f"{found.name} · recorded on {spools or 'an unknown filesystem'}",
        badge="partial" if explanation.remarks else "exact",
        headline=found.headline,
        sure=first_screen.trace_sure(explanation),
        reasons=found.findings,
        problems=explanation.remarks,
        next_command=again,
        facts_title="Recording",
        facts=first_screen.trace_facts(found),
        hero=first_screen.trace_hero(inputs),
        sections=laid_out(inputs),
        footer=_footer(),
    )


def replay_page(inputs: Sequence[Path], progress: Progress, trace: Path | None = None) -> Page:
    """Lay out the report of a replay."""
    return _replay_page(compare(inputs, progress=progress, trace=trace), progress)


def _replay_page(found: Comparison, progress: Progress, names: RealNames | None = None) -> Page:
    chosen = _chosen(found)
    studies = _studied(found, chosen, progress, names)
    verdict = found.verdict
    replayed = Path(found.replay.header.trace).name
    what = f"{replayed} {found.replay.what_if}".strip()
    return Page(
        title=f"spoolscope: {what} on {', '.join(found.candidates)}",
        eyebrow=f"{what} replayed on {', '.join(found.candidates)}",
        badge=verdict.word,
        headline=verdict.headline,
        sure=" ".join((verdict.sure, *_conditions(found))),
        reasons=_reasons(found),
        problems=[*verdict.warnings, *verdict.problems, *_notes(found, chosen, studies)],
        next_command=verdict.next_command,
        facts_title="Fidelity of the replay",
        facts=first_screen.replay_facts(found),
        hero=first_screen.replay_hero(found),
        sections=laid_out(Inputs(studies, found, chosen)),
        footer=_footer(),
    )


def _studied(
    found: Comparison, chosen: Sequence[str], progress: Progress, names: RealNames | None
) -> dict[str, Study]:
    """Study the first run of each chosen candidate whose runs were recorded."""
    studies: dict[str, Study] = {}
    # Limits the bins so that a page of several traces is no larger than one of a single trace.
    bins = MAX_BINS // len(chosen)
    for name in chosen:
        run = next(r for r in found.replay.runs if r.candidate == name)
        part = len(studies) / len(chosen), (len(studies) + 1) / len(chosen)
        show = Phases(progress, {"studied": 1}, part=part, prefix=f"{run.directory.name}: ")
        if found.candidates[name].causes and run.trace is not None:
            comms = found.replay.recorded_comms(run)
            if names is not None:
                comms = {tid: names.comm(comm) for tid, comm in comms.items()}
            studies[name] = study(
                Trace.open(run.trace).with_names(names), name, comms, show.sub("studied"), bins
            )
    return studies


def _notes(found: Comparison, chosen: Sequence[str], studies: Mapping[str, Study]) -> list[str]:
    """Return sentences on what the page leaves out."""
    notes = [] if studies else ["The runs were not recorded: causes are left out."]
    if left := len(found.candidates) - len(chosen):
        notes.append(
            f"Callers, commits, files and certificates are of {' and '.join(chosen)} alone; "
            f"'spoolscope explain' tells them of runs of the other {left}."
        )
    if found.replay.trace is None:
        notes.append(found.replay.without_trace)
    return notes


def _chosen(found: Comparison) -> list[str]:
    """Return the candidates shown in detail: of many, only the best and the reference."""
    names = list(found.candidates)
    if len(names) <= STUDIED:
        return names
    return list(dict.fromkeys([names[0], found.reference, *names[1:2]]))[:2]


def _conditions(found: Comparison) -> tuple[str, str]:
    return caches_at_begin(found.replay.header), own_sentence(found.replay, found.own)


def _reasons(found: Comparison) -> list[str]:
    """Return the verdict's reasons; if few candidates are left out, the largest of each, too."""
    verdict = found.verdict
    if len(found.candidates) > STUDIED:
        return verdict.reasons
    others = [p for p in found.pairs if {p.candidate, p.reference} != {verdict.best, verdict.other}]
    more = [f"{p.why[0].text}." for p in others if p.why]
    return [*verdict.reasons[:3], *more]


def _footer() -> str:
    when = datetime.now(UTC).strftime("%Y-%m-%d %H:%M UTC")
    return f"Made by spoolscope {version()}, {when}."
