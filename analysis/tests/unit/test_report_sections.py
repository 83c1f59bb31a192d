"""The registry of the report's sections."""

import pkgutil

import pytest

from spoolscope.analysis.study import study
from spoolscope.report import sections
from spoolscope.report.inputs import Inputs
from spoolscope.report.sections import SECTIONS, laid_out

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
