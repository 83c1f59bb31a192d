"""The share that is done covers all phases, and never decreases."""

import pytest

from spoolscope.traces.phases import Phases


def test_phases_make_up_their_part_of_the_work() -> None:
    seen: list[tuple[str, float | None]] = []
    phases = Phases(
        lambda *what: seen.append(what), {"a": 1, "b": 2, "c": 1}, part=(0.5, 1.0), prefix="x: "
    )
    phases("a")
    phases("b", 0.5)
    inside = phases.within("b", {"d": 3, "e": 1})
    inside("d", 1.0)
    inside("e", 7.0)  # a share above 1 counts as 1
    phases("c", 1.0)
    assert [what for what, _ in seen] == ["x: a", "x: b", "x: d", "x: e", "x: c"]
    assert [share for _, share in seen] == pytest.approx([0.5, 0.75, 0.8125, 0.875, 1.0])


def test_phases_without_length_are_no_division_by_zero() -> None:
    seen: list[float | None] = []
    Phases(lambda _, share: seen.append(share), {"a": 0.0})("a", 1.0)
    assert seen == [0.0]


def test_what_reports_one_phase_moves_only_within_it() -> None:
    seen: list[tuple[str, float | None]] = []
    phases = Phases(lambda *what: seen.append(what), {"a": 1, "b": 1}, prefix="x: ")
    inside = phases.sub("b")
    for share in (None, 0.5, 1.0):
        inside("c", share)
    assert seen == [("x: c", 0.5), ("x: c", 0.75), ("x: c", 1.0)]
