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
