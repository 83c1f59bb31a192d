"""Pages of the site that are made from the sources: commands, causes, tables, calls, results."""

import posixpath
import re
from pathlib import Path

from mkdocs.config.defaults import MkDocsConfig
from mkdocs.structure.files import File, Files

from spoolscope.analysis.fleet.day_tables import DAY_TABLES
from spoolscope.cli.main import group
from spoolscope.cli.manual import markdown, topics
from spoolscope.cli.manual.pages import page_of
from spoolscope.traces import format as trace_format
from spoolscope.traces.calls import CALLS
from spoolscope.traces.rollups import layout

ROOT = Path(__file__).resolve().parents[1]
INCLUDED = {
    "ARCHITECTURE.md": "inside/architecture.md",
    "CONTRIBUTING.md": "contribute.md",
    "tracers/COST.md": "measured/cost.md",
    "analysis/GROUND-TRUTH.md": "measured/ground-truth.md",
    "analysis/GROUND-TRUTH-VM.md": "measured/ground-truth-vm.md",
    "analysis/INSIGHTS.md": "measured/insights.md",
    "analysis/RANKING.md": "measured/ranking.md",
    "analysis/DEVICE-MODELS.md": "measured/device-models.md",
    "analysis/FLEET.md": "measured/fleet.md",
    "analysis/MANY-NAMES.md": "measured/many-names.md",
    "traces/RESULTS.md": "reference/results-fields.md",
    "traces/samples/README.md": "reference/samples.md",
    "traces/samples/USING.md": "reference/using-samples.md",
}
"""Files of the repository that are pages, too; a link between them is kept."""
PLACES = INCLUDED | {"traces/FORMAT.md": "reference/tables.md"}
_LINK = re.compile(r"(?<!!)\[([^\]]+)\]\((?!https?:|#)([^)]+)\)")


def on_config(config: MkDocsConfig) -> MkDocsConfig:
    """List the pages of all commands where mkdocs.yml has the table of them."""
    pages = [place for place in made() if place.startswith("reference/commands/spoolscope-")]
    for entry in config.nav or []:
        for item in next(iter(entry.values())):
            if isinstance(item, dict) and "Commands" in item:
                item["Commands"] = [item["Commands"], *pages]
    return config


def on_files(files: Files, config: MkDocsConfig) -> Files:
    """Add the pages that are made."""
    for place, text in made().items():
        files.append(File.generated(config, place, content=text))
    return files


def made() -> dict[str, str]:
    """Return {place below docs/: Markdown} of all pages that are made from the sources."""
    root = page_of(group, "spoolscope")
    pages = {f"reference/commands/{verb.name}.md": markdown.markdown(verb) for verb in root.verbs}
    pages["reference/commands/index.md"] = markdown.index(root)
    pages |= {f"concepts/{topic}.md": topics.text(topic) for topic in topics.MADE}
    pages["reference/tables.md"] = trace_format.text()
    pages["reference/rollups.md"] = layout.text()
    pages["reference/day-sums.md"] = _day_sums()
    pages["reference/calls.md"] = _calls()
    return pages | {place: _included(name, place) for name, place in INCLUDED.items()}


def _day_sums() -> str:
    where = "`days=1/TABLE/date=YYYY-MM-DD/all.parquet`"
    head = f"# Day sums\n\nWhat `spoolscope fleet days` writes: {where}.\n"
    return "\n".join([head, *(trace_format.table_text(table) for table in DAY_TABLES.values())])


def _calls() -> str:
    rows = [f"| `{c.name}` | {c.klass} | {c.effect} | {c.family} |" for c in CALLS.values()]
    head = f"# Calls\n\nThese {len(CALLS)} kinds of calls are recorded and replayed.\n"
    return "\n".join([head, "| call | class | effect | family |", "|---|---|---|---|", *rows, ""])


def _included(name: str, place: str) -> str:
    """Return a file of the repository; of links out of the site only the words stay."""

    def linked(match: re.Match[str]) -> str:
        words, target = match.groups()
        target, _, anchor = target.partition("#")
        found = posixpath.normpath(posixpath.join(posixpath.dirname(name), target))
        there = PLACES.get(found, found.removeprefix("docs/") if found.startswith("docs/") else "")
        if not there:
            return words
        relative = posixpath.relpath(there, posixpath.dirname(place))
        return f"[{words}]({relative}{'#' + anchor if anchor else ''})"

    return _LINK.sub(linked, (ROOT / name).read_text())
