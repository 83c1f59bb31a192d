"""Text that people pasted, in forms that strace does not write."""

import pytest

from spoolscope.traces.errors import SpoolscopeError

OPEN = '[pid 7] 10:11:12.000100 open("/spool/a", O_RDWR) = 7 <0.000020>\n'
SYNC = "[pid 7] 10:11:12.000200 fsync(7) = 0 <0.020000>\n"
WEB = OPEN.replace("<", "&lt;").replace(">", "&gt;").replace('"', "&quot;")
WEB_SYNC = SYNC.replace("<", "&lt;").replace(">", "&gt;")
SUMS = "% time     seconds  usecs/call     calls    errors syscall\n 56.61 0.01 5 31 2 read\n"


@pytest.mark.parametrize(
    ("text", "said", "remedy"),
    [
        (WEB + WEB_SYNC, "is HTML", "html.unescape"),
        (f"> {OPEN}> > {SYNC}> ....\n", "is quoted as in a mail", "sed"),
        ((OPEN + SYNC).replace("= ", "=3D "), "is encoded as in a mail", "quopri"),
        ("strace: Process 7 attached\n" + SUMS, "has only sums of calls", "strace -f -ff"),
    ],
)
def test_pasted_text_is_refused_with_what_it_is(imported, text: str, said: str, remedy: str):
    with pytest.raises(SpoolscopeError, match=said) as refused:
        imported({"log": text})
    assert remedy in (refused.value.remedy or "")


def test_calls_with_sums_behind_them_are_imported(imported, calls) -> None:
    assert len(calls(imported({"log": OPEN + SYNC + SUMS}))) == 2


def test_content_with_entities_is_no_web_page(imported, calls) -> None:
    written = '[pid 7] 10:11:12.000300 write(7, "&lt;&quot;", 10) = 10 <0.000020>\n'
    assert len(calls(imported({"log": OPEN + written * 3}))) == 4


def _wrapped(text: str, width: int) -> str:
    """Return text as a terminal shows it, without the blanks at the ends of its rows."""
    rows = (
        line[at : at + width] for line in text.splitlines() for at in range(0, len(line), width)
    )
    return "\n".join(row.rstrip() for row in rows) + "\n"


@pytest.mark.parametrize("width", [40, 51, 60, 63])
def test_lines_that_a_terminal_wrapped_are_joined(imported, calls, width: int) -> None:
    text = (OPEN + SYNC.replace("7)", "7</spool/a/of/a/long/name>)")) * 3
    whole, wrapped = calls(imported({"log": text})), calls(imported({"log": _wrapped(text, width)}))
    assert wrapped == whole
    assert len(whole) == 6


@pytest.mark.parametrize("width", [52, 61])
def test_blanks_before_a_result_that_a_terminal_lost_are_put_back(imported, calls, width: int):
    padded = SYNC.replace(" =", " " * 30 + "=")
    lines = OPEN + padded + OPEN.replace("/a", "/of/a/long/name/in/a/long/name") + padded
    whole, wrapped = (imported({"log": text}) for text in (lines, _wrapped(lines, width)))
    assert calls(wrapped) == calls(whole)
    assert len(calls(whole)) == 4


@pytest.mark.parametrize(
    "before",
    [
        "Nov 27 10:11:12 mail strace[71]: ",
        "2026-11-27T10:11:12.123456+01:00 mail service: ",
        "2026-11-27T10:11:12+0100 mail strace[71]: ",
    ],
)
def test_what_a_log_wrote_before_lines_is_left_out(imported, calls, before: str) -> None:
    whole, logged = (imported({"log": f"{p}{OPEN}{p}{SYNC}"}) for p in ("", before))
    assert calls(logged) == calls(whole)
    assert len(calls(whole)) == 2


def test_a_damaged_line_is_not_joined_to_the_one_before(imported, calls) -> None:
    text = OPEN + "damaged, and much shorter than the widest line\n" + SYNC
    assert len(calls(imported({"log": text}))) == 2
