"""Directories, links and sizes that a log leaves out, as strace prints them beside other calls."""

import errno

import pytest

from spoolscope.traces.private import Hiding
from spoolscope.traces.trace import Trace

LOCK = "fcntl(3, F_SETLK, 0x7ffe1234)"


def log(*lines: str) -> dict[str, str]:
    """Return a log of such lines, `THREAD CALL`, a millisecond apart."""
    parts = (line.split(" ", 1) for line in lines)
    text = "".join(
        f"{tid} 1700000000.{i:03}000 {call} <0.000010>\n" for i, (tid, call) in enumerate(parts)
    )
    return {"log": text}


def open_before(trace: Trace) -> list[tuple[int, int, int]]:
    """Return process, descriptor and position of what was open at the start."""
    rows = trace.table("open_files").to_pylist()
    return [(row["pid"], row["fd"], row["offset"]) for row in rows]


def test_a_directory_that_is_printed_is_believed_although_no_call_led_there(imported, calls):
    trace = imported(
        log(
            '7 openat(AT_FDCWD</spool>, "a", O_RDWR|O_CREAT, 0600) = 3</spool/a>',
            '7 openat(AT_FDCWD</spool/d>, "b", O_RDWR|O_CREAT, 0600) = 4</spool/d/b>',
            '7 rename("b", "c") = 0',
        )
    )
    assert [row["path"] for row in calls(trace)] == ["a", "d/b", "d/b"]
    assert calls(trace)[2]["path2"] == "d/c"


def test_a_directory_reached_by_a_link_outside_is_the_printed_one(imported, calls):
    trace = imported(
        log(
            '7 chdir("/home/link") = 0',
            '7 openat(AT_FDCWD</spool/q>, "e", O_RDONLY) = 5</spool/q/e>',
        )
    )
    assert [row["path"] for row in calls(trace)] == ["/home/link", "q/e"]


def test_a_number_whose_closing_was_left_out_is_of_the_printed_file(imported, calls):
    trace = imported(
        log(
            '7 openat(AT_FDCWD</spool>, "a", O_RDONLY) = 3</spool/a>',
            '7 read(3</spool/a>, ""..., 100) = 100',
            '7 read(3</spool/b>, ""..., 100) = 50',
            "7 fsync(3</spool/b>) = 0",
        )
    )
    inodes = [row["ino"] for row in calls(trace)]
    assert inodes[0] == inodes[1] != inodes[2] == inodes[3]


def test_a_file_whose_renaming_was_left_out_stays_the_same(imported, calls):
    trace = imported(
        log(
            '7 openat(AT_FDCWD</spool>, "a", O_RDWR) = 3</spool/a>',
            "7 fsync(3</spool/b>) = 0",
            "7 close(3</spool/b>) = 0",
        )
    )
    assert len({row["ino"] for row in calls(trace)}) == 1


def test_a_new_file_was_not_open_before_in_another_thread(imported, calls):
    trace = imported(
        log(
            '7 openat(AT_FDCWD</spool>, "n", O_RDWR|O_CREAT|O_EXCL, 0600) = 4</spool/n>',
            "8 fsync(4</spool/n>) = 0",
        )
    )
    assert open_before(trace) == []
    assert [row["path"] for row in calls(trace)] == ["n", "n"]


def test_an_open_through_a_link_is_of_the_name_that_is_printed(imported, calls):
    trace = imported(
        log(
            '7 openat(AT_FDCWD</spool>, "ln", O_RDWR) = 3</spool/sub/t>',
            '7 stat("/spool/sub/t", {st_mode=S_IFREG|0644, st_size=500, ...}) = 0',
            '7 openat(5</spool/sub>, "up", O_RDWR) = 4</spool/v>',
        )
    )
    assert [(row["path"], row["ino"]) for row in calls(trace)] == [
        ("sub/t", 1),
        ("sub/t", 1),
        ("v", 3),  # the directory is 2
    ]
    relative, absolute = 2, 1
    assert [row["path_base"] for row in calls(trace)] == [relative, absolute, absolute]


def test_paths_are_read_of_a_log_in_hexadecimal(imported, calls):
    trace = imported(
        log(
            r'7 read(3<\x2f\x73\x70\x6f\x6f\x6c\x2f\x61>, "\x61"..., 100) = 100',
            r'7 openat(AT_FDCWD<\x2f\x73\x70\x6f\x6f\x6c>, "\x62", O_RDONLY)'
            r" = 4<\x2f\x73\x70\x6f\x6f\x6c\x2f\x62>",
            r'7 read(5<\x73\x6f\x63\x6b\x65\x74\x3a\x5b\x31\x5d>, "\x61"..., 100) = 100',
        )
    )
    assert [row["path"] for row in calls(trace)] == ["a", "b"]


@pytest.mark.parametrize("hidden", [False, True])
def test_what_a_link_holds_is_kept(imported, calls, hidden: bool):
    hiding = Hiding(bytes(32)) if hidden else None
    trace = imported(
        log(
            '7 readlink("/spool/cur", "v12", 4096) = 3',
            '7 readlink("/spool/full", "v12", 3) = 3',
            '7 readlink("/spool/cut", "v12"..., 4096) = 9',
            '7 open("/spool/v12", O_RDONLY) = 3',
        ),
        hiding=hiding,
    )
    found = [row["path2"] for row in calls(trace)]
    assert found[0] == calls(trace)[3]["path"]
    assert found[1:] == [None, None, None]


def test_a_link_is_another_object_than_what_its_name_led_to(imported, calls):
    trace = imported(
        log(
            '7 stat("/spool/ln", {st_mode=S_IFREG|0644, st_size=321, ...}) = 0',
            '7 lstat("/spool/ln", {st_mode=S_IFLNK|0777, st_size=10, ...}) = 0',
        )
    )
    assert [row["ino"] for row in calls(trace)] == [1, None]


def test_a_position_at_the_start_follows_from_a_later_seek(imported, calls):
    trace = imported(
        log(
            '7 read(3</spool/a>, ""..., 100) = 100',
            "7 lseek(3</spool/a>, 0, SEEK_CUR) = 1100",
        )
    )
    assert calls(trace)[0]["offset"] == 1000
    assert open_before(trace) == [(7, 3, 1000)]


def test_a_position_at_the_start_follows_from_how_a_write_made_the_file_larger(imported, calls):
    stat = "{st_mode=S_IFREG|0600, st_size=%d, ...}"
    trace = imported(
        log(
            '7 write(3</spool/a>, ""..., 100) = 100',
            f"7 fstat(3</spool/a>, {stat % 1100}) = 0",
            '7 write(3</spool/a>, ""..., 100) = 100',
            f"7 fstat(3</spool/a>, {stat % 1200}) = 0",
        )
    )
    assert [row["offset"] for row in calls(trace)] == [1000, None, 1100, None]


def test_a_file_of_unknown_position_that_is_only_read_is_read_from_its_begin(imported, calls):
    trace = imported(
        log('7 read(3</spool/a>, ""..., 100) = 100', '7 read(3</spool/a>, ""..., 100) = 20')
    )
    assert [row["offset"] for row in calls(trace)] == [0, 100]


def test_a_file_of_unknown_position_that_is_written_has_none(imported, calls):
    trace = imported(log('7 write(3</spool/a>, ""..., 100) = 100'))
    assert calls(trace)[0]["offset"] is None


def test_a_size_that_a_write_cannot_have_made_was_there_before(imported, calls):
    trace = imported(
        log(
            '7 open("/spool/b", O_RDWR|O_CREAT, 0600) = 4',
            '7 write(4, "x", 1) = 1',
            "7 fstat(4, {st_mode=S_IFREG|0600, st_size=7, ...}) = 0",
        )
    )
    assert [row["obj_size"] for row in calls(trace)] == [7, 7, 7]


def test_a_mode_changes_by_name_and_by_calls_that_are_not_there(imported, calls):
    stat = "fstat(3, {st_mode=S_IFREG|%s, st_size=10, ...}) = 0"
    trace = imported(
        log(
            '7 open("/spool/a", O_RDWR) = 3',
            f"7 {stat % '0600'}",
            '7 chmod("/spool/a", 0644) = 0',
            "7 fsync(3) = 0",
            f"7 {stat % '0400'}",
            "7 fsync(3) = 0",
        )
    )
    modes = {row["syscall"]: row["obj_mode"] for row in calls(trace)}
    assert [row["obj_mode"] for row in calls(trace) if row["syscall"] == "fsync"] == [
        0o100644,
        0o100400,
    ]
    assert modes["open"] == 0o100600


def test_an_old_mmap2_counts_in_pages(imported, calls):
    trace = imported(
        log(
            '7 open("/spool/a", O_RDWR) = 3',
            "7 mmap2(NULL, 8192, PROT_READ, MAP_PRIVATE, 3, 0x15c) = 0xb7f0a000",
            "7 mmap2(NULL, 8192, PROT_READ, MAP_PRIVATE, 3, 0x2000) = 0xb7f0c000",
        )
    )
    assert [row["offset"] for row in calls(trace)] == [None, 0x15C000, 0x2000]


def test_a_lock_that_is_an_address_is_not_understood(imported, calls):
    opened = '7 open("/spool/a", O_RDWR) = 3'
    trace = imported(log(opened, f"7 {LOCK} = 0"))
    assert (len(calls(trace)), trace.meta["imported"]["not_understood"]) == (1, 1)
    trace = imported(log(opened, f"7 {LOCK} = -1 EFAULT (Bad address)"))
    assert calls(trace)[1]["errno"] == errno.EFAULT


def test_a_descriptor_that_is_none_leaves_nothing_unknown(imported):
    trace = imported(
        log('7 open("/spool/a", O_RDWR) = 3', "7 fsync(9) = -1 EBADF (Bad file descriptor)")
    )
    assert trace.meta["imported"]["unplaced"] == 0


def test_a_working_directory_is_that_of_getcwd(imported, calls):
    trace = imported(
        log(
            '7 open("b", O_RDWR|O_CREAT, 0600) = 3',
            '7 getcwd("/spool/x", 4096) = 9',
            '7 chdir("/spool/y") = 0',
            '7 getcwd("/spool/y", 4096) = 9',
            '7 open("c", O_RDWR|O_CREAT, 0600) = 4',
        )
    )
    assert [row["path"] for row in calls(trace)] == ["x/b", "y", "y/c"]
    assert trace.meta["imported"]["other_calls"] == {}


def test_reads_and_writes_without_a_name_are_counted(imported):
    trace = imported(
        log(
            '7 open("/spool/a", O_RDWR) = 3',
            "7 io_submit(0x7f00, 1, [{aio_data=0, aio_lio_opcode=IOCB_CMD_PWRITE, aio_fildes=3,"
            ' aio_buf="x"..., aio_nbytes=4096, aio_offset=0}]) = 1',
        )
    )
    assert trace.meta["imported"]["other_calls"] == {"io_submit": 1}
