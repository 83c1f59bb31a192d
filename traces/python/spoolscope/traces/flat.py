"""The flat records of include/*.h as numpy dtypes.

One line of a layout is "type member [member...]"; types are numpy's, aligned as in C.
traces/tests/test_layout.py compares every member with the header and with Rust.
"""

import numpy as np

STACK_FRAMES = 32
NONE = 0xFFFF_FFFF
NO_CALL_ROW = 0xFFFF_FFFF_FFFF_FFFF
STEAL_UNKNOWN = 0xFFFF_FFFF_FFFF_FFFF

_LAYOUTS = {
    "file_header": """
        S8 magic
        u4 version state
        i8 start_mono_ns start_real_ns
        u4 number crc32
        V24 reserved""",
    "chunk_header": """
        u4 magic
        u2 kind codec
        u4 n_records raw_bytes stored_bytes crc32
        u8 base""",
    "syscall": """
        u8 start_ns end_ns oncpu_ns blocked_ns runq_ns preempted_ns stolen_ns seq
        i8 ret
        6u8 args
        u8 ino ino2
        i8 pos size
        u8 count
        u4 dev pid tid path path2
        u2 call cpu obj_mode lock_type
        u4 flags skipped
        i2 longer longer2""",
    "shed": """
        u8 ts_ns
        u4 level overhead_ppm""",
    "switch": """
        u8 call_ns out_ns wake_ns in_ns waker_call_ns dir_ino held_from_ns held_ns
        u4 dir_dev pid tid stack waker_pid waker_tid held_pid held_tid
        u2 cpu
        u1 state waker
        u2 name_at
        u1 name_bytes name_of
        S16 waker_comm held_comm""",
    "sample": """
        u8 ts_ns call_ns
        u4 pid tid stack cpu""",
    "user_call": """
        u8 call_ns end_ns
        u4 pid tid user_stack pad""",
    "task": """
        u8 ts_ns n_calls cgroup_id cwd_ino exe_ino
        u4 cwd_dev event pid tid parent_pid parent_tid uid gid umask flags
        i4 exit_code
        u4 path root exe skipped mount_ns
        S16 comm""",
    "journal": """
        u8 ts_ns id a b call_ns
        u4 dev pid tid stack
        u2 event cpu
        u4 pad
        S16 comm""",
    "block": """
        u8 start_ns issue_ns done_ns sector call_ns parent_sector cgroup_id
        u4 bytes dev cmd_flags pid tid
        i4 error
        u4 parent_dev flags
        S16 comm""",
    "wait": """
        u8 begin_ns end_ns call_ns object ino
        u4 dev pid tid owner_pid owner_tid
        u2 kind what
        u4 flags pad
        S16 owner_comm""",
    "fault": """
        u8 ts_ns call_ns n_faults ino page
        u4 n_pages dev pid tid
        u2 event flags
        u4 pad""",
    "uring": """
        u8 submit_ns done_ns ring user_data ino
        i8 offset
        u4 size
        i4 res fd
        u4 op_flags dev pid tid
        u2 obj_mode
        u1 opcode sqe_flags
        u4 flags pad""",
    "open_file": """
        u8 ts_ns ino
        i8 pos size
        u4 pid tid
        i4 fd
        u4 flags dev mode path description""",
    "held_lock": """
        u8 ts_ns ino
        i8 start length
        u4 dev pid
        u1 kind exclusive waiting
        V5 pad""",
    "mapping": """
        u8 ts_ns ino address length offset
        u4 dev pid flags path""",
    "tree": """
        u8 ts_ns ino
        i8 size mtime_ns btime_ns blocks
        u4 mode uid gid nlink dev parent path target extents pad""",
    "xattr": """
        u4 tree name length pad""",
    "plan_header": """
        S8 magic
        u4 version n_threads
        u8 n_ops n_entries n_fds n_xattrs n_strings string_bytes
        u8 threads_at ops_at entries_at fds_at xattrs_at string_index_at string_bytes_at
        i8 duration_ns""",
    "plan_thread": """
        u8 start_ns
        u4 tid pid parent uid gid umask cwd flags
        S16 comm""",
    "plan_op": """
        i8 start_ns end_ns ret offset size arg obj_size
        u8 ino call
        u4 thread path path2 given given2
        i4 fd fd2 dirfd dirfd2
        u4 flags mode
        i4 cmd
        u2 op obj_mode
        u1 base base2 lock_type lock_whence""",
    "plan_entry": """
        u8 ino
        i8 size holes mtime_ns
        u4 path target mode uid gid flags""",
    "plan_fd": """
        i8 pos
        u4 thread
        i4 fd
        u4 flags path file mode""",
    "plan_xattr": """
        u4 path name length pad""",
    "outcome": """
        i8 issue_ns end_ns ready_ns ret
        u4 tid
        u1 verdict reason
        u2 pad""",
}


def _dtype(layout: str) -> "np.dtype[np.void]":
    fields: list[tuple[str, str]] = []
    for line in layout.strip().splitlines():
        kind, *names = line.split()
        fields += [(name, kind) for name in names]
    return np.dtype(fields, align=True)


DTYPES: "dict[str, np.dtype[np.void]]" = {name: _dtype(text) for name, text in _LAYOUTS.items()}
