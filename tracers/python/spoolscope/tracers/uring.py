"""The uring_ops table: operations on the spool through io_uring."""

from typing import Any

import numpy as np

from spoolscope.tracers.inodes import Inodes
from spoolscope.traces import constants
from spoolscope.traces.capture import Capture

# include/uapi/linux/io_uring.h: enum io_uring_op, in its order.
_NAMES = """
    nop readv writev fsync read_fixed write_fixed poll_add poll_remove sync_file_range sendmsg
    recvmsg timeout timeout_remove accept async_cancel link_timeout connect fallocate openat close
    files_update statx read write fadvise madvise send recv openat2 epoll_ctl splice
    provide_buffers remove_buffers tee shutdown renameat unlinkat mkdirat symlinkat linkat msg_ring
    fsetxattr setxattr fgetxattr getxattr socket uring_cmd send_zc sendmsg_zc read_multishot waitid
    futex_wait futex_wake futex_waitv fixed_fd_install ftruncate bind listen recv_zc epoll_wait
    readv_fixed writev_fixed pipe"""
OPS = np.array(_NAMES.split(), object)
# Operations whose off and len are a place in a file.
PLACED = np.array(
    [
        *("readv", "writev", "read_fixed", "write_fixed", "read", "write", "readv_fixed"),
        *("writev_fixed", "fsync", "sync_file_range", "fadvise", "ftruncate"),
    ]
)
ENTRY, WORKER = constants.URING_ENTRY, constants.URING_WORKER
FIXED_FILE = 1


def uring_columns(capture: Capture, inodes: Inodes) -> dict[str, Any]:
    """Return one row per operation."""
    ops = capture.records["uring"]
    shift = np.int64(capture.start_real_ns - capture.start_mono_ns)
    start, done = ops["submit_ns"].astype(np.int64), ops["done_ns"].astype(np.int64)
    names = np.array([name_of(number) for number in range(256)], object)[ops["opcode"]]
    unknown = ops["flags"] & ENTRY == 0
    unplaced = unknown | ~np.isin(names, PLACED)
    unfinished = done == 0
    path = inodes.path(ops["dev"], ops["ino"], ops["submit_ns"])
    no_file = ops["ino"] == 0
    result = ops["res"].astype(np.int64)
    return {
        "ts_ns": start + shift,
        "dur_ns": np.ma.array(done - start, mask=unfinished),
        "pid": ops["pid"].astype(np.int32),
        "tid": ops["tid"].astype(np.int32),
        "op": names,
        "ring": ops["ring"].view(np.int64),
        "user_data": ops["user_data"].view(np.int64),
        "fd": np.ma.array(ops["fd"], mask=unknown | (ops["sqe_flags"] & FIXED_FILE > 0)),
        "path_id": np.ma.array(path, mask=no_file | (path < 0)),
        "dev": np.ma.array(ops["dev"].astype(np.int64), mask=no_file),
        "ino": np.ma.array(ops["ino"].astype(np.int64), mask=no_file),
        "offset": np.ma.array(ops["offset"], mask=unplaced | (ops["offset"] < 0)),
        "size": np.ma.array(ops["size"].astype(np.int64), mask=unplaced),
        "flags": np.ma.array(ops["op_flags"].view(np.int32), mask=unknown),
        "ret": np.ma.array(np.where(result < 0, -1, result), mask=unfinished),
        "errno": np.ma.array(np.where(result < 0, -result, 0).astype(np.int16), mask=unfinished),
        "worker": ops["flags"] & WORKER > 0,
    }


def name_of(opcode: int) -> str:
    """Return the kernel's name of an operation, in lower case; its number if it is newer."""
    return str(OPS[opcode]) if opcode < len(OPS) else str(opcode)
