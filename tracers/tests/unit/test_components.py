"""The component of a path that was looked up, by its position."""

import numpy as np
import pytest

from spoolscope.tracers.components import STRINGS, component, looked_up
from spoolscope.traces.capture import Capture
from spoolscope.traces.flat import DTYPES


@pytest.mark.parametrize(
    ("path", "at", "length", "name"),
    [
        (b"box/cur/1:2,S", 4, 3, b"cur"),
        (b"/box//cur", 1, 3, b"box"),
        (b"/box//cur", 6, 3, b"cur"),
        (b"1", 0, 1, b"1"),
        (b"box/cur", 4, 2, None),  # not to its end
        (b"box/cur", 5, 2, None),  # not from its beginning
        (b"box/cu", 4, 3, None),  # cut
        (b"", 0, 3, None),
        (b"box/cur", 0, 7, None),
        (b"box/../cur", 4, 2, None),
        (b"./cur", 0, 1, None),
        (b"box/cur", 0, 0, None),
    ],
)
def test_a_name_is_a_whole_component_or_none(path, at, length, name):
    assert component(path, at, length) == name


class Paths:
    """Absolute paths by id."""

    def __init__(self, *paths: bytes) -> None:
        self.paths = list(paths)

    def id(self, path: bytes, /) -> int:
        if path not in self.paths:
            self.paths.append(path)
        return self.paths.index(path)

    def path(self, number: int, /) -> bytes:
        return self.paths[number]


def test_the_name_is_told_as_a_path_below_the_directory_that_was_searched():
    capture = Capture(0, 0, closed=True, strings=[b"", b"old", b"link/new"])
    capture.records["syscall"] = np.zeros(1, DTYPES["syscall"])
    capture.records["syscall"][["path", "path2"]] = (1, 2)
    switches = np.zeros(6, DTYPES["switch"])
    for row, told in enumerate([(0, 3, 1), (5, 3, 2), (0, 0, 3), (0, 0, 0), (5, 3, 2), (1, 2, 1)]):
        switches[["name_at", "name_bytes", "name_of"]][row] = told
    calls = np.array([0, 0, 0, 0, -1, 0])
    paths = Paths(b"/spool", b"/spool/real")
    found, of = looked_up(capture, switches, calls, np.array([0, 1, 1, 1, 1, 0]), paths)
    assert paths.paths[2:] == [b"/spool/old", b"/spool/real/new"]
    assert found.tolist() == [2, 3, -1, -1, -1, -1]
    assert [STRINGS[one] for one in of.tolist()] == [
        "path",
        "path2",
        "link",
        "none",
        "none",
        "none",
    ]
