"""Time by kind of file, the hot directories, and the cost of lookups in directories."""

from spoolscope.analysis.causes import CAUSES, charged
from spoolscope.analysis.lookups import FEW_SAMPLES, INDEX, LookupCost, worth_saying
from spoolscope.analysis.study import Study
from spoolscope.analysis.wording import count, percent
from spoolscope.report.figures import causes as cause_figures
from spoolscope.report.figures.base import count_cell, time_cell
from spoolscope.report.figures.directories import costs_by_size
from spoolscope.report.inputs import Inputs, Studies
from spoolscope.report.page import Exact, Figure, Section, Table, TableBlock

anchor = "files"
TOP_CLASSES = 12


def applies(page: Inputs) -> bool:
    """Return True if a trace was studied."""
    return bool(page.studies)


def make(page: Inputs) -> Section:
    """Time by kind of file, and the hot directories."""
    studies = page.studies
    names: dict[str, float] = {}
    for study in studies.values():
        for row in study.path_classes:
            names[row.name] = names.get(row.name, 0) + sum(charged(row.causes).values())
    shown = sorted(names, key=lambda name: -names[name])[:TOP_CLASSES]
    groups = []
    for name, study in studies.items():
        found = {row.name: row.causes for row in study.path_classes}
        groups.append((name, [(kind, found.get(kind, {})) for kind in shown]))
    rows = [(f"{name}: {kind}", causes) for name, part in groups for kind, causes in part]
    figure = Figure(
        key="files",
        title="Time in calls, by kind of file",
        finding=f"Most time is spent on: {', '.join(shown[:3])}.",
        caption="The kind follows from the name (pseudonyms keep the words a mail server uses). "
        f"{page.method}",
        table=cause_figures.cause_table(rows, "kind"),
        plot=cause_figures.panels(groups),
    )
    tables = [_directories(name, study) for name, study in studies.items()]
    intro = "Mail servers use few kinds of files; each waits for other things."
    lookups = _lookups(studies)
    blocks = [figure, *([lookups] if lookups else []), *tables]
    return Section(anchor, "Files", "Which files", intro, blocks)


def _directories(name: str, study: Study) -> TableBlock:
    rows = [
        [
            directory.path or "(top of the spool)",
            count_cell(directory.entries),
            count_cell(directory.n),
            time_cell(directory.total_ns),
            time_cell(directory.total_ns / max(directory.n, 1)),
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


def _lookups(studies: Studies) -> Figure | TableBlock | None:
    """Return the cost of lookups, as a figure if the directories' numbers of names are known.

    None if no directory's is known.
    """
    known = {
        name: [cost for cost in study.explanation.lookups if not cost.guessed]
        for name, study in studies.items()
    }
    guessed = sum(len(s.explanation.lookups) for s in studies.values()) - sum(
        map(len, known.values())
    )
    rows = [
        [name, *_lookup_row(cost, sampled=studies[name].explanation.cpu is not None)]
        for name, costs in known.items()
        for cost in costs
    ]
    if not rows:
        return None
    heads = [
        "trace",
        "~directory",
        ">names",
        "index",
        ">reads",
        "mostly",
        ">lock",
        ">CPU",
        ">share",
    ]
    saying = [sentence for costs in known.values() for sentence in worth_saying(costs)[:5]]
    caption = " ".join([
        "What finding, adding and removing names cost: waiting for blocks of the directory and "
        "for its lock, exactly; time on the CPU by samples. Share: of the time in calls.",
        *([f"Left out: {count(guessed)} known from fewer than {FEW_SAMPLES} samples only."]
          if guessed else []),
    ])  # fmt: skip
    title = "Directory lookups"
    sized = {name: [c for c in costs if c.entries is not None] for name, costs in known.items()}
    n = sum(map(len, sized.values()))
    if not n:
        return TableBlock(title, heads, rows, " ".join([*saying, caption]))
    return Figure(
        key="lookups",
        title=f"{title}: cost by number of names",
        finding=saying[0] if saying else "No directory stands out.",
        caption=" ".join([f"{count(n)} directories.", *saying[1:], caption]),
        table=Table(heads, rows),
        plot=costs_by_size(sized),
    )


def _lookup_row(cost: LookupCost, *, sampled: bool) -> list[str | Exact]:
    return [
        cost.path or "(top of the spool)",
        "-" if cost.entries is None else count_cell(cost.entries),
        INDEX[cost.index],
        time_cell(cost.lookup_io_ns),
        cost.reads_for or "-",
        time_cell(cost.dir_lock_ns),
        time_cell(cost.cpu_ns) if sampled else "-",
        percent(cost.share),
    ]
