"""Run notebooks and write them as pages: text, output, figures as SVG. `make notebooks` runs it."""

import base64
import json
import os
import platform
import sys
from datetime import date
from html import escape
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any
from urllib.parse import unquote

import jupytext
import mistune
import nbformat
from nbclient import NotebookClient
from plotly.offline import get_plotlyjs
from selenium import webdriver

TOP = Path(__file__).resolve().parents[1]
OUT = TOP / "notebooks/rendered"
PLOTLY = "application/vnd.plotly.v1+json"
ASKED = ("SPOOLSCOPE_SCALE", "SPOOLSCOPE_ROUNDS", "SPOOLSCOPE_VM")
STYLE = """
body { max-width: 52rem; margin: 2rem auto; padding: 0 1rem; color: #222;
  font: 16px/1.5 system-ui, sans-serif }
pre { padding: .6rem .8rem; overflow-x: auto; font-size: 13px; line-height: 1.35 }
pre.code { background: #f3f3f1 }
pre.out { border-left: 3px solid #0072b2; white-space: pre-wrap }
img { max-width: 100%; height: auto }
.made { color: #666; font-size: 13px; margin-top: 2rem }
summary { color: #666; cursor: pointer; font-size: 13px }
"""
DRAW = """
const done = arguments[2];
Plotly.toImage(JSON.parse(arguments[0]), {format: "svg", width: 820, height: arguments[1]})
  .then(done, error => done(String(error)));
"""


def execute(source: Path) -> Any:
    """Return the notebook of a py:percent file with the output of its cells."""
    notebook = jupytext.read(source)
    first = nbformat.v4.new_code_cell(
        "import plotly.io; plotly.io.renderers.default = 'plotly_mimetype'"
    )
    notebook.cells.insert(0, first)
    NotebookClient(notebook, timeout=None, resources={"metadata": {"path": TOP}}).execute()
    del notebook.cells[0]
    return notebook


class Drawer:
    """Draws plotly figures as SVG, in a browser without a window."""

    def __init__(self, place: Path) -> None:
        page = place / "draw.html"
        page.write_text(f"<meta charset=utf-8><script>{get_plotlyjs()}</script>")
        options = webdriver.ChromeOptions()
        for word in ("--headless=new", "--no-sandbox", "--disable-dev-shm-usage"):
            options.add_argument(word)
        self.browser = webdriver.Chrome(options=options)
        self.browser.set_script_timeout(60)
        self.browser.get(page.as_uri())

    def svg(self, figure: dict[str, Any]) -> str:
        """Return a figure as an <img> that holds it."""
        height = figure["layout"].get("height", 450)
        url = self.browser.execute_async_script(DRAW, json.dumps(figure), height)
        kind, _, body = url.partition(",")
        if not kind.startswith("data:image/svg"):
            raise RuntimeError(f"a figure could not be drawn: {url}")
        drawn = base64.b64encode(unquote(body).encode()).decode()
        return f'<img alt="figure" src="data:image/svg+xml;base64,{drawn}">'


def outputs(cell: Any, drawer: Drawer) -> str:
    """Return the output of a cell as HTML."""
    parts: list[str] = []
    printed = ""
    for output in cell.outputs:
        data = output.get("data", {})
        if "text" in output:  # printed lines may come one by one
            printed += output["text"]
            continue
        parts += text(printed)
        printed = ""
        parts += [drawer.svg(data[PLOTLY])] if PLOTLY in data else text(data.get("text/plain", ""))
    return "\n".join([*parts, *text(printed)])


def text(words: str) -> list[str]:
    """Return text as a block, if there is any."""
    return [f'<pre class="out">{escape(words)}</pre>'] if words else []


def page(notebook: Any, drawer: Drawer) -> str:
    """Return a notebook as one HTML page."""
    title = notebook.cells[0].source.splitlines()[0].lstrip("# ")
    parts = []
    for cell in notebook.cells:
        if cell.cell_type == "markdown":
            parts.append(mistune.html(cell.source))
            continue
        code = f'<pre class="code">{escape(cell.source)}</pre>'
        parts.append(f"<details><summary>code</summary>{code}</details>{outputs(cell, drawer)}")
    head = f"<!doctype html><html lang=en><meta charset=utf-8><title>{escape(title)}</title>"
    body = "\n".join(parts)
    whole = f"{head}<style>{STYLE}</style>\n{body}\n{made()}</html>\n"
    for place in (TOP, os.environ.get("SPOOLSCOPE_WORK", TOP)):  # paths of this machine say nothing
        whole = whole.replace(f"{place}/", "")
    return whole


def made() -> str:
    """Return when, where and how the notebook was run."""
    asked = [f"{name}={os.environ[name]}" for name in ASKED if name in os.environ]
    load = os.getloadavg()[2]
    machine = f"Linux {platform.release()}, {os.cpu_count()} CPUs at a load of {load:.1f}"
    command = " ".join(["sudo", *asked, "make notebooks"])
    return f"<p class=made>Run on {date.today()}, {machine}: <code>{command}</code></p>"


def main(sources: list[str]) -> None:
    """Render the notebooks of these paths, or all."""
    OUT.mkdir(exist_ok=True)
    # Results of another kernel stand beside those of this one.
    kernel = os.environ.get("SPOOLSCOPE_VM")
    ending = f"_linux_{kernel}.html" if kernel else ".html"
    chosen = [Path(word) for word in sources] or sorted((TOP / "notebooks").glob("*.py"))
    with TemporaryDirectory() as place:
        drawer = Drawer(Path(place))
        try:
            for source in chosen:
                print(f"running {source.name}", file=sys.stderr)
                (OUT / (source.stem + ending)).write_text(page(execute(source.resolve()), drawer))
        finally:
            drawer.browser.quit()


if __name__ == "__main__":
    main(sys.argv[1:])
