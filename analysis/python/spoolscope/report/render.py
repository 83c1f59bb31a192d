"""A page as one self-contained HTML file."""

import json
import re
from collections.abc import Sequence
from html import escape
from importlib.resources import files
from importlib.resources.abc import Traversable
from typing import Any

from jinja2 import Environment, StrictUndefined
from markupsafe import Markup
from plotly.offline import get_plotlyjs

from spoolscope.analysis.causes import CAUSES
from spoolscope.report.explorer import Explorer
from spoolscope.report.page import Exact, Falls, Figure, Page, Ranged, Split
from spoolscope.report.palette import CAUSE_INKS, PART_INKS
from spoolscope.traces.text import shown, shown_json

# Texts of a figure that contain our own tags.
TAGGED = ("hovertemplate", "ticktext")
STYLES = ("report.css", "falls.css", "explorer.css")
SCRIPTS = ("report.js", "csv.js", "falls.js", "explorer.js")


def render(page: Page) -> str:
    """Return the HTML of a page: everything inline, nothing fetched."""
    folder = files("spoolscope.report").joinpath("templates")
    environment = Environment(
        autoescape=True, undefined=StrictUndefined, trim_blocks=True, finalize=_unbroken
    )
    environment.filters["shown"] = shown
    environment.filters["split"] = Split.of
    environment.filters["json"] = lambda data: _in_script(shown_json(_visible(data)))
    environment.tests["figure"] = lambda block: isinstance(block, Figure)
    environment.tests["explorer"] = lambda block: isinstance(block, Explorer)
    environment.tests["falls"] = lambda block: isinstance(block, Falls)
    environment.tests["exact"] = lambda cell: isinstance(cell, Exact)
    environment.tests["split"] = lambda cell: isinstance(cell, Split)
    environment.tests["in_words"] = lambda head: head.startswith("~")
    environment.tests["ranged"] = lambda cell: isinstance(cell, Ranged)
    template = environment.from_string(folder.joinpath("report.html.j2").read_text("utf-8"))
    return template.render(
        page=page,
        css=_joined(folder, STYLES),
        js=_joined(folder, SCRIPTS),
        plotly=Markup(get_plotlyjs()),
        plot_json=_plot_json,
        kinds={">": "number", "~": "long"},
        causes=[(CAUSES[c], CAUSE_INKS[c].css) for c in CAUSES],
        inks=[(key, ink.css) for key, ink in (CAUSE_INKS | PART_INKS).items()],
    )


def _joined(folder: Traversable, names: Sequence[str]) -> Markup:
    return Markup("\n".join(folder.joinpath(name).read_text("utf-8") for name in names))


def _unbroken(value: object) -> object:
    """Make every character visible, and keep number and unit on one line; markup is unchanged."""
    if isinstance(value, str) and not isinstance(value, Markup):
        return re.sub(r"(?<=\d) (?=(s|ms|µs|ns|%|x)(\W|$))", "\u00a0", shown(value))
    return value


def _plot_json(figure: Figure) -> Markup:
    return _in_script(shown_json(_plain(json.loads(figure.plot.to_json()))))


def _visible(value: Any) -> Any:
    """Return data with every character of its texts visible."""
    if isinstance(value, dict):
        return {name: _visible(part) for name, part in value.items()}
    if isinstance(value, list):
        return [_visible(part) for part in value]
    return shown(value) if isinstance(value, str) else value


def _in_script(text: str) -> Markup:
    """Return JSON for a script element, with "</script>" and "<!--" in strings escaped."""
    return Markup(text.replace("<", "\\u003c"))


def _plain(value: Any, key: str = "") -> Any:
    """Return a part of a figure with names escaped, as Plotly interprets tags in texts."""
    if isinstance(value, dict):
        return {name: _plain(part, name) for name, part in value.items()}
    if isinstance(value, list):
        return [_plain(part, key) for part in value]
    if isinstance(value, str):
        return shown(value) if key in TAGGED else escape(shown(value), quote=False)
    return value
