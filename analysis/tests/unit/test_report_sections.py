"""The registry of the report's sections."""

import pkgutil
from dataclasses import replace

import pytest

from spoolscope.analysis.compare import compare
from spoolscope.analysis.latency import Curve
from spoolscope.analysis.study import study
from spoolscope.report import sections
from spoolscope.report.figures.latency import POINTS, tails
from spoolscope.report.figures.timeline import timelines
from spoolscope.report.inputs import Inputs
from spoolscope.report.page import Figure
from spoolscope.report.sections import OF_ONE_ROUND, SECTIONS, calls, laid_out

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


def test_a_figure_of_whole_calls_has_the_waits_that_others_do_not_draw(builder):
    stack = "schedule < flock_lock_inode_wait < __do_sys_flock"
    for n in range(120):
        builder.call("flock", n * 10 * MS, 1000, ((stack, MS),), path="u/lock")
    builder.call("fsync", 2000 * MS, 1000, (("schedule < jbd2_log_wait_commit", MS),))
    found = Inputs({"one": study(builder.write())})
    figures = {
        block.key: block
        for section in laid_out(found)
        for block in section.blocks
        if isinstance(block, Figure)
    }
    assert "file locking" in {title.text for title in figures["tails"].plot.layout.annotations}
    assert "Not drawn" not in figures["tails"].caption
    assert "no record was lost. Families" in figures["tails"].caption
    assert "Not drawn: 120 ms waiting for other programs: file locks" in figures["calls"].caption


@pytest.mark.parametrize("rounds", [1, 3])
def test_sections_on_one_of_several_rounds_say_so(page, new_replay, rounds):
    replay = new_replay("out", page.studies["one"].explanation.trace, 1, rounds=rounds)
    for number in range(rounds):
        replay.run("one", [MS], round_=number + 1)
    sections = laid_out(replace(page, found=compare([replay.write()])))
    said = {section.key for section in sections if "rounds alone" in section.intro}
    assert said == (set() if rounds == 1 else {one.anchor for one in OF_ONE_ROUND} & {
        section.key for section in sections
    })  # fmt: skip
    assert {"fidelity", "environment"} <= {section.key for section in sections} - said
    (figure,) = (
        block
        for section in sections
        for block in section.blocks
        if isinstance(block, Figure) and block.key == "calls"
    )
    assert ("The first of 3 rounds alone" in figure.caption) == (rounds == 3)


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


def test_findings_on_several_traces_are_sentences_of_their_own(page):
    (study_,) = page.studies.values()
    (figure,) = calls.make(Inputs({"one": study_, "two": study_})).blocks
    assert figure.finding == f"one: {study_.headline} two: {study_.headline}"


def test_the_line_of_commits_has_whole_bins_at_both_ends(page):
    line = page.studies["one"].timeline
    commits = timelines({"one": line}).data[-1]
    assert commits.name == "commits begun"
    assert (commits.x[0], commits.x[-1]) == (0, line.n_bins * line.bin_ns / 1e9)
    assert list(commits.y) == [*line.commits, line.commits[-1]]


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
