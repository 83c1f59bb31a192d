"""Names are found at once where a walk from the root finds them."""

import random

import pytest

from spoolscope.tracers.namespace import Namespace
from spoolscope.tracers.nodes import Node


def test_a_name_is_found_under_its_new_path_only() -> None:
    space = Namespace()
    file = space.node(b"/a/b/f")
    assert space.find(b"/a/b/f") is file
    space.rename(b"/a", b"/z")
    assert (space.find(b"/z/b/f"), space.find(b"/a/b/f")) == (file, None)
    other = space.node(b"/d/b/f")
    assert space.find(b"/d/b/f") is other
    space.exchange(b"/z", b"/d")
    assert (space.find(b"/d/b/f"), space.find(b"/z/b/f")) == (file, other)


@pytest.mark.parametrize("seed", range(8))
def test_a_name_is_found_as_by_a_walk(seed) -> None:
    draw, space = random.Random(seed), Namespace()
    names = [b"/a", b"/b", b"/a/a", b"/a/b", b"/b/a", b"/b/b", b"/a/a/a", b"/b/a/b", b"/a/b/a"]
    for number in range(300):
        one, other = draw.sample(names, 2)
        apart = not (one + b"/").startswith(other + b"/") and not other.startswith(one + b"/")
        match draw.randrange(7):
            case 0:
                space.opened(one, (7, draw.randrange(9)), creates=True, exclusive=False)
            case 1:
                space.made_directory(one)
            case 2:
                space.rename(one, other)
            case 3 if apart:
                space.exchange(one, other)
            case 4:
                space.removed(one, directory=draw.random() < 0.5)
            case 5:
                space.lose(one)
            case 6 if number == 150:
                space.start()
        for path in names:
            assert space.find(path) is walked(space, path)


def test_the_newest_name_of_an_inode_counts_and_then_the_one_before() -> None:
    space, key = Namespace(), (7, 5)
    space.opened(b"/a", key, creates=True, exclusive=True)
    for path in (b"/b", b"/c", b"/d"):
        space.link(key, path)
    found = []
    for gone in (b"/b", b"/d", b"/c", b"/a"):
        found.append(space.path(space.lookup(key)))
        space.removed(gone)
    assert (found, space.lookup(key)) == ([b"/d", b"/d", b"/c", b"/a"], None)


def test_many_names_of_one_inode_are_not_compared_with_each_other(monkeypatch) -> None:
    compared = []

    def same(one: Node, other: object) -> bool:
        compared.append(one)
        return one is other

    monkeypatch.setattr(Node, "__eq__", same)
    space, key, names = Namespace(), (7, 5), [b"/%d" % number for number in range(1000)]
    space.opened(b"/f", key, creates=True, exclusive=True)
    for name in names:
        space.link(key, name)
    space.start()
    space.rewind()
    for name in (*names[::2], *names[:0:-2]):
        space.removed(name)
    assert space.path(space.lookup(key)) == b"/f"
    assert len(compared) < len(names)


def walked(space: Namespace, path: bytes):
    """Return the node at a path, name by name from the root."""
    node = space.find(b"/")
    for part in path.split(b"/")[1:]:
        node = (node.children or {}).get(part) if node is not None else None
    return node
