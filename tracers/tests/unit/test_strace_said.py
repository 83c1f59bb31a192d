"""Text in strace's files that tells of no call."""

from pathlib import Path

import pytest

from spoolscope.tracers.strace.files import Source
from spoolscope.traces.errors import SpoolscopeError

HEAD = "1700000000.{:06} "
OPEN = 'open("/spool/a", O_RDWR) = 3'
MESSAGES = [
    "strace: Process 7 attached with 2 threads",
    "strace: Process 7 attached",
    "Process 7 attached - interrupt to quit",
    "strace: umovestr: short read (1 < 4) @0x7ffd",
    "strace: WARNING: Proper structure decoding for this personality is not supported",
    "strace: seccomp filter is requested but unavailable",
    " <detached ...>",
    "^Cstrace: Process 7 detached",
    " > /usr/lib/libc.so.6(write+0x4f) [0xfe0cf]",
    ' | 00000  68 65 6c 6c 6f 0a 6f 70  65 6e 28 22 61 22 29 0a  hello.open("a"). |',
    " * 5 bytes in buffer 0",
    " = 2 buffers in vector 1",
    "% time     seconds  usecs/call     calls    errors syscall\n"
    "------ ----------- ----------- --------- --------- ----------------\n"
    " 96.21    0.000126           2        50        10 openat\n"
    "  3.79    0.000005           5         1           write\n"
    "------ ----------- ----------- --------- --------- ----------------\n"
    "100.00    0.000131           2        51        10 total",
]


@pytest.mark.parametrize("said", MESSAGES, ids=range(len(MESSAGES)))
def test_text_of_strace_that_is_no_call_is_left_out(imported, calls, said: str) -> None:
    lines = [OPEN, 'write(3, "hello\\n"..., 16) = 16', "close(3) = 0"]
    text = "".join(f"{HEAD.format(i)}{line}\n{said}\n" for i, line in enumerate(lines, 1))
    trace = imported({"log": text}, pid=7)
    assert [row["syscall"] for row in calls(trace)] == ["open", "write", "close"]
    assert [row["seq"] for row in calls(trace)] == [0, 1, 2]
    facts = trace.meta["imported"]
    assert (facts["lines"], facts["not_understood"], trace.meta["complete"]) == (3, 0, True)


@pytest.mark.parametrize(
    "said",
    ["^Cstrace: Process 7 detached\n", "strace: WARNING: it is so\n^Cstrace: Process 7 detached\n"],
)
def test_a_message_within_the_line_of_a_call_that_did_not_return(imported, said: str) -> None:
    text = f"{HEAD.format(1)}{OPEN}\n{HEAD.format(2)}read(3, {said} <detached ...>\n"
    facts = imported({"log": text}, pid=7).meta["imported"]
    assert (facts["lines"], facts["not_understood"], facts["unfinished"]) == (2, 0, 1)


def test_a_message_is_part_of_a_call_if_it_is_in_a_string(imported, calls) -> None:
    lines = [
        OPEN,
        'write(3, "strace: WARNING: x", 18) = 18',
        'unlink("/spool/strace: WARNING: ") = 0',
    ]
    text = "".join(f"{HEAD.format(i)}{line}\n" for i, line in enumerate(lines, 1))
    trace = imported({"log": text}, pid=7)
    assert [row["syscall"] for row in calls(trace)] == ["open", "write", "unlink"]
    assert trace.meta["complete"]


@pytest.mark.parametrize("ends", ["\n", "\r\n"])
def test_a_byte_order_mark_before_the_first_line(imported, calls, ends: str) -> None:
    text = f"\ufeff7 {HEAD.format(1)}{OPEN}{ends}7 {HEAD.format(2)}close(3) = 0{ends}"
    trace = imported({"log": text})
    assert [row["syscall"] for row in calls(trace)] == ["open", "close"]
    assert trace.meta["complete"]


@pytest.mark.parametrize(
    ("content", "said", "remedy"),
    [
        (b"\x1f\x8b\x08\x00\x00\x00\x00\x00\x00\x03", "is packed by gzip", "gzip -dc"),
        (b"\xfd7zXZ\x00\x00\x04\xe6", "is packed by xz", "xz -dc"),
        (b"\x28\xb5\x2f\xfd\x04\x58\x89", "is packed by zstd", "zstd -dc"),
        (b"BZh91AY&SY\x00", "is packed by bzip2", "bzip2 -dc"),
        (f"7 {OPEN}\n".encode("utf-16"), "is text of UTF-16", "iconv -f UTF-16"),
    ],
)  # fmt: skip
def test_packed_files_are_refused_with_what_unpacks_them(
    tmp_path: Path, content: bytes, said: str, remedy: str
) -> None:
    log = tmp_path / "a log"
    log.write_bytes(content)
    with pytest.raises(SpoolscopeError, match=said) as refused:
        Source([log])
    assert f"{remedy}" in (refused.value.remedy or "")
    assert f" '{log}' > '{log}'.txt" in (refused.value.remedy or "")


def written(shown: str, output: str, size: int | None = None) -> str:
    """Return the line of a write whose output is in the middle of it."""
    return f"write(1, {shown}, {len(output) if size is None else size}{output})     = {len(output)}"


@pytest.mark.parametrize(
    "line",
    [
        written('"hi\\n"', "hi\n"),
        written('"hi"', "hi"),
        written('"\\n\\n5\\n"', "\n\n5\n"),
        written('"5\\n"', "5\n"),
        written('"7) = 0\\n"', "7) = 0\n"),
        written('"open(\\"a\\"...\\n"', 'open("a"...\n'),
        written('""...', "12 lines\nand more\n"),
        written('"12 l"...', "12 lines\nand more\n"),
        written('""...', "9\n" * 50),
    ],
)  # fmt: skip
def test_output_of_the_program_in_the_middle_of_its_write(imported, calls, line: str) -> None:
    lines = [OPEN, line + " <0.000020>", "close(3) = 0"]
    text = "".join(f"{HEAD.format(i)}{said}\n" for i, said in enumerate(lines, 1))
    trace = imported({"log": text}, pid=7)
    facts = trace.meta["imported"]
    assert (facts["lines"], facts["not_understood"]) == (3, 0)
    assert [row["syscall"] for row in calls(trace)] == ["open", "close"]


@pytest.mark.parametrize(
    "line",
    [
        written('"hi\\n"', "ho\n"),
        written('"hi\\n"', "hi\n", 4),
        written('"hi\\n"', "hi\nmore\n", 3),
        written('"hi"...', "h\n", 9),
    ],
)
def test_text_that_may_be_more_than_output_is_not_taken_out(imported, calls, line: str) -> None:
    lines = [OPEN, line, "close(3) = 0"]
    text = "".join(f"{HEAD.format(i)}{said}\n" for i, said in enumerate(lines, 1))
    trace = imported({"log": text}, pid=7)
    assert trace.meta["imported"]["not_understood"] == 1 + line.count("\n")
    assert [row["syscall"] for row in calls(trace)] == ["open", "close"]
