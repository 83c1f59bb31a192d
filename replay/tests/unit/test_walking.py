"""Walks of names that have symlinks, dots and slashes in them."""

import os
from pathlib import Path

import pytest

from spoolscope.replay.walking import END_DOT, END_NONE, END_SLASH, END_UP, Walked, walk

LINKS = {b"l": b"d/sub", b"up": b"d/../e", b"far": b"/mnt/e", b"d/back": b"..", b"out": b"/etc"}


def below(target: bytes) -> bytes | None:
    """Return a symlink's target below the spool, which was mounted at /mnt."""
    return (
        target.removeprefix(b"/mnt").lstrip(b"/")
        if target.startswith(b"/mnt")
        else (None if target.startswith(b"/") else target)
    )


@pytest.mark.parametrize(
    ("name", "final", "path", "given", "end"),
    [
        (b"d/f", False, b"d/f", b"d/f", END_NONE),
        (b"d/", False, b"d", b"d/", END_SLASH),
        (b"l/", False, b"l", b"l/", END_SLASH),
        (b"l/", True, b"d/sub", b"d/sub/", END_SLASH),
        (b"l/.", False, b"d/sub", b"d/sub/.", END_DOT),
        (b"l/..", False, b"d", b"d/sub/..", END_DOT | END_UP),
        (b"l/../f", False, b"d/f", b"d/sub/../f", END_UP),
        (b"up/f", False, b"e/f", b"e/f", END_NONE),
        (b"e/../far/f", False, b"e/f", b"e/f", END_NONE),
        (b"e/../d/back/f", False, b"f", b"e/../f", END_UP),
        (b".", False, b"", b".", END_DOT),
    ],
)
def test_a_name_leads_as_the_kernel_walks_it(name, final, path, given, end):
    way = walk(name, LINKS.get, below, final=final)
    assert way == Walked(path, given, end, way.links if way else 0)


def test_a_call_that_failed_is_about_what_it_was_to_lead_through():
    way = walk(b"e/l/..", {b"e/l": b"../d"}.get, below, final=False, failed=True)
    assert way == Walked(b"d", b"d/..", END_DOT, 1)
    way = walk(b"e/../d/..", {}.get, below, final=False, failed=True)
    assert way == Walked(b"d", b"e/../d/..", END_DOT | END_UP, 0)


def test_what_leaves_the_spool_leads_nowhere():
    for name in (b"out/f", b"d/../..", b"d/back/../f"):
        assert walk(name, LINKS.get, below, final=False) is None


def test_names_without_symlinks_lead_where_the_kernel_leads(tmp_path: Path):
    for directory in ("d/sub", "e"):
        (tmp_path / directory).mkdir(parents=True)
    for file in ("f", "e/f", "d/f", "d/sub/f"):
        (tmp_path / file).touch()
    links = {**LINKS, b"far": bytes(tmp_path / "e")}
    for name, target in links.items():
        (tmp_path / os.fsdecode(name)).symlink_to(os.fsdecode(target))

    def inside(target: bytes) -> bytes | None:
        return os.path.relpath(target, bytes(tmp_path)) if target.startswith(b"/") else target

    for name in ("l/f", "l/../f", "up/f", "far/f", "d/back/d/f", "far/../d/sub/../f", "l/.", "up/"):
        way = walk(os.fsencode(name), links.get, inside, final=True)
        assert way is not None
        for led in (way.path, way.given):
            same = Path(f"{tmp_path}/{os.fsdecode(led)}").samefile(f"{tmp_path}/{name}")
            assert same, (name, led)
