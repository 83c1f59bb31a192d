"""The report for every reader: axe-core, a phone, dark mode; and hostile names."""

import pytest

from spoolscope.report.build import build

pytestmark = pytest.mark.slow

MS = 1_000_000
N = 70
WAIT = "schedule < jbd2_log_wait_commit < ext4_sync_file"
LOOP = 7 << 20 | 1
EVIL = (
    "</script><script>window.evil = 1</script>",
    '"><img src=x onerror="window.evil = 2">',
    "</style><style>body { display: none }</style>",
    "' onmouseover='window.evil = 3' x='",
    "<svg onload=window.evil=4>",
    "{{ 7 * 7 }} &lt;b&gt; <!-- <b>bold</b>",
    "javascript:window.evil=5",
)


def hostile(builder, meta=None):
    """Write a trace with names of programs, files and units that look like HTML."""
    for n in range(N):
        name = EVIL[n % len(EVIL)]
        waits = ((WAIT, (n % 7 + 1) * MS),)
        builder.call("fsync", n * 30 * MS, 1000, waits, tid=100 + n % 7, comm=name,
                     path=f"u{n % 3}/cur/{name}", ret=0)  # fmt: skip
        builder.call("write", n * 30 * MS + 20 * MS, 1000, tid=100 + n % 7, comm=name, ret=4096,
                     path=f"u{n % 3}/{name}/1")  # fmt: skip
        builder.commit(n * 30 * MS, MS, trigger="call", trigger_pid=100 + n % 7,
                       trigger_tid=100 + n % 7, trigger_comm=name, trigger_seq=n // 7)  # fmt: skip
        builder.block_io(n * 30 * MS, 1000, MS, dev=LOOP, comm=name)
        stage = {"ts_ns": n * 30 * MS, "dev": LOOP, "op": "write", "rwbs": "W", "bios": 1}
        builder.add("block_stages", **stage, g_ns=1, d_ns=5, c_ns=MS, comm=name)
    for n, name in enumerate(EVIL):
        builder.thread(100 + n, name, cgroup=f"/system.slice/{name}.service")
    return builder.write(kernel=EVIL[0], program_names="kept", **(meta or {}))


@pytest.fixture(scope="module")
def made(tmp_path_factory):
    """Return a directory for the reports of all tests here."""
    return tmp_path_factory.mktemp("hostile")


@pytest.fixture
def report(made, builder, new_replay, new_builder, request):
    """Return the report of a replay on two recorded candidates, made once."""
    cached = getattr(request.module, "_report", None)
    if cached is not None:
        return cached
    replay = new_replay("out", hostile(builder), 2 * N)
    for number, name in enumerate(("ext4", "xfs<img src=x onerror=window.evil=6>"), start=1):
        directory = replay.run(name, [number * MS] * 2 * N, fstype="ext4", mkfs=EVIL[1],
                               run=f"run{number}", mount_options=EVIL[2])  # fmt: skip
        recorded = new_builder("unused")
        recorded.path = directory / "trace"
        hostile(recorded)
        directory.rename(directory.parent / f"run{number}")
    request.module._report = build([replay.write()], made / "report.html")
    return request.module._report


@pytest.fixture
def page(browser, open_report, report):
    if browser.current_url != report.path.as_uri():
        open_report(report)
    return browser


def emulate(browser, scheme="light", width=None):
    features = [{"name": "prefers-color-scheme", "value": scheme}]
    browser.execute_cdp_cmd("Emulation.setEmulatedMedia", {"features": features})
    if width is None:
        browser.execute_cdp_cmd("Emulation.clearDeviceMetricsOverride", {})
    else:
        size = {"width": width, "height": 844, "deviceScaleFactor": 1, "mobile": True}
        browser.execute_cdp_cmd("Emulation.setDeviceMetricsOverride", size)


def open_all(browser):
    browser.execute_script("document.querySelectorAll('details').forEach(e => e.open = true)")


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_axe_finds_nothing(page, require, scheme):
    try:
        from axe_core_python.selenium import Axe
    except ImportError:
        require("axe-core", "no axe_core_python: pip install -e .[dev]")
    emulate(page, scheme)
    page.set_script_timeout(120)
    try:
        open_all(page)
        # Only contrast depends on the colour scheme.
        rules = {"runOnly": ["color-contrast"]} if scheme == "dark" else {}
        found = Axe().run(page, options={"resultTypes": ["violations"], **rules})
    finally:
        emulate(page)
    assert found["passes"]
    said = [(v["id"], node["target"], node["html"][:200])
            for v in found["violations"] for node in v["nodes"]]  # fmt: skip
    assert said == []


def too_wide(page):
    """Return the page's width, and the elements beyond the window, figures included."""
    return page.execute_script(
        "return [document.documentElement.scrollWidth, [...document.querySelectorAll('body *')]"
        ".filter(e => !e.closest('.scroll, nav a') && !e.ownerSVGElement)"
        ".filter(e => e.getBoundingClientRect().right > screen.width + 1)"
        ".slice(0, 5).map(e => e.outerHTML.slice(0, 200))]"
    )


def test_a_phone_shows_the_page_without_moving_it_sideways(browser, open_report, report):
    from selenium.webdriver.support.ui import WebDriverWait

    try:
        emulate(browser, width=390)
        open_report(report)
        open_all(browser)
        for width in (390, 320, 844):  # a small one; turned
            emulate(browser, width=width)
            # Figures are drawn again when the window has another size.
            WebDriverWait(browser, 10).until(
                lambda b, width=width: too_wide(b) == [width, []], too_wide(browser)
            )
        nav = browser.execute_script("return document.querySelector('nav').offsetHeight")
        assert nav < 60  # it covers the top of the page
    finally:
        emulate(browser)


def test_a_phone_shows_labels_level_and_titles_of_axes_whole(browser, open_report, report):
    turned = (
        "return [...document.querySelectorAll('#plot-tails .xtick text')]"
        ".map(e => e.getAttribute('transform') || '').filter(t => /rotate\\((?!0,)/.test(t))"
    )
    cut = (
        "return [...document.querySelectorAll('.xtitle')].filter(e => {"
        "const [title, plot] = [e, e.closest('.plot')].map(one => one.getBoundingClientRect());"
        "return title.right > plot.right || title.left < plot.left; }).map(e => e.textContent)"
    )
    labels = (
        "return [...document.querySelectorAll('#plot-icicle-0 .slicetext')]"
        ".filter(e => e.getAttribute('transform') && e.querySelectorAll('tspan').length > 1).length"
    )
    try:
        emulate(browser, width=390)
        open_report(report)
        assert browser.execute_script("return document.querySelectorAll('.xtitle').length")
        assert browser.execute_script(turned) == []
        assert browser.execute_script(cut) == []
        assert browser.execute_script(labels)
    finally:
        emulate(browser)


def test_a_phone_shows_insights_whole(browser, open_report, report):
    """Their sentences are the answer: no part of them lies behind the edge."""
    try:
        emulate(browser, width=390)
        open_report(report)
        hidden, heads = browser.execute_script(
            "const tables = [...document.querySelectorAll('#insights table')];"
            "return [tables.filter(t => t.parentElement.scrollWidth > t.parentElement.clientWidth)"
            ".length, tables.flatMap(t => [...t.tBodies[0].rows[0].cells].map("
            "c => getComputedStyle(c, '::before').content))];"
        )
        assert hidden == 0
        assert 'attr(data-head) ": "' in heads or '"price: "' in heads
    finally:
        emulate(browser)


def test_names_are_text_and_nothing_else(page, report):
    evil, shown, foreign = page.execute_script(
        "return [window.evil ?? null, getComputedStyle(document.body).display,"
        "[...document.querySelectorAll('img, iframe, object, embed, link:not([rel=icon]), base, "
        "[onerror], [onload], [onmouseover], a[href^=javascript]')].map(e => e.outerHTML)]"
    )
    assert (evil, shown, foreign) == (None, "block", [])
    assert page.get_log("browser") == []
    text = page.execute_script("return document.body.textContent").replace("\u00a0", " ")
    for name in EVIL:
        assert name in text
    scripts, bold = page.execute_script(
        "return [document.querySelectorAll('script:not([type])').length,"
        "[...document.querySelectorAll('b')].filter(e => e.textContent == 'bold').length]"
    )
    assert (scripts, bold) == (2, 0)
    assert len(report.page.sections) > 10


def test_figures_take_no_markup_from_names(page):
    """Check escaping, as Plotly makes links and styles from tags in texts."""
    made = page.execute_script(
        "return [...document.querySelectorAll('.js-plotly-plot a, .js-plotly-plot foreignObject, "
        ".js-plotly-plot image')].map(e => e.href?.baseVal ?? e.outerHTML)"
    )
    assert [one for one in made if not one.startswith("data:image/png;base64,")] == []
