"""A window of the report in a real browser: by brush and keyboard, with hover and CSV files."""

import csv
import io
from collections import Counter
from pathlib import Path

import pytest

from spoolscope.analysis.bins import SLOWEST
from spoolscope.analysis.causes import BETWEEN_PROGRAMS
from spoolscope.analysis.explain import explain
from spoolscope.analysis.selection import Selection
from spoolscope.report.build import build
from spoolscope.report.explorer import Explorer
from spoolscope.traces.slices import Slice
from spoolscope.traces.trace import Trace

pytestmark = pytest.mark.slow

SAMPLE = Path(__file__).parents[3] / "traces/samples/postfix-dovecot"
NS = 1_000_000_000
LIMIT_BYTES = 8_000_000


@pytest.fixture(scope="module")
def report(tmp_path_factory):
    """Return the report of a recorded mail server."""
    return build([SAMPLE], tmp_path_factory.mktemp("window") / "report.html")


@pytest.fixture
def page(browser, open_report, report):
    """Return the browser with that report."""
    if browser.current_url != report.path.as_uri():
        open_report(report)
    return browser


def in_view(page, selector):
    found = page.find_element("css selector", selector)
    page.execute_script(
        "arguments[0].scrollIntoView({block: 'center', behavior: 'instant'})", found
    )
    return found


def rows_of(page, table):
    return page.execute_script(
        "return [...document.querySelectorAll(arguments[0] + ' tbody tr')].map(row => "
        "[...row.cells].map(cell => cell.dataset.ns ?? cell.dataset.n ?? cell.textContent))",
        f"#window-explorer-0 {table}",
    )


def type_window(page, begin, end):
    page.execute_script(
        "const form = document.querySelector('#window-explorer-0 form');"
        "form.elements.from.value = arguments[0]; form.elements.to.value = arguments[1];"
        "form.elements.to.dispatchEvent(new Event('change'))",
        begin,
        end,
    )


def check_window(page, begin_ns, end_ns):
    """Compare the page with queries of the trace itself."""
    trace = Trace.open(SAMPLE)
    start = trace.meta["start_ns"]
    begun = f"ts_ns >= {start + begin_ns} AND ts_ns < {start + end_ns}"
    with trace.connect() as con:
        programs = con.execute(
            f"SELECT comm, count(*) FROM syscalls WHERE {begun} GROUP BY comm ORDER BY comm"
        ).fetchall()
        ((ns,),) = con.execute(f"SELECT sum(dur_ns) FROM syscalls WHERE {begun}").fetchall()
        slowest = con.execute(
            f"SELECT syscall, dur_ns FROM syscalls WHERE {begun} AND syscall NOT IN "
            f"('fcntl', 'flock') ORDER BY dur_ns DESC LIMIT {SLOWEST}"
        ).fetchall()
    shown = {label: int(time) for label, time, _ in rows_of(page, ".causes-of")}
    assert sum(shown.values()) == ns
    causes = explain(trace, selection=Selection(part=Slice(begin_ns, end_ns))).causes
    assert sorted(shown.values()) == sorted(causes.values())
    by_program = Counter()
    for name, n, *_ in rows_of(page, ".processes-of"):
        by_program[name.rpartition(" (")[0]] += int(n)
    assert sorted(by_program.items()) == programs
    between = sum(causes.get(cause, 0) for cause in BETWEEN_PROGRAMS)
    assert sum(int(time) for _, _, time, _ in rows_of(page, ".processes-of")) == ns - between
    found = [(call, int(took)) for _, _, call, _, took, _ in rows_of(page, ".slowest-of")]
    assert found == slowest
    return causes


def test_a_typed_window_shows_what_the_trace_says(page):
    type_window(page, 4, 6)
    check_window(page, 4 * NS, 6 * NS)
    said = page.execute_script("return document.querySelector('#window-explorer-0').innerText")
    assert "4 s to 6 s: " in said
    assert f"spoolscope explain {SAMPLE} --slice 4..6" in said
    type_window(page, 16.3, 16.3)  # the whole bin around it
    check_window(page, 16_200_000_000, 16_400_000_000)


def test_a_window_is_brushed_with_the_pointer(page, report):
    from selenium.webdriver.common.action_chains import ActionChains

    layer = in_view(page, "#plot-explorer-0 .nsewdrag")
    wide = layer.size["width"]
    drag = ActionChains(page).move_to_element_with_offset(layer, -round(wide * 0.3), 0)
    drag.click_and_hold().move_by_offset(round(wide * 0.1), 5).move_by_offset(round(wide * 0.1), 0)
    drag.release().perform()
    begin, end = (
        round(float(page.execute_script(
            f"return document.querySelector('#window-explorer-0 [name={name}]').value")) * NS)
        for name in ("from", "to")
    )  # fmt: skip
    (explorer,) = (f for f in report.page.figures if isinstance(f, Explorer))
    whole = explorer.data["n"] * explorer.data["bin_ns"]
    assert begin == pytest.approx(0.2 * whole, rel=0.05)
    assert end - begin == pytest.approx(0.2 * whole, rel=0.1)
    check_window(page, begin, end)
    page.execute_script("document.querySelector('#window-explorer-0 [name=all]').click()")
    marked = "return document.getElementById('plot-explorer-0').layout.shapes.length"
    assert page.execute_script(marked) == 0


def test_the_busiest_bin_is_a_click_away(page, report):
    page.execute_script("document.querySelector('#window-explorer-0 [name=worst]').click()")
    (explorer,) = (f for f in report.page.figures if isinstance(f, Explorer))
    begin = explorer.data["worst"] * explorer.data["bin_ns"]
    check_window(page, begin, begin + explorer.data["bin_ns"])


def test_the_pointer_is_told_what_it_is_on(page):
    from selenium.webdriver.common.action_chains import ActionChains
    from selenium.webdriver.support.ui import WebDriverWait

    layer = in_view(page, "#plot-explorer-0 .nsewdrag")
    dense = round(layer.size["height"] * 0.2)
    ActionChains(page).move_to_element_with_offset(layer, 3, dense).perform()
    hover = "return document.querySelector('#plot-explorer-0 .hoverlayer')?.textContent ?? ''"
    said = WebDriverWait(page, 5).until(lambda b: b.execute_script(hover))
    assert " calls of " in said
    bar = in_view(page, ".fall[open] .track i")
    ActionChains(page).move_to_element(bar).perform()
    readout = page.find_element("css selector", ".fall[open] .readout")
    assert readout.get_attribute("textContent") == bar.get_attribute("title")


def saved(page, selector):
    """Return the name and the rows of the file that a button saves."""
    name, text = page.execute_async_script(
        "const [selector, done] = arguments;"
        "const make = URL.createObjectURL, click = HTMLAnchorElement.prototype.click; let blob;"
        "URL.createObjectURL = (one) => { blob = one; return make(one); };"
        "HTMLAnchorElement.prototype.click = function () {"
        "  const name = this.download; blob.text().then((text) => done([name, text])); };"
        "document.querySelector(selector).click();"
        "URL.createObjectURL = make; HTMLAnchorElement.prototype.click = click;",
        selector,
    )
    return name, list(csv.reader(io.StringIO(text)))


def test_a_saved_table_has_the_exact_numbers(page, report):
    name, rows = saved(page, "#figure-explorer-0 > details button.csv")
    (explorer,) = (f for f in report.page.figures if isinstance(f, Explorer))
    assert name == "latency-over-time-postfix-dovecot.csv"
    assert rows[0][:5] == ["from (ns)", "calls", "time (ns)", "mostly", "slowest call (ns)"]
    table = explorer.table.rows
    assert len(rows) - 1 == len(table) == explorer.data["n"]
    for row, cells in zip(rows[1:], table, strict=True):
        assert row == [str(getattr(cell, "value", cell)) for cell in cells]
    assert sum(int(row[2]) for row in rows[1:]) == explain(SAMPLE).latency_ns
    type_window(page, 4, 6)
    _, rows = saved(page, "#window-explorer-0 .causes-of button.csv")
    assert [row[1] for row in rows[1:]] == [row[1] for row in rows_of(page, ".causes-of")]


def test_no_cell_of_a_saved_table_is_a_formula(page):
    found = page.execute_script(
        "return arguments[0].map(text => quoted(guarded(text)))",
        ["=1+1", "+b7ahyrx", "-", "-5", "@x", "a=b", 'x,"y"'],
    )
    assert found == ["'=1+1", "'+b7ahyrx", "-", "'-5", "'@x", "a=b", '"x,""y"""']


def test_durations_are_written_as_everywhere(page):
    from spoolscope.analysis.wording import count, duration, percent

    times = [0, 1, 999, 1000, 9994, 9996, 12_345, 999_600, 1_500_000, 123_456_789, 61e9, 12_345e9]
    shares = [0, 0.0004, 0.001, 0.5, 0.99949, 0.9999, 1]
    found = page.execute_script(
        "return [arguments[0].map(durationText), arguments[0].map(grouped), "
        "arguments[1].map(percentText)]",
        times,
        shares,
    )
    plain = [[text.replace("\u00a0", " ") for text in texts] for texts in found]
    assert plain == [
        [duration(ns) for ns in times],
        [count(int(ns)) for ns in times],
        [percent(share) for share in shares],
    ]


def test_the_report_is_small_enough_to_send(report):
    assert report.bytes <= LIMIT_BYTES
