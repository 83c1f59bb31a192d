"""The screen of top without a terminal: effects of keys, and the size of screens."""

import pytest
from rich.cells import cell_len

from spoolscope.analysis.top import CommitMade, Interval, PlaceUse, ProcessUse
from spoolscope.cli.top_screen import KEYS, TopScreen
from spoolscope.cli.top_views import VIEWS

NAME = "\x1b]0;owned\x07\r\n\u202elive"
LONG = "postfix/active/" + "a" * 200 + "/end"


def interval(start_ns: int = 0, n: int = 40) -> Interval:
    processes = [
        ProcessUse(i, f"imap{i}", calls=i, time_ns=1000 * i, causes={"flush": 1000 * i}, commits=1)
        for i in range(1, n)
    ]
    processes.append(ProcessUse(7000, NAME, 5, 500, 500, 0, {"cpu": 400, "runq": 100}))
    places = [PlaceUse(name, 3, 600, 300, 100, {"cpu": 600}) for name in (NAME, LONG, "収信箱")]
    commits = [CommitMade(0, 10**6, "jbd2_commit", "call", NAME, 7000, 12),
               CommitMade(5, 10**5, "xfs_log_write", "timer", None, None, None)]  # fmt: skip
    return Interval(start_ns, 2 * 10**9, 77, 0, processes, places, places, commits)


def screen(found: Interval | None = None) -> TopScreen:
    made = TopScreen(lambda: "kept as x.trace")
    if found is not None:
        made.show(found)
    return made


def press(made: TopScreen, keys: str) -> None:
    for key in keys:
        made.press(key)


def table(made: TopScreen, height: int = 24) -> list[str]:
    return [line.text.rstrip() for line in made.lines(80, height)[3:-1] if line.text.strip()]


@pytest.mark.parametrize("size", [(80, 24), (132, 50), (20, 5), (300, 6)])
@pytest.mark.parametrize("view", [view.key for view in VIEWS])
def test_every_screen_fits_and_drives_no_terminal(size, view):
    width, height = size
    for made in (screen(), screen(interval())):
        press(made, view)
        for keys in ("", "/\u202e", "\x1b", " "):
            press(made, keys)
            lines = made.lines(width, height)
            assert len(lines) == height
            assert {cell_len(line.text) for line in lines} == {width}
            assert all(line.text.isprintable() for line in lines)


def test_at_80_columns_nothing_of_a_usual_row_is_cut():
    made = screen(interval())
    usual = "39 imap39 39 39.0 µs 0 1 cache flush 100 %"
    assert " ".join(table(made)[0].split()) == usual
    press(made, "f")
    assert table(made)[1].split()[0].endswith("/end")
    assert len(KEYS) <= 80


def test_tables_are_sorted_and_turned():
    made = screen(interval())
    press(made, "s")  # after TIME comes BLOCKED
    assert "BLOCKED*" in made.lines(80, 24)[2].text
    press(made, "sss")  # COMMITS, MOSTLY, PID
    assert table(made)[0].startswith("1 ")
    press(made, "r")
    assert table(made)[0].startswith("7000 ")
    press(made, "m")
    press(made, "p")
    assert table(made)[0].startswith("1 "), "each table keeps what it is sorted by"


def test_a_filter_is_typed_and_taken_away():
    made = screen(interval())
    press(made, "/imaq\x7fp3")
    assert made.lines(80, 24)[-1].text.rstrip() == "Filter: imap3_"
    press(made, "\r")
    assert len(table(made)) == 11
    assert "1-11 of 11" in made.lines(80, 24)[1].text
    press(made, "\x1b")
    assert len(table(made)) == 20
    press(made, "/q\x1b")
    assert not made.over
    press(made, "q")
    assert made.over


def test_rows_are_scrolled_and_no_farther_than_they_go():
    made = screen(interval())
    assert table(made)[0].startswith("39 ")
    press(made, ["down", "down"])
    assert table(made)[0].startswith("37 ")
    press(made, ["pagedown"] * 5)
    assert table(made)[-1].startswith("7000 ") or "7000" in " ".join(table(made))
    assert len(table(made)) == 20
    press(made, ["pageup"] * 9)
    assert table(made)[0].startswith("39 ")


def test_a_paused_screen_stays_and_can_be_kept():
    made = screen(interval(n=3))
    press(made, " ")
    made.show(interval(10**9, n=9))
    assert len(table(made)) == 3
    assert "PAUSED" in made.lines(80, 24)[0].text
    press(made, "k")
    assert made.lines(80, 24)[-1].text.startswith("kept as x.trace")
    press(made, " ")
    made.show(interval(10**9, n=9))
    assert len(table(made)) == 9


def test_causes_add_up_and_name_who_spent_them():
    made = screen(interval(n=4))
    press(made, "c")
    flush, cpu, _ = (row.split() for row in table(made))
    assert flush[:5] == ["cache", "flush", "6.00", "µs", "92.3"]
    assert "imap3 (3) 3.00 µs" in " ".join(flush)
    assert cpu[0] == "CPU"
