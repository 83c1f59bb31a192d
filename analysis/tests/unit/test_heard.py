"""Messages of a machine on its runs, and their display outside."""

import json

import pytest

from spoolscope.cli import heard
from spoolscope.cli.heard import Heard, Lines, Telling
from spoolscope.replay.candidates import parse
from spoolscope.replay.job import slots
from spoolscope.traces.errors import SpoolscopeError


def test_lines_come_whole_whatever_the_pieces():
    got = []
    with Lines(got.append) as stream:
        for piece in (b"a", b"b\n\nc", b"\nd"):
            assert stream.write(piece) == len(piece)
        assert got == ["ab", "", "c"]
    assert got == ["ab", "", "c", "d"]


class Clock:
    """A clock that is set by the test."""

    now = 0.0

    def monotonic(self) -> float:
        return self.now


@pytest.fixture
def clock(monkeypatch):
    made = Clock()
    monkeypatch.setattr(heard, "time", made)
    return made


def told(capsys, what) -> str:
    """Return the line printed by the machine's side."""
    what(Telling())
    return capsys.readouterr().out.strip()


def test_times_and_shares_are_those_of_this_side(clock, capsys):
    """Check two machines of two runs each: a share in one is half that share of all."""
    order = slots([parse("ext4"), parse("xfs")], 2, 0)
    shown, said = [], []
    side = Heard(order, [], lambda what, share: shown.append((what, share)), said.append)
    side.booting("6.1.0-56-amd64")
    clock.now += 8
    side.line(told(capsys, lambda machine: machine.begin(order, [], 30.0)))
    side.line(told(capsys, lambda machine: machine.at("replaying", 0.5)))
    clock.now += 20
    first = order[0].candidate.name
    side.line(told(capsys, lambda machine: machine.after({"candidate": first, "wall_ns": 1})))
    side.booting("6.1.0-56-amd64")
    side.line(told(capsys, lambda machine: machine.at("building the plan", 0.0)))
    boot = 0.5 * heard.BOOT / (heard.BOOT + 2)
    shares = {what: pytest.approx(share) for what, share in shown[:2]}
    assert shares == {"booting 6.1.0-56-amd64": 0.0, "replaying": boot + (0.5 - boot) / 2}
    assert shown[2:] == [
        ("booting 6.1.0-56-amd64", 0.5),
        ("building the plan", pytest.approx(0.5 + boot)),
    ]
    assert said == [
        "4 runs on 2 candidates take about 2 min",  # 4 times 30 s and another boot of 8 s
        f"{order[0].name} took 20 s; 1 of 4 runs, about 68 s left",
    ]


def test_an_error_comes_through(capsys):
    raised = SpoolscopeError("no \u202eroom", remedy="make room", exit_code=2)
    side = Heard([], [], lambda _what, _share: None, [].append)
    side.line(told(capsys, lambda machine: machine.error(raised)))
    again = SpoolscopeError(**side.error)
    assert (again.message, again.remedy, again.exit_code) == (
        raised.message,
        raised.remedy,
        raised.exit_code,
    )


def test_what_else_a_machine_prints_is_shown(capsys):
    Heard([], [], lambda _what, _share: None, [].append).line("a library says")
    assert capsys.readouterr().err == "a library says\n"


def test_lines_are_plain_json(capsys):
    line = told(capsys, lambda machine: machine.at("a\nb", None))
    assert json.loads(line) == {"at": ["a\nb", None]}
