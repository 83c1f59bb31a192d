"""The report in a real browser without a network: no errors, all drawn, no requests."""

import itertools
import json
from pathlib import Path

import pytest
from spoolscope_testing.replay_builder import ReplayBuilder
from spoolscope_testing.trace_builder import TraceBuilder

from spoolscope.report.build import build

pytestmark = pytest.mark.slow

MS = 1_000_000
N = 400
WAITS = {
    "ext4": "schedule < jbd2_log_wait_commit < ext4_sync_file",
    "xfs": "schedule < xlog_wait_on_iclog < xfs_log_force_seq",
}


@pytest.fixture(scope="module")
def report(tmp_path_factory):
    """Return the report of a replay on two candidates, both recorded."""
    place = tmp_path_factory.mktemp("report")
    builder = TraceBuilder(place / "trace")
    for n in range(N):
        builder.call("fsync" if n % 3 == 0 else "openat", n * 30 * MS, 1000, path=f"u/tmp/{n}")
    replay = ReplayBuilder(place / "out", builder.write(), N)
    for number, (name, stack) in enumerate(WAITS.items(), start=1):
        recorded = TraceBuilder(replay.run(name, [number * MS] * N) / "trace")
        for n in range(N):
            recorded.call("fsync", n * 30 * MS, 1000, ((stack, number * MS),), path=f"u/cur/{n}")
            recorded.commit(n * 30 * MS, number * MS)
        recorded.write()
    return build([replay.write()], place / "report.html")


def requests_of(browser):
    events = (json.loads(entry["message"])["message"] for entry in browser.get_log("performance"))
    sent = (e["params"] for e in events if e["method"] == "Network.requestWillBeSent")
    return [params["request"]["url"] for params in sent]


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_report_opens_silently_without_a_network(browser, open_report, report, scheme):
    browser.execute_cdp_cmd(
        "Emulation.setEmulatedMedia",
        {"features": [{"name": "prefers-color-scheme", "value": scheme}]},
    )
    open_report(report)
    assert browser.get_log("browser") == []
    foreign = [u for u in requests_of(browser) if not u.startswith(("file:", "data:", "blob:"))]
    assert foreign == []
    plots = browser.execute_script("return document.querySelectorAll('.js-plotly-plot').length")
    folded = [figure for figure in report.page.figures if figure.folded]
    assert (plots, len(folded)) == (9, 3)
    ink = browser.execute_script("return getComputedStyle(document.body).backgroundColor")
    assert (ink == "rgb(20, 23, 27)") == (scheme == "dark")


def test_folded_figures_are_drawn_when_they_are_opened(browser, open_report, report):
    from selenium.webdriver.support.ui import WebDriverWait

    open_report(report)
    drawn = "return [...document.querySelectorAll('.js-plotly-plot')].filter(p => p.offsetWidth)"
    assert len(browser.execute_script(drawn)) == len(report.page.figures) - 3
    browser.execute_script("document.querySelectorAll('details.block').forEach(d => d.open = true)")
    WebDriverWait(browser, 20).until(
        lambda b: len(b.execute_script(drawn)) == len(report.page.figures)
    )


def test_nothing_offers_to_send_anything(browser, open_report, report):
    open_report(report)
    words = browser.execute_script(
        "return [...document.querySelectorAll('a, button, [role=button], [data-title], [title]')]"
        ".map(e => [e.textContent, e.title, e.dataset.title, e.getAttribute('href')].join(' '))"
    )
    assert words
    for word in ("share", "upload", "send", "cloud", "http:", "https:"):
        assert not [text for text in words if word in text.lower()], word


def test_the_first_screen_answers(browser, open_report, report):
    open_report(report)
    text = browser.execute_script(
        "return [...document.querySelectorAll("
        "'h1, .sure, .reasons li, .facts, #figure-hero .plot')]"
        ".filter(e => e.getBoundingClientRect().bottom <= window.innerHeight)"
        ".map(e => e.innerText).join('\\n')"
    )
    text = text.replace("\u00a0", " ")
    assert report.page.headline in text
    assert report.page.sure in text
    assert report.page.reasons[0] in text
    assert "Fidelity of the replay" in text
    hero = browser.execute_script(
        "return document.querySelector('#plot-hero').getBoundingClientRect().top"
    )
    assert hero < 600
    wide = browser.execute_script("return document.documentElement.scrollWidth - innerWidth")
    assert wide <= 0


def test_bars_have_the_colours_of_their_causes(browser, open_report, report):
    open_report(report)
    fills = browser.execute_script(
        "return [...document.querySelectorAll('#plot-hero .bars path')]"
        ".map(e => getComputedStyle(e).fill)"
    )
    assert "rgb(213, 94, 0)" in fills


def test_tables_stand_beside_every_figure(browser, open_report, report):
    open_report(report)
    missing = browser.execute_script(
        "return [...document.querySelectorAll('figure')].filter(f => "
        "!f.querySelector('details tbody tr') || !f.querySelector('figcaption').textContent || "
        "!f.querySelector('[role=img]').getAttribute('aria-label')).map(f => f.id)"
    )
    assert missing == []


@pytest.fixture(params=[0.02, 0.3, 1.5, 300], ids=["close", "apart", "far", "scattered"])
def ratios(request, builder, new_replay, tmp_path):
    """Return the report of three rounds with ratios that differ that much between rounds."""
    for n in range(N):
        builder.call("fsync" if n % 3 == 0 else "openat", n * 30 * MS, 1000)
    replay = new_replay("out", builder.write(), N, rounds=3)
    for round_ in range(3):
        replay.run("ext4", [MS] * N, round_)
        for name, sign in (("xfs", -1), ("btrfs", 1)):
            scale = (1 + request.param) ** (sign * (round_ + 1))
            replay.run(name, [round(MS * scale * (1 + n % 5)) for n in range(N)], round_)
    return build([replay.write()], tmp_path / "report.html")


@pytest.mark.parametrize("width", [1400, 500])
def test_ticks_of_ratios_stand_apart(browser, open_report, ratios, width):
    browser.set_window_size(width, 1000)
    try:
        open_report(ratios)
        places = browser.execute_script(
            "return [...document.querySelectorAll('#plot-forest .xtick text')]"
            ".map(e => e.getBoundingClientRect()).map(r => [r.left, r.right])"
        )
    finally:
        browser.set_window_size(1400, 1000)
    assert len(places) >= 2
    places.sort()
    for (_, right), (left, _) in itertools.pairwise(places):
        assert right + 4 <= left


@pytest.fixture(scope="module")
def of_sample(tmp_path_factory):
    """Return the report of a sample, whose calls are of eleven families."""
    sample = Path(__file__).resolve().parents[3] / "traces/samples/postfix-dovecot"
    return build([sample], tmp_path_factory.mktemp("sample") / "report.html")


def overlapping(browser):
    """Return the labels and titles of panels that lie on one another, or beyond their figure."""
    return browser.execute_script(
        "return ['tails', 'block-times'].flatMap(key => {"
        "const whole = document.getElementById(`plot-${key}`);"
        "const texts = [...whole.querySelectorAll("
        "'[class^=x][class$=tick] text, .annotation-text')];"
        "const boxes = texts.map(e => [e.textContent, e.getBoundingClientRect()]);"
        "const out = boxes.filter(([, r]) => r.right > innerWidth || r.left < 0);"
        "const pairs = boxes.flatMap(([said, a], n) => boxes.slice(n + 1).filter(([, b]) =>"
        "a.left < b.right && b.left < a.right && a.top < b.bottom && b.top < a.bottom)"
        ".map(([other]) => `${said}|${other}`));"
        "return [...out.map(([said]) => said), ...pairs, ...(boxes.length > 9 ? [] : ['few'])]; })"
    )


def test_labels_of_panels_stand_apart_on_a_phone(browser, open_report, of_sample):
    from selenium.webdriver.support.ui import WebDriverWait

    size = {"height": 844, "deviceScaleFactor": 1, "mobile": True}
    emulate = "Emulation.setDeviceMetricsOverride"
    try:
        for width in (390, 360):
            browser.execute_cdp_cmd(emulate, {"width": width, **size})
            open_report(of_sample)
            WebDriverWait(browser, 10).until(lambda b: overlapping(b) == [], overlapping(browser))
        browser.execute_cdp_cmd(emulate, {"width": 844, **size})
        open_report(of_sample)
        browser.execute_cdp_cmd(emulate, {"width": 390, **size})  # turned
        WebDriverWait(browser, 10).until(lambda b: overlapping(b) == [], overlapping(browser))
    finally:
        browser.execute_cdp_cmd("Emulation.clearDeviceMetricsOverride", {})
