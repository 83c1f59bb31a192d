"""Wrong use of record that is refused before a recorder starts."""

import click
import pytest

from spoolscope.cli.limits import Duration


@pytest.mark.parametrize("text", ["inf", "nan", "-inf", "0", "-1", "1e999", "infs", "nanh", "ten"])
def test_times_that_never_end_are_refused(text: str) -> None:
    with pytest.raises(click.BadParameter):
        Duration().convert(text, None, None)


@pytest.mark.parametrize(
    ("text", "seconds"), [("30", 30), ("500ms", 0.5), ("5m", 300), ("1h", 3600)]
)
def test_times(text: str, seconds: float) -> None:
    assert Duration().convert(text, None, None) == seconds
