"""Columns of the calls that are not just copied."""

import errno

from spoolscope.tracers.comms import Comms
from spoolscope.tracers.resolve import resolve
from spoolscope.tracers.syscalls import RESTARTED, call_columns


def test_the_kernels_own_restart_codes_are_interruptions(new_story) -> None:
    story = new_story()
    results = (-512, -513, -514, -516, -errno.EINTR, -errno.ENOENT, 0)
    for ret in results:
        story.call(1, "fcntl", 3, 7, 0, ret=ret)
    capture = story.end()
    columns = call_columns(capture, resolve(capture), Comms(None), lambda ids: ids)
    assert columns["errno"].tolist() == [errno.EINTR] * 5 + [errno.ENOENT, 0]
    assert columns["ret"].tolist() == [-1] * 6 + [0]
    assert (columns["flags_seen"] & RESTARTED > 0).tolist() == [True] * 4 + [False] * 3
