"""The registry of the report's sections."""

import pkgutil

import pytest

from spoolscope.analysis.latency import Curve
from spoolscope.analysis.study import study
from spoolscope.report import sections
from spoolscope.report.figures.latency import POINTS, tails
from spoolscope.report.inputs import Inputs
from spoolscope.report.page import Figure
from spoolscope.report.sections import SECTIONS, laid_out

pytestmark = pytest.mark.slow

MS = 1_000_000


@pytest.fixture
def page(builder):
    builder.call("fsync", 0, 1000, (("schedule < jbd2_log_wait_commit", MS),), path="u/cur/1")
    builder.commit(0, MS)
    return Inputs({"one": study(builder.write())})


def test_every_file_of_sections_is_in_the_registry_once():
    files = sorted(module.name for module in pkgutil.iter_modules(sections.__path__))
    assert sorted(section.__name__.rpartition(".")[2] for section in SECTIONS) == files


def test_sections_have_the_anchors_that_they_say_and_no_two_the_same(page):
    applying = [section.anchor for section in SECTIONS if section.applies(page)]
    assert [section.key for section in laid_out(page)] == applying
    assert len(set(applying)) == len(applying) > 5


def test_what_is_of_replays_alone_says_so_on_the_page_of_a_trace(page):
    with pytest.raises(ValueError, match="compares nothing"):
        _ = page.comparison
    assert "fidelity" not in {section.anchor for section in SECTIONS if section.applies(page)}


def test_curves_of_many_candidates_have_as_many_points_as_those_of_few():
    """Check that a page stays small enough for browsers, and keeps the tails of curves."""
    x_ns = [3 * n + 1_000_000 for n in range(800)]
    share = [1 - 0.99**n for n in range(800)]
    for n in (1, 2, 7):
        curves = [Curve(family, 10_000, x_ns, share) for family in ("sync", "open", "read")]
        lines = tails({f"candidate {one}": curves for one in range(n)}).data
        assert len(lines) == 3 * n
        assert {line.x[-1] for line in lines} == {x_ns[-1]}
        drawn = sum(len(line.x) for line in lines)
        assert 3 * min(800 * n, POINTS // 2) <= drawn <= 3 * (POINTS + n)


def test_lookups_that_cost_nothing_have_no_card(page):
    titles = [block.title for section in laid_out(page) for block in section.blocks]
    assert not [title for title in titles if title.startswith("Directory lookups")]


def test_the_busiest_bin_has_a_time(page):
    (figure,) = (
        block
        for section in laid_out(page)
        for block in section.blocks
        if isinstance(block, Figure) and block.key == "timeline"
    )
    assert figure.finding.startswith("Most time in calls falls into the ")
    assert figure.finding.endswith("from 0 s on: 1.00 ms.")
