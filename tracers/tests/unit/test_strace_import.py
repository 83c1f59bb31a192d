"""Texts of strace as traces."""

import random
from pathlib import Path

import pytest

from spoolscope.tracers.strace.importer import import_strace
from spoolscope.traces.errors import SpoolscopeError
from spoolscope.traces.private import Hiding
from spoolscope.traces.trace import Trace


def timed(*lines: str, tid: str = "", first: int = 0) -> str:
    """Return lines with times a millisecond apart."""
    return "".join(f"{tid}1700000000.{first + i:03}000 {line}\n" for i, line in enumerate(lines))


DELIVERY = timed(
    'execve("/usr/bin/lmtp", ["lmtp"], 0x7ff /* 3 vars */) = 0 <0.000100>',
    'chdir("/spool/alice") = 0 <0.000010>',
    'openat(AT_FDCWD</spool/alice>, "tmp/1", O_WRONLY|O_CREAT|O_EXCL, 0600)'
    " = 3</spool/alice/tmp/1> <0.000200>",
    'write(3</spool/alice/tmp/1>, "Subject: very secret words"..., 900) = 900 <0.000030>',
    'openat(AT_FDCWD</spool/alice>, "/etc/passwd", O_RDONLY) = 4</etc/passwd> <0.000010>',
    'read(4</etc/passwd>, "root"..., 4096) = 900 <0.000010>',
    "close(4</etc/passwd>) = 0 <0.000010>",
    "write(3</spool/alice/tmp/1>, "
    '"more of it"..., 100) = ? ERESTARTSYS (To be restarted if SA_RESTART is set) <0.000030>',
    "--- SIGCHLD {si_signo=SIGCHLD, si_code=CLD_EXITED, si_pid=9} ---",
    'write(3</spool/alice/tmp/1>, "more of it"..., 100) = 100 <0.000030>',
    "fsync(3</spool/alice/tmp/1>) = 0 <0.004000>",
    "close(3</spool/alice/tmp/1>) = 0 <0.000010>",
    'rename("tmp/1", "new/1") = 0 <0.000050>',
    "futex(0x7fff, FUTEX_WAKE_PRIVATE, 1) = 0 <0.000010>",
    "exit_group(0) = ?",
    "+++ exited with 0 +++",
)


def test_a_delivery(imported, calls) -> None:
    trace = imported({"log.70": DELIVERY})
    rows = calls(trace)
    names = [row["syscall"] for row in rows]
    assert names == [
        *("execve", "chdir", "openat", "write", "write", "write", "fsync", "close", "rename"),
        "exit_group",
    ]
    assert [row["seq"] for row in rows] == list(range(10))
    assert rows[2]["path"] == "alice/tmp/1"
    assert [(row["offset"], row["ret"], row["errno"]) for row in rows[3:6]] == [
        (0, 900, 0),
        (900, -1, 4),
        (900, 100, 0),
    ]
    assert [row["obj_size"] for row in rows[2:7]] == [0, 900, 900, 1000, 1000]
    assert (rows[8]["path"], rows[8]["path2"]) == ("alice/tmp/1", "alice/new/1")
    assert len({row["ino"] for row in rows[2:8]}) == 1
    assert rows[6]["dur_ns"] == rows[6]["blocked_ns"] == 4_000_000
    meta = trace.meta
    assert (meta["complete"], meta["tier"], meta["lost"]) == (True, "T0", 0)
    assert meta["imported"]["from"] == "strace"
    thread = trace.table("threads").to_pylist()[0]
    assert (thread["comm"], thread["exe"], thread["exit_code"]) == ("lmtp", "/usr/bin/lmtp", 0)


def test_no_content_and_no_name_is_in_the_trace(imported) -> None:
    trace = imported({"log.70": DELIVERY}, hiding=Hiding(bytes(32)))
    assert trace.meta["pseudonymised"]
    texts = "".join(str(trace.table(name).to_pylist()) for name in trace.meta["counts"])
    for word in ("secret", "more of", "alice", "root", "passwd"):
        assert word not in texts + (trace.path / "meta.json").read_text()


def test_one_file_of_several_processes_with_calls_torn_apart(imported, calls) -> None:
    def line(tid: int, at: int, text: str) -> str:
        return f"{tid} 1700000000.{at:06} {text}\n"

    text = (
        line(
            70,
            1,
            'openat(AT_FDCWD</spool>, "box", O_RDWR|O_CREAT, 0600) = 3</spool/box> <0.000001>',
        )
        + line(70, 10, "clone(child_stack=NULL, flags=SIGCHLD <unfinished ...>")
        + line(
            71, 12, "fcntl(3</spool/box>, F_SETLKW, {l_type=F_WRLCK, l_whence=SEEK_SET, "
        ).replace("SET, \n", "SET, l_start=0, l_len=0} <unfinished ...>\n")
        + line(70, 14, "<... clone resumed>) = 71")
        + line(70, 20, "fsync(3</spool/box> <unfinished ...>")
        + line(71, 25, "<... fcntl resumed>) = 0")
        + line(71, 30, "+++ exited with 1 +++")
        + line(70, 45, "<... fsync resumed>) = 0")
    )
    trace = imported({"log": text})
    rows = calls(trace)
    assert [(row["syscall"], row["tid"]) for row in rows] == [
        ("openat", 70),
        ("clone", 70),
        ("fcntl", 71),
        ("fsync", 70),
    ]
    assert [row["dur_ns"] for row in rows] == [1000, 4000, 13_000, 25_000]
    assert rows[2]["path"] == "box"
    lives = {row["tid"]: row for row in trace.table("threads").to_pylist()}
    assert lives[71]["parent_tid"] == 70
    assert lives[71]["start_ns"] < rows[2]["ts_ns"]
    assert trace.meta["complete"]


def test_what_was_open_before_is_told_by_its_path(imported, calls) -> None:
    text = timed(
        "read(7</spool/bob/index>, 0x7f, 100) = 100 <0.000010>",
        'openat(8</spool/bob>, "cur", O_RDONLY|O_DIRECTORY) = 9</spool/bob/cur> <0.000010>',
        "read(5<socket:[99]>, 0x7f, 100) = 100 <0.000010>",
        'unlink("old") = 0 <0.000010>',
        'openat(AT_FDCWD</spool/bob>, "new", O_RDONLY|O_DIRECTORY) = 6</spool/bob/new> <0.000010>',
    )
    trace = imported({"log.70": text})
    files = trace.table("open_files").to_pylist()
    assert [(row["fd"], row["obj_mode"] & 0o170000) for row in files] == [(7, 0), (8, 0o040000)]
    # The unlink came before a call showed the working directory, which was the same from the start.
    assert [row["path"] for row in calls(trace)] == ["bob/index", "bob/cur", "bob/old", "bob/new"]
    assert trace.meta["imported"]["unplaced"] == 0
    assert trace.meta["complete"]


def test_a_line_that_is_not_understood_leaves_a_hole_in_its_thread(imported) -> None:
    lines = DELIVERY.splitlines(keepends=True)
    lines[9] = "1700000000.009000 write(3</spool/alice/tmp/1>, garb\x07age\n"
    trace = imported({"log.70": "".join(lines)})
    holes = trace.table("losses").to_pylist()
    assert [(h["tid"], h["first_seq"], h["last_seq"], h["n"]) for h in holes] == [(70, 5, 5, 1)]
    assert not trace.meta["complete"]
    assert trace.meta["lost"] == 1


def test_a_file_that_ends_within_a_line(imported) -> None:
    trace = imported({"log.70": DELIVERY[: DELIVERY.index("fsync") + 9]})
    assert trace.meta["imported"]["not_understood"] == 1
    assert trace.table("losses").to_pylist()[0]["tid"] == 70
    assert not trace.meta["complete"]


def test_a_call_that_never_returned(imported, calls) -> None:
    text = DELIVERY.splitlines(keepends=True)[:3]
    text.append("1700000000.003000 fsync(3</spool/alice/tmp/1> <unfinished ...>\n")
    trace = imported({"log.70": "".join(text)})
    assert trace.meta["calls_in_flight"] == trace.meta["imported"]["unfinished"] == 1
    assert calls(trace)[-1]["flags_seen"] & 1 << 3
    assert not trace.meta["complete"]


def test_without_durations(imported, calls) -> None:
    text = DELIVERY
    while " <0.0" in text:
        at = text.index(" <0.0")
        text = text[:at] + text[text.index(">", at) + 1 :]
    trace = imported({"log.70": text})
    assert trace.meta["imported"]["without_duration"] == 12
    assert {row["dur_ns"] for row in calls(trace)} == {0}


def test_threads_share_what_their_process_has_open(imported, calls) -> None:
    first = timed(
        'openat(AT_FDCWD</spool>, "log", O_WRONLY|O_APPEND) = 3</spool/log> <0.000001>',
        "fstat(3</spool/log>, {st_mode=S_IFREG|0640, st_size=500, ...}) = 0 <0.000001>",
        "clone(child_stack=0x1, flags=CLONE_VM|CLONE_FS|CLONE_FILES|CLONE_SIGHAND|CLONE_THREAD)"
        " = 71 <0.000001>",
    )
    second = timed(
        "write(3</spool/log>, 0x7f, 10) = 10 <0.000001>",
        "close(3</spool/log>) = 0 <0.000001>",
        first=5,
    )
    trace = imported({"log.70": first, "log.71": second})
    rows = calls(trace)
    assert {row["pid"] for row in rows} == {70}
    assert [row["obj_size"] for row in rows] == [500, 500, None, 510, None]
    assert [row["obj_mode"] for row in rows if row["ino"]][:3] == [0o100640] * 3


def test_nobody_knows_who_wrote_first_of_two_at_once(imported, calls) -> None:
    """A call that begins a little later is concurrent, too: printed times end calls too early."""

    def line(tid: int, at: int, text: str) -> str:
        return f"{tid} 1700000000.{at:06} {text}\n"

    opened = 'openat(AT_FDCWD</spool>, "log", O_WRONLY|O_CREAT|O_EXCL, 0600) = 3</spool/log>'
    text = (
        line(70, 1, f"{opened} <0.000001>")
        + line(70, 10, "clone(child_stack=NULL, flags=SIGCHLD) = 71 <0.000005>")
        + line(70, 20, "write(3</spool/log>, 0x7f, 5) = 5 <0.000003>")
        + line(70, 2030, "write(3</spool/log>, 0x7f, 10 <unfinished ...>")
        + line(71, 2031, "write(3</spool/log>, 0x7f, 20) = 20 <0.000003>")
        + line(70, 2040, "<... write resumed>) = 10 <0.000010>")
        + line(71, 4050, "write(3</spool/log>, 0x7f, 1) = 1 <0.000003>")
        + line(70, 4100, "write(3</spool/log>, 0x7f, 2) = 2 <0.000003>")
        + line(70, 4200, "write(3</spool/log>, 0x7f, 2) = 2 <0.000003>")
        + line(70, 6000, "write(3</spool/log>, 0x7f, 2) = 2 <0.000003>")
    )
    rows = [row for row in calls(imported({"log": text})) if row["syscall"] == "write"]
    assert [row["offset"] for row in rows] == [0, None, None, None, None, None, 40]
    assert rows[-1]["obj_size"] == 42


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("close(3) = 0\n", "names no process"),
        ("1700000000.123456 close(3) = 0\n", "names no process"),
        ("close 3 = 0\n" * 2000 + "70 close(3) = 0\n", "not the output of strace"),
        ("\x00\x01\x02\xff\n", "not the output of strace"),
        ("PK\x03\x04", "not the output of strace"),
        ("", "nothing was written"),
        ("strace: attach: ptrace(PTRACE_SEIZE, 7): No such process\n", "a message of strace: "),
        ("strace: Process 7 attached\nstrace: Process 7 detached\n", "a message of strace: "),
    ],
)
def test_other_files_and_other_options(imported, text: str, said: str) -> None:
    with pytest.raises(SpoolscopeError, match=said) as raised:
        imported({"log": text})
    wanted = "--pid N" if "process" in said else "strace -f -ff -ttt -T -s 0 -y -o"
    assert wanted in raised.value.remedy
    assert "\n" not in str(raised.value)


def test_a_root_that_no_call_was_below(imported) -> None:
    with pytest.raises(SpoolscopeError, match="no call below /elsewhere"):
        imported({"log.70": DELIVERY}, root="/elsewhere")


def test_a_line_of_a_hundred_megabytes(calls, tmp_path: Path) -> None:
    log = tmp_path / "log.70"
    with log.open("w") as file:
        file.write(DELIVERY[: DELIVERY.index("1700000000.010")])
        file.write('1700000000.009900 write(3</spool/alice/tmp/1>, "')
        for _ in range(100):
            file.write("x" * (1 << 20))
        file.write('", 104857600) = 104857600\n')
        file.write(DELIVERY[DELIVERY.index("1700000000.010") :])
    import_strace([log], Path("/spool"), tmp_path / "trace", None, lambda _what, _fraction: None)
    trace = Trace.open(tmp_path / "trace")
    assert trace.meta["imported"]["not_understood"] == trace.meta["lost"] == 1
    assert [row["syscall"] for row in calls(trace)][-1] == "exit_group"


def test_garbage_after_a_good_beginning(imported) -> None:
    noise = random.Random(1)
    words = [*DELIVERY.split(" "), "\x00", "<", '"', "(", "<unfinished ...>", "<... read resumed>"]
    lines = (" ".join(noise.choices(words, k=9)).replace("\n", "") for _ in range(3000))
    trace = imported({"log.70": DELIVERY + timed(*lines)})
    assert trace.meta["counts"]["syscalls"] >= 10
    assert trace.meta["imported"]["not_understood"] > 1000
    assert not trace.meta["complete"]


DELETED = ["7</spool/idx>(deleted)", "7</spool/idx (deleted)>"]
"""A deleted file as strace prints it since 5.19, and before."""


@pytest.mark.parametrize("held", DELETED)
def test_a_file_that_lost_its_name_before_the_start(imported, calls, held: str) -> None:
    text = timed(
        f"lseek({held}, 0, SEEK_SET) = 0 <0.000010>",
        f'read({held}, ""..., 100) = 100 <0.000010>',
        f'newfstatat({held}, "", {{st_mode=S_IFREG|0600, st_size=700, ...}}, AT_EMPTY_PATH)'
        " = 0 <0.000010>",
        f"close({held}) = 0 <0.000010>",
        'stat("/spool/idx", {st_mode=S_IFREG|0600, st_size=10, ...}) = 0 <0.000010>',
    )
    trace = imported({"log.70": text})
    rows = calls(trace)
    assert [row["syscall"] for row in rows] == ["lseek", "read", "newfstatat", "close", "stat"]
    assert [row["obj_size"] for row in rows] == [700, 700, 700, None, 10]
    before, now = {row["ino"] for row in rows[:4]}, rows[4]["ino"]
    assert len(before) == 1
    assert now not in before
    files = trace.table("open_files").to_pylist()
    assert [(row["fd"], row["ino"], row["deleted"]) for row in files] == [(7, *before, True)]
    assert trace.meta["complete"]


def test_versions_of_a_file_that_had_one_name(imported, calls) -> None:
    """A descriptor with the same number in two processes was inherited: one file."""
    stat = "{{st_mode=S_IFREG|0600, st_size={}, ...}}) = 0 <0.000010>"
    first = timed(
        "fstat(7</spool/idx>(deleted), " + stat.format(700),
        "fstat(8</spool/idx>(deleted), " + stat.format(300),
    )
    second = timed("read(7</spool/idx>(deleted), 0x7f, 10) = 10 <0.000010>", first=10)
    rows = calls(imported({"log.70": first, "log.71": second}))
    assert [row["obj_size"] for row in rows] == [700, 300, 700]
    assert rows[0]["ino"] == rows[2]["ino"] != rows[1]["ino"]


def test_directories_that_lost_their_names_before_the_start(imported, calls) -> None:
    text = timed(
        'openat(8</spool/gone>(deleted), "a", O_RDONLY) = -1 ENOENT (No such file) <0.000010>',
        'openat(AT_FDCWD</spool/cwd (deleted)>, "b", O_RDONLY) = -1 ENOENT (No such) <0.000010>',
        "fsync(8</spool/gone>(deleted)) = 0 <0.000010>",
    )
    trace = imported({"log.70": text})
    assert [row["path"] for row in calls(trace)] == ["gone/a", "gone"]
    files = trace.table("open_files").to_pylist()
    assert [(row["fd"], row["obj_mode"] >> 12, row["deleted"]) for row in files] == [(8, 4, True)]
    # A name relative to a deleted working directory has no path.
    assert trace.meta["imported"]["unplaced"] == 1


def test_calls_on_descriptors_that_strace_could_not_follow_are_counted(imported) -> None:
    text = timed(
        "fsync(3</spool/a>) = 0 <0.000010>",
        "read(5, 0x7f, 100) = 100 <0.000010>",
        "read(6<socket:[99]>, 0x7f, 100) = 100 <0.000010>",
        "close(7) = -1 EBADF (Bad file descriptor) <0.000010>",
        "close_range(8, 4294967295, 0) = 0 <0.000010>",
        "read(1, 0x7f, 100) = 100 <0.000010>",
    )
    trace = imported({"log.70": text})
    assert trace.meta["imported"]["unplaced"] == 1
    assert not trace.meta["complete"]


def test_a_file_without_a_name_is_not_its_directory(imported, calls) -> None:
    made = "3</spool/dir/#9>(deleted)"
    text = timed(
        'openat(AT_FDCWD, "/spool/dir", O_RDONLY|O_DIRECTORY) = 4</spool/dir> <0.000005>',
        f'openat(AT_FDCWD, "/spool/dir", O_RDWR|O_TMPFILE, 0600) = {made} <0.000005>',
        f'write({made}, ""..., 5) = 5 <0.000005>',
        f'newfstatat({made}, "", {{st_mode=S_IFREG|0600, st_size=5, ...}}, AT_EMPTY_PATH) = 0',
        f'statx({made}, "", AT_EMPTY_PATH, STATX_ALL, {{stx_mode=S_IFREG|0600, stx_size=5, ...}})'
        " = 0 <0.000005>",
        f"close({made}) = 0 <0.000005>",
    )
    rows = calls(imported({"log.70": text}))
    assert [(row["obj_mode"] or 0) >> 12 for row in rows[:5]] == [0, 8, 8, 8, 8]
    assert len({row["ino"] for row in rows[1:]}) == 1
    assert rows[0]["ino"] != rows[1]["ino"]
    assert rows[0]["obj_size"] is None


@pytest.mark.parametrize(("kind", "mode"), [("S_IFREG|0600", 0), ("S_IFDIR|0700", 0o40755)])
def test_what_was_open_before_need_not_be_a_directory_to_be_looked_at(
    imported, kind: str, mode: int
) -> None:
    """glibc's fstat is a newfstatat without a name."""
    stat = f"{{st_mode={kind}, st_size=5, ...}}"
    text = timed(f'newfstatat(7</spool/box>, "", {stat}, AT_EMPTY_PATH) = 0 <0.000010>')
    trace = imported({"log.70": text})
    files = trace.table("open_files").to_pylist()
    assert [(row["fd"], row["obj_mode"] or 0) for row in files] == [(7, mode)]


FORK = "clone(child_stack=NULL, flags=CLONE_CHILD_CLEARTID|SIGCHLD)"
THREAD = "clone(child_stack=0x7f, flags=CLONE_VM|CLONE_FS|CLONE_FILES|CLONE_SIGHAND|CLONE_THREAD)"
ENDED = ("exit_group(0) = ?", "+++ exited with 0 +++")


def test_a_number_that_was_there_and_is_given_again(imported, calls) -> None:
    parent = timed(
        'stat("/spool/x", 0x7f) = -1 ENOENT (No such file or directory) <0.000005>',
        *["sync() = 0 <0.000005>"] * 9,
        f"{FORK} = 71 <0.000050>",
    )
    before = timed(
        'openat(AT_FDCWD, "/spool/box", O_RDWR) = 3</spool/box> <0.000005>', *ENDED, first=1
    )
    after = timed(
        'stat("/spool/box", {st_mode=S_IFREG|0644, st_size=5, ...}) = 0 <0.000005>',
        *ENDED,
        first=15,
    )
    trace = imported({"log.70": parent, "log.71": before + after})
    lives = trace.table("threads").to_pylist()
    assert [(row["tid"], row["parent_tid"], row["n_calls"]) for row in lives] == [
        (70, None, 11),
        (71, None, 2),
        (71, 70, 2),
    ]
    assert [row["start_ns"] is None for row in lives] == [True, True, False]
    assert [row["seq"] for row in calls(trace) if row["tid"] == 71] == [0, 1, 2, 3]
    assert trace.meta["complete"]


@pytest.mark.parametrize(("call", "pid"), [(FORK, 71), (THREAD, 70)])
def test_what_was_open_is_that_of_who_had_the_number_then(
    imported, calls, call: str, pid: int
) -> None:
    """The second process 71 inherits from 70; descriptor 3 of the first 71 must not matter."""
    parent = timed(*["sync() = 0 <0.000005>"] * 10, f"{call} = 71 <0.000050>")
    before = timed('read(3</spool/a>, ""..., 5) = 5 <0.000005>', *ENDED, first=1)
    after = timed('read(3</spool/b>, ""..., 5) = 5 <0.000005>', first=15)
    trace = imported({"log.70": parent, "log.71": before + after})
    files = trace.table("open_files").to_pylist()
    assert [(row["pid"], row["fd"]) for row in files] == [(70, 3), (71, 3)]
    rows = [row for row in calls(trace) if row["syscall"] == "read"]
    assert [(row["pid"], row["path"]) for row in rows] == [(71, "a"), (pid, "b")]
    assert files[0]["ino"] == rows[1]["ino"] != rows[0]["ino"] == files[1]["ino"]


@pytest.mark.parametrize(
    ("said", "parents", "lost"),
    [("12", [None, None], 1), ("12 /* 71 in strace's PID NS */", [None, 70], 0)],
)
def test_threads_in_a_pid_namespace(
    imported, calls, said: str, parents: list[int | None], lost: int
) -> None:
    parent = timed(
        'openat(AT_FDCWD, "/spool/box", O_RDWR) = 3</spool/box> <0.000005>',
        f"{THREAD} = {said} <0.000050>",
    )
    child = timed('write(3</spool/box>, ""..., 5) = 5 <0.000005>', first=5)
    trace = imported({"log.70": parent, "log.71": child})
    lives = trace.table("threads").to_pylist()
    assert [row["parent_tid"] for row in lives] == parents
    assert [row["ret"] for row in calls(trace) if row["syscall"] == "clone"] == [12]
    assert trace.meta["imported"]["without_parent"] == lost
    assert trace.meta["complete"] == (not lost)


def test_a_number_of_a_pid_namespace_that_somebody_else_has(imported) -> None:
    opened = 'openat(AT_FDCWD, "/spool/box", O_RDWR) = 3</spool/box> <0.000005>'
    other = timed(opened, *["sync() = 0 <0.000005>"] * 9)
    parent = timed("sync() = 0 <0.000005>", f"{FORK} = 12 <0.000050>", first=1)
    child = timed("sync() = 0 <0.000005>", first=5)
    trace = imported({"log.12": other, "log.70": parent, "log.71": child})
    lives = trace.table("threads").to_pylist()
    assert [(row["tid"], row["parent_tid"]) for row in lives] == [
        (12, None),
        (70, None),
        (71, None),
    ]
    assert trace.meta["imported"]["without_parent"] == 1


@pytest.mark.parametrize(
    ("first", "lost"), [('execve("/bin/sh", ["sh"], 0x7ff) = 0', 1), ("getuid() = 0", 0)]
)
def test_threads_that_come_late(imported, first: str, lost: int) -> None:
    """An old thread may make no call for long; but if strace began the command, all are new."""
    opened = 'openat(AT_FDCWD, "/spool/box", O_RDWR) = 3</spool/box> <0.000005>'
    trace = imported({"log.70": timed(first, opened), "log.71": timed(opened, first=9)})
    assert trace.meta["imported"]["without_parent"] == lost
    assert trace.meta["complete"] == (not lost)
