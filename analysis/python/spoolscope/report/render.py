"""A page as one HTML file: everything inline, nothing fetched."""

import json
import re
from html import escape
from importlib.resources import files
from typing import Any

from jinja2 import Environment, StrictUndefined
from markupsafe import Markup
from plotly.offline import get_plotlyjs

from spoolscope.analysis.causes import CAUSES
from spoolscope.report.page import Figure, Page, Ranged, Split
from spoolscope.report.palette import CAUSE_INKS
from spoolscope.traces.text import shown, shown_json

# Texts of a figure with tags of ours.
TAGGED = ("hovertemplate", "ticktext")


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
