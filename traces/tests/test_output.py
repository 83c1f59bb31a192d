"""Permitted places of an output: links of other users cannot redirect it."""

import os
from pathlib import Path

import pytest

from spoolscope.traces.errors import SpoolscopeError
from spoolscope.traces.output import check_output, place_of, publish, work_directory


def test_an_operators_own_link_is_followed(tmp_path: Path) -> None:
    real = tmp_path / "data"
    (real / "traces").mkdir(parents=True)
    (tmp_path / "var").symlink_to("data")
    assert place_of(tmp_path / "var" / "traces" / "x") == real / "traces" / "x"
    assert place_of(tmp_path / "var" / "traces" / ".." / "x") == real / "x"


@pytest.mark.parametrize("sticky", [0o777, 0o1777])
def test_a_link_that_anybody_could_have_made_is_refused(sticky: int, tmp_path: Path) -> None:
    shared, real = tmp_path / "shared", tmp_path / "real"
    shared.mkdir()
    real.mkdir()
    shared.chmod(sticky)
    (shared / "link").symlink_to(real)
    with pytest.raises(SpoolscopeError, match="everybody"):
        place_of(shared / "link" / "x")


def test_a_directory_that_anybody_can_change_is_refused_unless_sticky(tmp_path: Path) -> None:
    shared = tmp_path / "shared"
    shared.mkdir()
    shared.chmod(0o777)
    with pytest.raises(SpoolscopeError, match="writable by everybody"):
        check_output(shared / "x")
    shared.chmod(0o1777)
    check_output(shared / "x")


@pytest.mark.root
def test_a_link_of_another_user_is_refused(tmp_path: Path) -> None:
    (tmp_path / "link").symlink_to(tmp_path)
    os.chown(tmp_path / "link", 65534, 65534, follow_symlinks=False)
    with pytest.raises(SpoolscopeError, match="user 65534"):
        place_of(tmp_path / "link" / "x")


def test_links_in_a_circle_end(tmp_path: Path) -> None:
    (tmp_path / "a").symlink_to("b")
    (tmp_path / "b").symlink_to("a")
    with pytest.raises(SpoolscopeError, match="too many"):
        place_of(tmp_path / "a" / "x")


def test_an_output_that_is_a_link_is_refused(tmp_path: Path) -> None:
    (tmp_path / "x").symlink_to("nowhere")
    with pytest.raises(SpoolscopeError, match="exists"):
        check_output(tmp_path / "x")


def test_what_is_published_is_for_its_owner_only(tmp_path: Path) -> None:
    work = work_directory(tmp_path / "x")
    (work / "meta.json").write_text("{}")
    publish(work, tmp_path / "x")
    assert (tmp_path / "x").stat().st_mode & 0o777 == 0o700
    assert (tmp_path / "x" / "meta.json").stat().st_mode & 0o777 == 0o600
