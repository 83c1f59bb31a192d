"""Columns of calls that are computed, not just copied."""

import errno

from spoolscope.tracers.resolve import resolve
from spoolscope.tracers.syscalls import ACL_MODE, RESTARTED, call_parts
from spoolscope.traces.calls import FICLONE, FICLONERANGE, FIOCLEX
from spoolscope.traces.comms import Comms


def _parts_of(capture):
    calls, names = capture.whole_calls(), resolve(capture)
    return call_parts(capture, calls, names, Comms(None), lambda ids: ids)


def test_the_kernels_own_restart_codes_are_interruptions(new_story) -> None:
    story = new_story()
    results = (-512, -513, -514, -516, -errno.EINTR, -errno.ENOENT, 0)
    for ret in results:
        story.call(1, "fcntl", 3, 7, 0, ret=ret)
    capture = story.end()
    [columns] = _parts_of(capture)
    assert columns["errno"].tolist() == [errno.EINTR] * 5 + [errno.ENOENT, 0]
    assert columns["ret"].tolist() == [-1] * 6 + [0]
    assert (columns["flags_seen"] & RESTARTED > 0).tolist() == [True] * 4 + [False] * 3


def test_offsets_given_by_pointer_are_columns_where_there_are_any(new_story) -> None:
    story = new_story()
    none = 2**64 - 1
    story.call(1, "sendfile", 4, 3, 50, 100, ret=100)
    story.call(1, "sendfile", 4, 3, none, 100, ret=100)
    story.call(1, "copy_file_range", 3, 0, 4, 7, 30, 0, ret=30)
    story.call(1, "copy_file_range", 3, none, 4, none, 30, 0, ret=30)
    capture = story.end()
    [columns] = _parts_of(capture)
    assert columns["offset"].tolist() == [50, None, 0, None]
    assert columns["arg"].tolist() == [None, None, 7, None]


def test_what_a_clone_is_of_and_where_it_goes(new_story) -> None:
    story = new_story()
    story.call(1, "ioctl", 4, FICLONE, 3, 2**64 - 1, 2**64 - 1)
    story.call(1, "ioctl", 4, FICLONERANGE, 3, 4096, 8192, 12288)
    story.call(1, "ioctl", 4, FIOCLEX, 0x7FFE_0000)
    capture = story.end()
    [columns] = _parts_of(capture)
    assert columns["cmd"].tolist() == [FICLONE, FICLONERANGE, FIOCLEX]
    assert columns["fd"].tolist() == [4] * 3
    assert columns["fd2"].tolist() == [3, 3, None]
    wanted = {"arg": 4096, "size": 8192, "offset": 12288}
    assert {name: columns[name].tolist() for name in wanted} == {
        name: [None, value, None] for name, value in wanted.items()
    }


def test_only_an_access_acl_has_a_mode(new_story) -> None:
    story = new_story()
    story.call(1, "fsetxattr", 3, 0, ACL_MODE | 0o640, 28, 0, path2="system.posix_acl_access")
    story.call(1, "fsetxattr", 3, 0, ACL_MODE, 28, 0, path2="system.posix_acl_access")
    story.call(1, "fsetxattr", 3, 0, 0, 28, 0, path2="user.n")
    pointer = 0x7FFD_1234_1ABC  # as in captures of older recorders
    story.call(1, "fsetxattr", 3, 0, pointer, 28, 0, path2="user.n")
    capture = story.end()
    [columns] = _parts_of(capture)
    assert columns["mode"].tolist() == [0o640, 0, None, None]


def test_calls_come_in_order_of_time_part_by_part(new_story, monkeypatch) -> None:
    monkeypatch.setattr("spoolscope.tracers.syscalls.PART", 2)
    monkeypatch.setattr("spoolscope.tracers.resolve.CHUNK", 2)
    story = new_story()
    for i in range(5):
        story.call(1, "stat", f"/spool/{i}")
    story.records["syscall"].reverse()
    capture = story.end()
    resolved = resolve(capture)
    parts = list(call_parts(capture, capture.whole_calls(), resolved, Comms(None), lambda ids: ids))
    shown = [[resolved.paths[i] for i in part["path_id"].tolist()] for part in parts]
    assert shown == [[b"/spool/0", b"/spool/1"], [b"/spool/2", b"/spool/3"], [b"/spool/4"]]
    assert [len(part["ts_ns"]) for part in parts] == [2, 2, 1]
