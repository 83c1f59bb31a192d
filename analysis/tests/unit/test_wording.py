"""Numbers in text for people."""

import pytest

from spoolscope.analysis.wording import change, duration, fitting, interval, once, percent


@pytest.mark.parametrize(
    ("ns", "text"),
    [
        (0, "0"),
        (7, "7 ns"),
        (999, "999 ns"),
        (1000, "1.00 µs"),
        (9_996, "10.0 µs"),
        (870_400, "870 µs"),
        (999_600, "1.00 ms"),
        (12_100_000_000, "12.1 s"),
        (4_321_000_000_000, "4,321 s"),
        (-3_400_000, "-3.40 ms"),
        (None, "-"),
    ],
)
def test_durations_have_three_digits(ns, text):
    assert duration(ns) == text


def test_shares():
    assert percent(0.1234) == "12.3 %"
    assert percent(0.00001) == "< 0.1 %"
    assert percent(0.0) == "0 %"
    assert percent(0.99996, 2) == "> 99.99 %"
    assert percent(0.998, 0) == "> 99 %"
    assert percent(1.0) == "100 %"
    assert percent(None) == "-"
    assert (percent(-4e-7, 3), percent(-0.3, 2)) == ("0 %", "-30.00 %")


@pytest.mark.parametrize(
    ("ratio", "text"),
    [(0.69, "31 % less"), (1.042, "4.2 % more"), (2.9, "2.9 times the"), (1.0001, "the same")],
)
def test_changes(ratio, text):
    assert change(ratio) == text


def test_intervals():
    assert interval(0.64, 0.75) == "-36 % to -25 %"
    assert interval(0.99, 1.2) == "-1.0 % to +20 %"
    assert interval(11.42, 13.5) == "11.4 to 13.5 times"
    assert interval(None, None) == "-"


def test_names_that_do_not_fit_stay_apart():
    assert fitting("ext4-journal", 15, 4) == "ext4-journal"
    assert fitting("ext4-writeback", 10, 4) == "ext4…eback"
    assert fitting("ext3-writeback", 10, 4) == "ext3…eback"
    assert fitting("dir:/srv/mail/xfs", 10, 4) == "dir:…l/xfs"
    assert fitting("a/long/way/to/cur", 8) == "…/to/cur"


def test_a_mount_option_is_said_once():
    assert once("rw,relatime,rw,data=journal") == "rw,relatime,data=journal"
