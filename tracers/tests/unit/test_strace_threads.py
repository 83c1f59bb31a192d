"""Threads and times of lines of strace that do not show them themselves."""

import re

import pytest

from spoolscope.tracers.strace.clocks import SECOND
from spoolscope.traces.errors import USAGE, SpoolscopeError

OPEN = 'open("/spool/{}", O_RDONLY) = {}'
EIGHT = f"[pid 8] {OPEN.format('a', 3)}\n"
SEVEN = f"[pid 7] {OPEN.format('b', 4)}\n"
ENDED = "[pid 8] +++ exited with 0 +++\n"
REST = f'{OPEN.format("c", 5)}\nunlink("/spool/c") = 0\n'


def threads(calls, trace) -> list[tuple[int, str]]:
    return [(row["tid"], row["path"]) for row in calls(trace)]


ALL = [(8, "a"), (7, "b"), (7, "c"), (7, "c")]


def test_lines_without_a_number_are_of_the_only_thread_that_has_not_ended(imported, calls):
    trace = imported({"log": EIGHT + SEVEN + ENDED + REST})
    assert threads(calls, trace) == ALL
    assert trace.meta["complete"]


def test_the_number_at_the_end_of_a_name_is_of_no_process_if_lines_name_theirs(imported, calls):
    trace = imported({"log.1": EIGHT + SEVEN + ENDED + REST})
    assert threads(calls, trace) == ALL


def test_a_thread_that_strace_attached_to_may_be_the_one_that_is_left(imported, calls) -> None:
    said = "strace: Process 7 attached with 2 threads\n"
    assert threads(calls, imported({"log": said + EIGHT + ENDED + REST})) == [ALL[0], *ALL[2:]]
    gone = SEVEN + EIGHT + "strace: Process 8 detached\n" + REST
    assert threads(calls, imported({"log": gone})) == [ALL[1], ALL[0], *ALL[2:]]


def test_the_thread_that_is_left_can_be_given(imported, calls) -> None:
    text = EIGHT + ENDED + REST
    with pytest.raises(SpoolscopeError, match="names no process after the end") as refused:
        imported({"log": text})
    assert "--pid N" in (refused.value.remedy or "")
    assert refused.value.exit_code == USAGE
    assert threads(calls, imported({"log": text}, pid=7)) == [ALL[0], *ALL[2:]]


def line(tid: int, at_us: int, text: str, *, second: int = 1_700_000_000) -> str:
    return f"{tid} {second}.{at_us:06} {text}\n"


MADE = 'open("/spool/a", O_RDWR|O_CREAT|O_EXCL, 0600) = 3'


def test_calls_after_the_clock_was_set_back_stay_behind_those_before(imported, calls) -> None:
    text = (
        line(7, 100, f"{MADE} <0.000010>", second=1_700_000_010)
        + line(7, 200, 'write(3, ""..., 10) = 10 <0.000050>', second=1_700_000_010)
        + line(8, 100, f"{OPEN.format('a', 3)} <0.000010>")
        + line(8, 200, 'unlink("/spool/a") = 0 <0.000010>')
        + line(7, 900, "close(3) = 0 <0.000010>")
    )
    trace = imported({"log": text})
    rows = calls(trace)
    assert [row["syscall"] for row in rows] == ["open", "write", "open", "unlink", "close"]
    ends = [row["ts_ns"] + row["dur_ns"] for row in rows]
    assert ends[1] < rows[2]["ts_ns"] < ends[1] + 10_000
    assert [rows[i]["ts_ns"] - rows[2]["ts_ns"] for i in (3, 4)] == [100_000, 800_000]
    assert trace.meta["imported"]["set_back"] == 1
    assert trace.meta["complete"]


BACK = {
    "a thread's own time": [(7, 0, MADE), (7, -10, "close(3) = 0"), (8, -9, "sync() = 0")],
    "the end of a call": [
        (8, 0, "fsync(4 <unfinished ...>"),
        (7, 1, MADE),
        (8, -10, "<... fsync resumed>) = 0"),
        (7, -9, "close(3) = 0"),
    ],
    "a call of another thread": [
        (8, 0, "sync( <unfinished ...>"),
        (8, 1, "<... sync resumed>) = 0"),
        (7, 2, MADE),
        (9, -10, "sync() = 0"),
    ],
}


@pytest.mark.parametrize("shown_by", BACK)
def test_what_shows_without_durations_that_the_clock_was_set_back(imported, calls, shown_by: str):
    lines = BACK[shown_by]
    text = "".join(line(tid, 5, said, second=1_700_000_000 + at) for tid, at, said in lines)
    trace = imported({"log": text})
    assert trace.meta["imported"]["set_back"] == 1
    rows = calls(trace)
    assert rows[-1]["syscall"] == lines[-1][2].partition("(")[0]
    assert rows[-1]["ts_ns"] - rows[0]["ts_ns"] < 3 * SECOND


@pytest.mark.parametrize("duration", [" <2.500000>", ""])
def test_a_line_that_was_written_at_the_end_of_its_call_is_no_step_back(
    imported, calls, duration: str
) -> None:
    """With -z lines are in the order of ends, but have the times of begins."""
    text = (
        line(7, 100, "sync() = 0")
        + line(7, 100, MADE, second=1_700_000_002)
        + line(8, 200, f"{OPEN.format('b', 3)}{duration}")
        + line(7, 100, "close(3) = 0", second=1_700_000_003)
    )
    trace = imported({"log": text})
    assert trace.meta["imported"]["set_back"] == 0
    assert [row["syscall"] for row in calls(trace)] == ["sync", "open", "open", "close"]
    assert [row["path"] for row in calls(trace)][1:3] == ["b", "a"]


def test_files_of_one_thread_each_are_not_in_the_order_of_lines(imported, calls) -> None:
    first = f"1700000010.000100 {MADE} <0.000010>\n"
    second = f"1700000000.000100 {OPEN.format('a', 3)} <0.000010>\n"
    trace = imported({"log.7": first, "log.8": second})
    assert [row["tid"] for row in calls(trace)] == [8, 7]
    assert trace.meta["imported"]["set_back"] == 0


BEGUN = [
    'openat(AT_FDCWD, "/spool/a", O_RDWR) = 3 <0.000010>',
    'openat(AT_FDCWD, "/spool/b", O_RDWR|O_CLOEXEC) = 4 <0.000010>',
    "clone(child_stack=0x7f, flags=CLONE_VM|CLONE_FS|CLONE_FILES|CLONE_SIGHAND|CLONE_THREAD) = 8"
    " <0.000010>",
]
SYNC = "fsync(3 <unfinished ...>"
READ = 'read(3, ""..., 5) = 5 <0.000010>'
EXECUTED = 'execve("/bin/true", ["true"], 0x7f /* 38 vars */ '
AFTER = [
    "+++ superseded by execve in pid 8 +++",
    "<... execve resumed>) = 0 <0.003000>",
    'write(3, ""..., 5) = 5 <0.000010>',
    "fsync(4) = 0 <0.000010>",  # of another file: 4 was closed by execve
    "exit_group(0) = ?",
    "+++ exited with 0 +++",
]
FIRST = [
    *((7, said) for said in [*BEGUN, SYNC]),
    (8, READ),
    (8, EXECUTED + "<unfinished ...>"),
    (7, "<... fsync resumed> <unfinished ...>) = ?"),
]


def text_of(lines: list[tuple[int, str]], first: int = 0) -> str:
    return "".join(line(tid, 1000 * at, said) for at, (tid, said) in enumerate(lines, first))


def apart() -> dict[str, str]:
    """Return the files of -ff."""
    first = [*BEGUN, "fsync(3 <unfinished ...>) = ?", *AFTER]
    second = [READ, EXECUTED + "<pid changed to 7 ...>"]
    files = {"log.7": text_of([(7, said) for said in first[:4]])}
    files["log.7"] += text_of([(7, said) for said in first[4:]], 9)
    files["log.8"] = text_of([(8, said) for said in second], 6)
    return {name: re.sub("(?m)^. ", "", text) for name, text in files.items()}


def on_a_terminal() -> dict[str, str]:
    """Return the lines of a terminal, where strace names a thread only if there are several."""
    text = re.sub("(?m)^(.) ", r"[pid     \1] ", text_of(FIRST))
    return {"log": text + re.sub("(?m)^. ", "", text_of([(7, said) for said in AFTER], 9))}


FORMS = {
    "one file": lambda: {"log": text_of([*FIRST, *((7, said) for said in AFTER)])},
    "a file for each": apart,
    "a terminal": on_a_terminal,
}


@pytest.mark.parametrize("form", FORMS)
def test_a_thread_that_executes_has_the_number_of_the_first_from_then_on(
    imported, calls, form: str
) -> None:
    trace = imported(FORMS[form]())
    facts = trace.meta["imported"]
    assert (facts["not_understood"], facts["unfinished"]) == (0, 0)
    rows = calls(trace)
    assert [(row["tid"], row["syscall"], row["path"]) for row in rows[3:]] == [
        (7, "fsync", "a"), (8, "read", "a"), (7, "execve", "/bin/true"), (7, "write", "a"),
        (7, "exit_group", None),
    ]  # fmt: skip
    executed = next(row for row in rows if row["syscall"] == "execve")
    assert executed["dur_ns"] == 3_000_000
    lives = {row["tid"]: row for row in trace.table("threads").to_pylist()}
    assert (lives[7]["comm"], lives[7]["exe"], lives[8]["pid"]) == ("true", "/bin/true", 7)
    assert [lives[tid]["exit_code"] for tid in (7, 8)] == [0, 0]


@pytest.mark.parametrize("number", ["PR_SET_NAME", "0xf", "0xf /* PR_SET_NAME */"])
def test_names_of_threads_in_any_style(imported, number: str) -> None:
    text = line(7, 1, OPEN.format("a", 3)) + line(7, 2, f'prctl({number}, "worker") = 0')
    thread = imported({"log": text}).table("threads").to_pylist()[0]
    assert thread["comm"] == "worker"
