"""Lines of strace, part by part."""

import errno

import pytest

from spoolscope.tracers.strace import lines, words
from spoolscope.tracers.strace.members import members_of
from spoolscope.tracers.strace.words import NotUnderstoodError
from spoolscope.tracers.syscalls import ACL_MODE
from spoolscope.traces.calls import CALLS, FICLONE, FICLONERANGE, FIOCLEX


def read(text: str):
    return members_of(lines.called(text))


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("12", 12),
        ("-1", -1),
        ("0x1f", 31),
        ("0644", 0o644),
        ("000", 0),
        ("NULL", 0),
        ("O_RDWR|O_CREAT|O_CLOEXEC", 0o2000102),
        ("S_IFREG|0600", 0o100600),
        ("0x80000 /* O_RDONLY|O_CLOEXEC */", 0x80000),
        ("AT_FDCWD", -100),
        ("|0x1000", 0x1000),
        ("makedev(0x1, 0x3)", 0x103),
        ("IN_CREATE|IN_DELETE", 0x300),
    ],
)
def test_numbers(text: str, value: int) -> None:
    assert words.number(text) == value


@pytest.mark.parametrize("text", ["O_NEVER_HEARD_OF", "1 2", "99999999999999999999999", "{a=1}"])
def test_what_is_no_number(text: str) -> None:
    with pytest.raises(NotUnderstoodError):
        words.number(text)


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ('"plain"', (b"plain", False)),
        (r'"a\tb\n\"c\"\\"', (b'a\tb\n"c"\\', False)),
        (r'"\303\244\0\1x"', (b"\xc3\xa4\0\1x", False)),
        (r'"\x2f\x61"', (b"/a", False)),
        ('"cut"...', (b"cut", True)),
        ("0x7ffd6349a010", (None, False)),
        ("NULL", (None, False)),
    ],
)
def test_strings(text: str, found: tuple[bytes | None, bool]) -> None:
    assert words.string(text) == found


@pytest.mark.parametrize(
    ("text", "fd", "path", "deleted"),
    [
        ("3", 3, None, False),
        ("3</spool/a>", 3, b"/spool/a", False),
        (r"3</spool/\74odd\76, (x)>", 3, b"/spool/<odd>, (x)", False),
        ("3</spool/a>(deleted)", 3, b"/spool/a", True),
        ("3</spool/a (deleted)>", 3, b"/spool/a", True),  # before strace 5.19
        ("AT_FDCWD</spool>", -100, b"/spool", False),
        ("0xffffff9c", -100, None, False),
        ("1</dev/pts/0<char 136:0>>", 1, b"/dev/pts/0", False),
        ("5<TCP:[127.0.0.1:25->127.0.0.1:3000]>", 5, b"", False),
        ("6<pipe:[12]>", 6, b"", False),
    ],
)
def test_descriptors(text: str, fd: int, path: bytes | None, deleted: bool) -> None:
    assert words.descriptor(text) == (fd, path, deleted)


@pytest.mark.parametrize(
    ("text", "ret", "outside", "dur_ns"),
    [
        ("vfork() = 3 /* 977 in strace's PID NS */ <0.000309>", 3, 977, 309_000),
        ("vfork() = 3 /* 977 in strace's PID NS */", 3, 977, None),
        ("vfork() = 3<imap> /* 977 in strace's PID NS */ <0.000309>", 3, 977, 309_000),
        ("vfork() = 977 <0.000309>", 977, None, 309_000),
    ],
)
def test_a_process_id_of_another_namespace(
    text: str, ret: int, outside: int | None, dur_ns: int | None
) -> None:
    line = lines.called(text)
    assert (line.ret, line.outside, line.dur_ns) == (ret, outside, dur_ns)


def test_arguments_end_where_no_string_or_name_says_so() -> None:
    line = lines.called(r'write(3</a) = 5 <9.9>, "(\") = 7 <1.0>", 3>, ") = 9", 5) = 5 <0.000012>')
    assert (line.args[1:], line.ret, line.dur_ns) == (['") = 9"', "5"], 5, 12_000)


@pytest.mark.parametrize(
    ("tail", "ret"),
    [
        ("= 3</x>", 3),
        ("= -1 ENOENT (No such file or directory)", -errno.ENOENT),
        ("= ? ERESTARTSYS (To be restarted if SA_RESTART is set)", -512),
        ("= ?", None),
        ("= 0x8002 (flags O_RDWR|O_LARGEFILE)", 0x8002),
        ("= 25062 /* 12 in strace's PID NS */", 25062),
        ("= -1 (errno 524)", -524),
    ],
)
def test_results(tail: str, ret: int | None) -> None:
    assert lines.called(f"close(3)    {tail} <0.000007>").ret == ret


@pytest.mark.parametrize("text", ["close(3", "close 3) = 0", 'open("a = 3', "close(3) = zero", ""])
def test_what_is_no_call(text: str) -> None:
    with pytest.raises(NotUnderstoodError):
        lines.called(text)


def test_ends_of_threads() -> None:
    assert lines.ended("+++ exited with 3 +++") == 3 << 8
    assert lines.ended("+++ killed by SIGKILL +++") == 9
    assert lines.ended("+++ killed by SIGSEGV (core dumped) +++") == 11 | 0x80
    assert lines.ended("+++ superseded by execve in pid 7 +++") is None


def test_members_by_the_words_of_the_table() -> None:
    opened = read('openat(4</spool>, "x", O_RDWR|O_CREAT, 0600) = 5</spool/x> <0.1>')
    assert (opened.args[:4], opened.path) == ([4, 0, 0o102, 0o600], b"x")
    assert opened.behind["dirfd"].path == b"/spool"
    assert opened.behind["ret"] == (5, b"/spool/x", False)
    found = read('newfstatat(AT_FDCWD, "x", {st_mode=S_IFREG|0644, st_size=99, ...}, 0) = 0')
    assert (found.obj_mode, found.obj_size) == (0o100644, 99)
    lock = "{l_type=F_WRLCK, l_whence=SEEK_END, l_start=-3, l_len=40}"
    locked = read(f"fcntl(3, F_SETLKW, {lock}) = 0")
    assert (locked.lock_type, locked.pos, locked.size) == (1 | 2 << 8, -3, 40)
    assert read("fcntl(3, F_SETFL, O_RDONLY|O_APPEND) = 0").args[2] == 0o2000
    how = read('openat2(3, "x", {flags=O_RDWR, mode=0640, resolve=RESOLVE_BENEATH}, 24) = 4')
    assert how.args[2:4] == [2, 0o640]
    owner = read('chown("x", -1, 1003) = 0')
    assert owner.args[1] & 0xFFFF_FFFF == 0xFFFF_FFFF
    flags = "clone(child_stack=NULL, flags=CLONE_VM|CLONE_FILES|SIGCHLD) = 7"
    assert read(flags).args[0] == 0x100 | 0x400 | 17


def test_vectors_are_summed_or_taken_from_the_result() -> None:
    vectors = '[{iov_base="iov_len=7}", iov_len=10}, {iov_base=""..., iov_len=3}]'
    assert read(f"writev(3, {vectors}, 2) = 13").count == 13
    assert read("writev(3, [...], 2) = 12").count == 12
    made = read(f"pwritev2(3, {vectors}, 2, 4096, RWF_DSYNC) = 13")
    assert (made.args[3], made.args[5]) == (4096, 2)


def test_offsets_given_by_pointer() -> None:
    none = 2**64 - 1
    assert read("sendfile(1, 3, [5] => [105], 100) = 100").args[:4] == [1, 3, 5, 100]
    assert read("sendfile(1, 3, NULL, 100) = 100").args[2] == none
    assert read("sendfile(1, 3, 0x7ffe0010, 100) = -1 EFAULT (Bad address)").args[2] == none
    assert read("sendfile(1, 3, [], 100) = 0").args[2] == none
    copied = read("copy_file_range(3, [100] => [130], 4, [7] => [37], 30, 0) = 30")
    assert copied.args == [3, 100, 4, 7, 30, 0]
    assert read("splice(5, NULL, 3, [9], 50, 0) = 50").args[1:4] == [none, 3, 9]


def test_clones() -> None:
    text = "ioctl(4</mail/a, b>, BTRFS_IOC_CLONE or FICLONE, 3) = 0"
    assert lines.is_recorded("ioctl", text)
    assert read(text).args == [4, FICLONE, 3, 0, 0, 0]
    ends = "{src_fd=3</mail/a>, src_offset=4096, src_length=8192, dest_offset=12288}"
    for command in ("BTRFS_IOC_CLONE_RANGE or FICLONERANGE", "FICLONERANGE", "0x4020940d"):
        text = f"ioctl(4, {command}, {ends}) = -1 EINVAL (Invalid argument)"
        assert lines.is_recorded("ioctl", text)
        assert read(text).args == [4, FICLONERANGE, 3, 4096, 8192, 12288]
    assert lines.is_recorded("ioctl", "ioctl(3, FIOCLEX)          = 0")
    assert read("ioctl(3, FIOCLEX)          = 0").args[:2] == [3, FIOCLEX]
    assert not lines.is_recorded(
        "ioctl", "ioctl(3</mail/FIOCLEX>, TCGETS, {c_iflag=ICRNL|IXON}) = 0"
    )


def test_names_of_sockets() -> None:
    text = 'bind(3<socket:[7]>, {sa_family=AF_UNIX, sun_path="private/a, b"}, 110) = 0'
    assert lines.is_recorded("bind", text)
    made = read(text)
    assert (made.path, made.args[2]) == (b"private/a, b", 110)
    for other in (
        '{sa_family=AF_UNIX, sun_path=@"abstract"}',
        "{sa_family=AF_UNIX}",
        '{sa_family=AF_INET, sin_port=htons(25), sin_addr=inet_addr("127.0.0.1")}',
    ):
        assert not lines.is_recorded("bind", f"bind(3, {other}, 16) = 0")


def test_access_acls() -> None:
    name, nobody = '"system.posix_acl_access"', "\\377\\377\\377\\377"
    mode = f'"\\2\\0\\0\\0\\1\\0\\6\\0{nobody}\\4\\0\\4\\0{nobody} \\0\\1\\0{nobody}"'
    assert read(f"fsetxattr(3, {name}, {mode}, 28, 0) = 0").args[2] == ACL_MODE | 0o641
    assert read(f"fsetxattr(3, {name}, {mode}..., 36, 0) = 0").args[2] == 0
    wrong = mode.replace("\\4\\0\\4", "\\10\\0\\4")  # a named group instead of the owning one
    assert read(f"fsetxattr(3, {name}, {wrong}, 28, 0) = -1 EINVAL (I)").args[2] == 0
    assert read(f'fsetxattr(3, "user.n", {mode}, 28, 0) = 0').args[2] == 0
    assert read(f'fsetxattr(3, {name}, "\\2\\0\\0\\0", 4, 0) = 0').args[2] == 0


def test_a_cut_path_is_not_taken_for_a_name() -> None:
    with pytest.raises(NotUnderstoodError):
        read('open("/spool/al"..., O_RDONLY) = 3')
    made = read('getxattr("x", "user.m"..., NULL, 0) = 3')
    assert made.cut
    assert made.path == b"x"


def test_every_word_of_the_table_is_read_or_left_alone_on_purpose() -> None:
    from spoolscope.tracers.strace.members import _READERS

    words_of_table = {word for call in CALLS.values() for word in call.args}
    # strace does not print the first two; nothing is recorded of the others.
    assert words_of_table - set(_READERS) == {"_", "ns", "handle", "filled"}


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("fcntl(3, F_SETLK, {type=F_WRLCK, whence=SEEK_SET, start=4, len=2}) = 0",
         "fcntl(3, F_SETLK, {l_type=F_WRLCK, l_whence=SEEK_SET, l_start=4, l_len=2}) = 0"),
        ('writev(3, [{"ab", 2}, {"cde"..., 30}], 2) = 32',
         'writev(3, [{iov_base="ab", iov_len=2}, {iov_base="cde"..., iov_len=30}], 2) = 32'),
        ('bind(3, {sa_family=AF_FILE, path="/spool/s"}, 110) = 0',
         'bind(3, {sa_family=AF_UNIX, sun_path="/spool/s"}, 110) = 0'),
    ],
)  # fmt: skip
def test_structures_of_strace_before_4_9(old: str, new: str) -> None:
    assert all(lines.is_recorded(text.partition("(")[0], text) for text in (old, new))
    assert read(old) == read(new)


def test_a_vector_of_another_form_is_not_understood() -> None:
    with pytest.raises(NotUnderstoodError):
        read("writev(3, [{7}], 1) = 7")


def test_an_address_for_a_path_is_one_that_the_kernel_could_not_read() -> None:
    assert read("unlink(0x7f) = -1 EFAULT (Bad address)").path is None
    with pytest.raises(NotUnderstoodError):
        read("unlink(0x7f) = 0")
