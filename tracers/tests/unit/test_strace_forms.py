"""Files that strace writes with options other than the recommended ones."""

from pathlib import Path

import pytest

from spoolscope.tracers.strace.clocks import DAY, SECOND
from spoolscope.traces.errors import USAGE, SpoolscopeError

MAKE = 'openat(AT_FDCWD, "/spool/a", O_WRONLY|O_CREAT, 0600) = 3'
MOVE = 'rename("/spool/a", "/spool/b") = 0'
LINES = [MAKE, "fsync(3) = 0", "close(3) = 0", MOVE]
NAMES = ["openat", "fsync", "close", "rename"]
MS = 1_000_000


def written(heads: list[str], tail: str = "") -> str:
    return "".join(f"{head}{line}{tail}\n" for head, line in zip(heads, LINES, strict=True))


FORMS = {
    "unix": (
        ["1700000000.000000 ", "1700000000.002000 ", "1700000000.003000 ", "1700000000.500 "],
        500 * MS,
    ),
    "t": (["16:02:01 "] * 3 + ["16:02:04 "], None),
    "tt": ([f"16:02:01.00{i}000 " for i in (0, 2, 3, 7)], 7 * MS),
    "r": (["     0.000000 ", "     0.002000 ", "     0.001000 ", "    11.000000 "], 11_003 * MS),
    "tt and r": ([f"16:02:01.00{i}000 (+     0.001000) " for i in range(4)], 3 * MS),
    "none": ([""] * 4, None),
    "whole unix": (["1700000000 "] * 4, None),
    "indented": ([f"   16:02:01.00{i}000   " for i in range(4)], 3 * MS),
    "numbers of calls": ([f"16:02:01.00{i}000 [ 257] " for i in range(4)], 3 * MS),
    "addresses": ([f"16:02:01.00{i}000 [00007f2d0e7b2c1d] " for i in range(4)], 3 * MS),
}


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("how", ["suffix", "pid", "column", "bracket"])
def test_each_form_gives_the_same_calls(imported, calls, form: str, how: str) -> None:
    heads, apart_ns = FORMS[form]
    column = {"column": "70 ", "bracket": "[pid    70] "}.get(how, "")
    text = written([column + head.lstrip() if column else head for head in heads])
    name = "log.70" if how == "suffix" else "log"
    trace = imported({name: text}, pid=70 if how == "pid" else None)
    rows = calls(trace)
    assert [(row["tid"], row["syscall"]) for row in rows] == [(70, name) for name in NAMES]
    assert [row["path"] for row in rows] == ["a"] * 4
    assert rows[3]["path2"] == "b"
    times = [row["ts_ns"] for row in rows]
    assert times == sorted(set(times))
    if apart_ns is not None:
        assert times[3] - times[0] == apart_ns
    facts = trace.meta["imported"]
    assert facts["in_order"] == (form in ("t", "none", "whole unix"))
    assert (facts["lines"], facts["not_understood"]) == (4, 0)
    assert trace.meta["complete"]


def test_calls_of_several_threads_stay_in_the_order_of_lines(imported, calls) -> None:
    """With times of whole seconds, or none, durations are kept, and no overlaps are added."""
    lines = [
        '70 16:02:01 openat(AT_FDCWD, "/spool/a", O_WRONLY|O_CREAT, 0600) = 3 <0.400000>',
        '71 16:02:01 stat("/spool/a", {st_mode=S_IFREG|0600, st_size=0, ...}) = 0 <0.000010>',
        "70 16:02:01 flock(3, LOCK_EX <unfinished ...>",
        '71 16:02:01 unlink("/spool/a") = 0 <0.300000>',
        "70 16:02:02 <... flock resumed>) = 0 <0.000200>",
        '71 16:02:02 stat("/spool/a", 0x7ff) = -1 ENOENT (No such file or directory) <0.000010>',
    ]
    for timed in (True, False):
        text = "".join(f"{line if timed else line[:3] + line[12:]}\n" for line in lines)
        rows = calls(imported({f"log{timed}": text}))
        assert [row["syscall"] for row in rows] == ["openat", "stat", "flock", "unlink", "stat"]
        spans = [(row["ts_ns"], row["ts_ns"] + row["dur_ns"]) for row in rows]
        opened, first, lock, gone, second = spans
        assert opened[1] - opened[0] == 400 * MS
        assert opened[1] < first[0]
        assert first[1] < lock[0] < gone[0] < gone[1] < lock[1] < second[0]


def test_midnight(imported, calls, tmp_path: Path) -> None:
    heads = ["23:59:59.900000 ", "23:59:59.999000 ", "00:00:00.001000 ", "00:00:01.000000 "]
    rows = calls(imported({"log.70": written(heads)}))
    assert rows[3]["ts_ns"] - rows[0]["ts_ns"] == 1_100 * MS
    changed = (tmp_path / "log.70").stat().st_mtime_ns
    assert rows[3]["ts_ns"] // DAY == changed // DAY
    assert rows[3]["ts_ns"] % DAY == SECOND


def test_files_of_both_sides_of_midnight_are_laid_side_by_side(imported, calls) -> None:
    """One file ends before midnight, one begins after it; their times do not show that."""
    longest = "".join(
        f'{time} stat("/spool/x", 0x7ff) = -1 ENOENT (No such file or directory)\n'
        for time in ("23:50:00.000000", "23:59:00.000000", "00:20:00.000000")
    )
    before = '23:58:00.000000 unlink("/spool/before") = 0\n'
    after = '00:10:00.000000 unlink("/spool/after") = 0\n'
    rows = calls(imported({"log.70": longest, "log.71": before, "log.72": after}))
    minutes = [(row["ts_ns"] - rows[0]["ts_ns"]) // (60 * SECOND) for row in rows]
    assert [(m, row["path"]) for m, row in zip(minutes, rows, strict=True)] == [
        (0, "x"), (8, "before"), (9, "x"), (20, "after"), (30, "x"),
    ]  # fmt: skip


@pytest.mark.parametrize(
    ("files", "pid", "said", "remedy"),
    [
        ({"a": "stat(1) = 0\n"}, None, "a names no process", "--pid N"),
        ({"a": "16:02:01 stat(1) = 0\n"}, None, "a names no process", "--pid N"),
        ({"a.1": "stat(1) = 0\n", "a.2": "stat(1) = 0\n"}, None, "no times: nothing", "one file"),
        ({"a.1": "  0.000001 stat(1) = 0\n", "a.2": "  0.000001 stat(1) = 0\n"}, None,
         "from the line before", "one file"),
        ({"a.1": "16:02:01.000001 stat(1) = 0\n", "a.2": "1700000000.1234 stat(1) = 0\n"}, None,
         "several kinds", "one file"),
        ({"a.1": "16:02:01 stat(1) = 0\n", "a.2": "16:02:01 stat(1) = 0\n"}, None,
         "whole seconds", "one file"),
        ({"a": "70 stat(1) = 0\n"}, 70, "all lines name theirs", "leave --pid out"),
        ({"a": "16:02:01.000001 stat(1) = 0\n", "b": "16:02:01.000001 stat(1) = 0\n"}, 70,
         "2 of the files name none", "FILE.N"),
    ],
)  # fmt: skip
def test_what_cannot_be_known_is_refused(imported, files, pid, said: str, remedy: str) -> None:
    with pytest.raises(SpoolscopeError, match=said) as refused:
        imported(files, pid=pid)
    assert remedy in refused.value.remedy
    assert refused.value.exit_code == USAGE


def test_beginnings_and_ends_that_are_cut_and_words_between(imported, calls) -> None:
    text = (
        '"..., 4096) = 0\n'
        "strace: Process 70 attached with 2 threads\n"
        f"[pid    70] {MAKE}\r\n"
        "strace: Process 71 attached\n"
        "[pid    70] clone(child_stack=NULL, flags=SIGCHLDstrace: Process 72 attached\n"
        ", child_tidptr=0x7f34cf263e50) = 72\n"
        "[ Process PID=72 runs in 32 bit mode. ]\n"
        '[pid    72] mkdir("/spool/d", 0700)   = 0\n'
        '[pid    70] write(3, "strace: Process 9 attached\\n", 27) = 27\n'
        '[pid    70] rename("/spool/a", "/spo'
    )
    trace = imported({"log": text})
    rows = calls(trace)
    assert [(row["tid"], row["syscall"]) for row in rows] == [
        (70, "openat"), (70, "clone"), (72, "mkdir"), (70, "write"),
    ]  # fmt: skip
    facts = trace.meta["imported"]
    assert facts["not_understood"] == 2  # the cut lines
    assert not trace.meta["complete"]
    lives = {row["tid"]: row for row in trace.table("threads").to_pylist()}
    assert lives[72]["parent_tid"] == 70


OLD = [
    ('oldstat("/spool/a", {st_mode=S_IFREG|0600, st_size=7, ...}) = 0', "stat"),
    ('stat64("/spool/a", {st_mode=S_IFREG|0600, st_size=7, ...}) = 0', "stat"),
    ('lstat64("/spool/a", {st_mode=S_IFREG|0600, st_size=7, ...}) = 0', "lstat"),
    ("fstat64(3, {st_mode=S_IFREG|0600, st_size=7, ...}) = 0", "fstat"),
    ('fstatat64(AT_FDCWD, "/spool/a", {st_mode=S_IFREG|0600, ...}, 0) = 0', "newfstatat"),
    ('statfs64("/spool/a", 84, {f_type=EXT2_SUPER_MAGIC, ...}) = 0', "statfs"),
    ("fcntl64(3, F_SETLKW64, {l_type=F_WRLCK, l_whence=SEEK_SET, l_len=0}) = 0", "fcntl"),
    ("pwrite(3, \"\"..., 4, 2) = 4", "pwrite64"),
    ("_llseek(3, 5, [5], SEEK_SET) = 0", "lseek"),
    ("ftruncate64(3, 100) = 0", "ftruncate"),
    ('truncate64("/spool/a", 90) = 0', "truncate"),
    ('chown32("/spool/a", 1000, 8) = 0', "chown"),
    ('lchown32("/spool/a", 1000, 8) = 0', "lchown"),
    ("fchown32(3, 1000, 8) = 0", "fchown"),
    ("fadvise64_64(3, 0, 4096, POSIX_FADV_DONTNEED) = 0", "fadvise64"),
    ("sync_file_range2(3, SYNC_FILE_RANGE_WRITE, 10, 20) = 0", "sync_file_range"),
    ("mmap2(NULL, 4096, PROT_READ, MAP_SHARED, 3, 0) = 0x7f0000000000", "mmap"),
    ("sendfile64(4, 3, [0] => [10], 10) = 10", "sendfile"),
    ("setuid32(1000) = 0", "setuid"),
    ("_exit(0) = ?", "exit"),
]  # fmt: skip


def test_calls_of_old_programs_are_those_of_today(imported, calls) -> None:
    begin = [
        'open("/spool/a", O_RDWR|O_CREAT|O_LARGEFILE, 0600) = 3',
        'open("/spool/c", O_RDWR) = 4',
    ]
    text = "".join(f"70 {line}\n" for line in [*begin, *(line for line, _ in OLD)])
    trace = imported({"log": text})
    rows = calls(trace)
    assert [row["syscall"] for row in rows] == ["open", "open", *(name for _, name in OLD)]
    assert trace.meta["imported"]["not_understood"] == 0
    assert trace.meta["imported"]["other_calls"] == {}
    of = {row["syscall"]: row for row in rows}
    assert (of["lseek"]["ret"], of["lseek"]["offset"], of["lseek"]["cmd"]) == (5, 5, 0)
    assert (of["sync_file_range"]["offset"], of["sync_file_range"]["size"]) == (10, 20)
    assert of["sync_file_range"]["flags"] == 2
    assert (of["fcntl"]["cmd"], of["fcntl"]["lock_type"]) == (7, 1)
    assert of["ftruncate"]["offset"] == 100
    assert of["truncate"]["offset"] == 90
    assert of["newfstatat"]["path"] == "a"
    assert len({of[name]["ino"] for name in ("open", "stat", "lstat", "fstat", "lseek")} - {0}) <= 2


def test_relative_names_are_those_of_the_directory_that_was_given(imported, calls) -> None:
    lines = ["stat(\"new/1\", 0x7ff) = -1 ENOENT (No such file or directory)",
             'openat(AT_FDCWD, "tmp/1", O_WRONLY|O_CREAT, 0600) = 3',
             'chdir("..") = 0', 'rename("bob/tmp/1", "bob/new/1") = 0']  # fmt: skip
    text = "".join(f"70 {line}\n" for line in lines)
    trace = imported({"log": text}, cwd="/spool/bob")
    assert [row["path"] for row in calls(trace)] == ["bob/new/1", "bob/tmp/1", "", "bob/tmp/1"]
    assert trace.meta["complete"]


@pytest.mark.parametrize(
    ("opened", "directory"),
    [
        ('openat(AT_FDCWD, "tmp/1", O_RDONLY) = 3</spool/bob/tmp/1>', "/spool/bob"),
        ('open("./tmp//1", O_RDONLY) = 3</spool/bob/tmp/1>', "/spool/bob"),
        ('openat(AT_FDCWD, ".", O_RDONLY|O_DIRECTORY) = 3</spool/bob>', "/spool/bob"),
        ('openat(AT_FDCWD, "tmp/1", O_RDONLY) = 3</spool/elsewhere>', None),  # through a symlink
        ('openat(AT_FDCWD, "../bob/tmp/1", O_RDONLY) = 3</spool/bob/tmp/1>', None),
    ],
)
def test_an_open_tells_the_working_directory(imported, calls, opened: str, directory) -> None:
    text = f'70 unlink("old") = 0\n70 {opened}\n70 unlink("older") = 0\n'
    trace = imported({"log": text})
    names = [row["path"] for row in calls(trace) if row["syscall"] == "unlink"]
    assert names == (["bob/old", "bob/older"] if directory else [])
    assert trace.meta["imported"]["unplaced"] == (0 if directory else 2)


def test_a_relative_working_directory_is_wrong_usage(imported) -> None:
    with pytest.raises(SpoolscopeError, match="cannot be the working directory") as refused:
        imported({"log": f"70 {MAKE}\n"}, cwd="bob")
    assert refused.value.exit_code == USAGE


def test_the_whole_machine_as_root(imported, calls) -> None:
    lines = [*LINES, 'swapon("/dev/x", 0) = 0', "getpid() = 70",
             'stat("/", {st_mode=S_IFDIR|0755, st_size=4096, ...}) = 0']  # fmt: skip
    trace = imported({"log": "".join(f"70 {line}\n" for line in lines)}, root="/")
    rows = calls(trace)
    assert [row["path"] for row in rows] == ["spool/a"] * 4 + [rows[4]["path"]]
    assert rows[3]["path2"] == "spool/b"
    assert trace.meta["imported"]["other_calls"] == {"swapon": 1}


def test_stacks_of_calls_are_left_out(imported, calls) -> None:
    """Check -k, which prints a call's stack below it, and an empty line at its end."""
    stack = " > /usr/lib/x86_64-linux-gnu/libc.so.6(write+0x4f) [0xfe0cf]\n > /bin/cp() [0x5]\n\n"
    text = "".join(f"1700000000.00{i}000 {line}\n{stack}" for i, line in enumerate(LINES))
    trace = imported({"log.70": text})
    assert [row["syscall"] for row in calls(trace)] == NAMES
    assert (trace.meta["imported"]["not_understood"], trace.meta["complete"]) == (0, True)


def test_lines_without_a_number_are_of_the_process_that_is_left(imported, calls) -> None:
    """Check a terminal's form: processes are named only while there are several."""
    text = "".join(
        f"{line}\n"
        for line in (
            MAKE,
            "clone(child_stack=NULL, flags=SIGCHLD) = 71",
            "[pid    70] fsync(3) = 0",
            "[pid    71] close(3) = 0",
            "[pid    70] +++ exited with 0 +++",
            MOVE,
            "+++ exited with 0 +++",
        )
    )
    rows = calls(imported({"log": text}, pid=70))
    made = {row["syscall"]: row["tid"] for row in rows}
    assert made == {"openat": 70, "clone": 70, "fsync": 70, "close": 71, "rename": 71}


@pytest.mark.parametrize("said", ["suspended", "resumed (parent 70 ready)", "attached (waiting)"])
def test_messages_of_old_straces_are_no_lines(imported, said: str) -> None:
    trace = imported({"log.70": written([""] * 4) + f"Process 71 {said}\n"})
    assert trace.meta["imported"]["not_understood"] == 0
