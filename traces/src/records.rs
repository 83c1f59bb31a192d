//! The records of `include/*.h`, member by member.
//!
//! The headers document every member; this file only repeats the layout, and
//! `LAYOUTS` lets a test compare it with the header and with numpy.
#![allow(missing_docs)]

use bytemuck::{Pod, Zeroable};
use std::mem::{offset_of, size_of};

/// Layout of one struct: its C name without `spsc_`, its size and its members.
pub type Layout = (&'static str, usize, &'static [Member]);
/// One member: name, offset and size in bytes.
pub type Member = (&'static str, usize, usize);

/// Views records as bytes.
pub fn as_bytes<T: Pod>(records: &[T]) -> &[u8] {
    bytemuck::cast_slice(records)
}

/// Views bytes as records; `None` if their length or alignment does not fit.
pub fn from_bytes<T: Pod>(bytes: &[u8]) -> Option<&[T]> {
    bytemuck::try_cast_slice(bytes).ok()
}

const fn size_of_member<S, M>(_: fn(&S) -> &M) -> usize {
    size_of::<M>()
}

macro_rules! records {
    ($($name:ident $cname:literal { $($member:ident : $kind:ty),+ $(,)? })+) => {
        $(
            #[repr(C)]
            #[derive(Clone, Copy, Debug, Default, Pod, Zeroable)]
            pub struct $name { $(pub $member: $kind),+ }
        )+

        /// The layout of every record, for `spoolscope-replay layout`.
        pub const LAYOUTS: &[Layout] = &[$((
            $cname,
            size_of::<$name>(),
            &[$((
                stringify!($member),
                offset_of!($name, $member),
                size_of_member(|record: &$name| &record.$member),
            )),+],
        )),+];
    };
}

records! {
    FileHeader "file_header" {
        magic: [u8; 8], version: u32, state: u32,
        start_mono_ns: i64, start_real_ns: i64, number: u32, crc32: u32,
        reserved: [u8; 24],
    }
    ChunkHeader "chunk_header" {
        magic: u32, kind: u16, codec: u16, n_records: u32, raw_bytes: u32,
        stored_bytes: u32, crc32: u32, base: u64,
    }
    Syscall "syscall" {
        start_ns: u64, end_ns: u64, oncpu_ns: u64, blocked_ns: u64, runq_ns: u64,
        preempted_ns: u64, stolen_ns: u64, seq: u64, ret: i64, args: [u64; 6], ino: u64, ino2: u64,
        pos: i64, size: i64, count: u64, dev: u32, pid: u32, tid: u32, path: u32,
        path2: u32, call: u16, cpu: u16, obj_mode: u16, lock_type: u16, flags: u32,
        skipped: u32, longer: i16, longer2: i16,
    }
    Switch "switch" {
        call_ns: u64, out_ns: u64, wake_ns: u64, in_ns: u64, waker_call_ns: u64,
        dir_ino: u64, held_from_ns: u64, held_ns: u64, dir_dev: u32, pid: u32, tid: u32, stack: u32,
        waker_pid: u32, waker_tid: u32, held_pid: u32, held_tid: u32, cpu: u16, state: u8,
        waker: u8, name_at: u16, name_bytes: u8, name_of: u8, waker_comm: [u8; 16],
        held_comm: [u8; 16],
    }
    Sample "sample" {
        ts_ns: u64, call_ns: u64, pid: u32, tid: u32, stack: u32, cpu: u32,
    }
    UserCall "user_call" {
        call_ns: u64, end_ns: u64, pid: u32, tid: u32, user_stack: u32, pad: u32,
    }
    Task "task" {
        ts_ns: u64, n_calls: u64, cgroup_id: u64, cwd_ino: u64, exe_ino: u64,
        cwd_dev: u32, event: u32, pid: u32, tid: u32, parent_pid: u32, parent_tid: u32,
        uid: u32, gid: u32, umask: u32, flags: u32, exit_code: i32, path: u32,
        root: u32, exe: u32, skipped: u32, mount_ns: u32,
        comm: [u8; 16],
    }
    Journal "journal" {
        ts_ns: u64, id: u64, a: u64, b: u64, call_ns: u64, dev: u32, pid: u32,
        tid: u32, stack: u32, event: u16, cpu: u16, pad: u32, comm: [u8; 16],
    }
    Block "block" {
        start_ns: u64, issue_ns: u64, done_ns: u64, sector: u64, call_ns: u64, parent_sector: u64,
        cgroup_id: u64, bytes: u32, dev: u32, cmd_flags: u32, pid: u32, tid: u32, error: i32,
        parent_dev: u32, flags: u32,
        comm: [u8; 16],
    }
    Shed "shed" {
        ts_ns: u64, level: u32, overhead_ppm: u32,
    }
    Wait "wait" {
        begin_ns: u64, end_ns: u64, call_ns: u64, object: u64, ino: u64,
        dev: u32, pid: u32, tid: u32, owner_pid: u32, owner_tid: u32, kind: u16,
        what: u16, flags: u32, pad: u32, owner_comm: [u8; 16],
    }
    Fault "fault" {
        ts_ns: u64, call_ns: u64, n_faults: u64, ino: u64, page: u64,
        n_pages: u32, dev: u32, pid: u32, tid: u32, event: u16, flags: u16, pad: u32,
    }
    Uring "uring" {
        submit_ns: u64, done_ns: u64, ring: u64, user_data: u64, ino: u64, offset: i64,
        size: u32, res: i32, fd: i32, op_flags: u32, dev: u32, pid: u32, tid: u32,
        obj_mode: u16, opcode: u8, sqe_flags: u8, flags: u32, pad: u32,
    }
    OpenFile "open_file" {
        ts_ns: u64, ino: u64, pos: i64, size: i64, pid: u32, tid: u32, fd: i32,
        flags: u32, dev: u32, mode: u32, path: u32, description: u32,
    }
    HeldLock "held_lock" {
        ts_ns: u64, ino: u64, start: i64, length: i64, dev: u32, pid: u32,
        kind: u8, exclusive: u8, waiting: u8, pad: [u8; 5],
    }
    Mapping "mapping" {
        ts_ns: u64, ino: u64, address: u64, length: u64, offset: u64, dev: u32,
        pid: u32, flags: u32, path: u32,
    }
    Tree "tree" {
        ts_ns: u64, ino: u64, size: i64, mtime_ns: i64, btime_ns: i64, blocks: i64,
        mode: u32, uid: u32, gid: u32, nlink: u32, dev: u32, parent: u32, path: u32,
        target: u32, extents: u32, pad: u32,
    }
    Xattr "xattr" { tree: u32, name: u32, length: u32, pad: u32 }
    PlanHeader "plan_header" {
        magic: [u8; 8], version: u32, n_threads: u32, n_ops: u64, n_entries: u64,
        n_fds: u64, n_xattrs: u64, n_strings: u64, string_bytes: u64, threads_at: u64,
        ops_at: u64, entries_at: u64, fds_at: u64, xattrs_at: u64, string_index_at: u64,
        string_bytes_at: u64,
        duration_ns: i64,
    }
    PlanThread "plan_thread" {
        start_ns: u64, tid: u32, pid: u32, parent: u32, uid: u32, gid: u32,
        umask: u32, cwd: u32, flags: u32, comm: [u8; 16],
    }
    PlanOp "plan_op" {
        start_ns: i64, end_ns: i64, ret: i64, offset: i64, size: i64, arg: i64,
        obj_size: i64, ino: u64, call: u64, thread: u32, path: u32, path2: u32,
        given: u32, given2: u32, fd: i32, fd2: i32, dirfd: i32, dirfd2: i32, flags: u32, mode: u32, cmd: i32,
        op: u16, obj_mode: u16, base: u8, base2: u8, lock_type: u8, lock_whence: u8,
    }
    PlanEntry "plan_entry" {
        ino: u64, size: i64, holes: i64, mtime_ns: i64, path: u32, target: u32, mode: u32,
        uid: u32, gid: u32, flags: u32,
    }
    PlanFd "plan_fd" {
        pos: i64, thread: u32, fd: i32, flags: u32, path: u32, file: u32, mode: u32,
    }
    PlanXattr "plan_xattr" { path: u32, name: u32, length: u32, pad: u32 }
    Outcome "outcome" {
        issue_ns: i64, end_ns: i64, ready_ns: i64, ret: i64, tid: u32,
        verdict: u8, reason: u8, pad: u16,
    }
}

/// Magic of a capture file.
pub const FILE_MAGIC: &[u8; 8] = b"SPOOLSEG";
/// Magic of a plan file.
pub const PLAN_MAGIC: &[u8; 8] = b"SPOOLPLN";

macro_rules! constants {
    ($($kind:ty { $($name:ident = $value:expr),+ $(,)? })+) => {
        $($(pub const $name: $kind = $value;)+)+

        /// Name and value of each constant, for `spoolscope-replay layout`.
        pub const CONSTANTS: &[(&str, u64)] = &[$($((stringify!($name), $name as u64),)+)+];
    };
}

constants! {
    usize { STACK_FRAMES = 32, COMM = 16 }
    u64 { NO_CALL = 0 }
    u32 {
        VERSION = 5, CAPTURE_VERSION = 7,
        STATE_OPEN = 0xffff_ffff, STATE_CLOSED = 0, CHUNK_MAGIC = 0x4b43_5053,
    }
    u16 {
        KIND_SYSCALL = 1, KIND_SWITCH = 2, KIND_TASK = 3, KIND_JOURNAL = 4,
        KIND_BLOCK = 5, KIND_OPEN_FILE = 6, KIND_TREE = 7, KIND_STACK = 8,
        KIND_STRING = 9, KIND_SYMBOLS = 10, KIND_META = 11,
        KIND_WAIT = 17,
        KIND_SHED = 18,
        KIND_FAULT = 15, KIND_URING = 16,
        KIND_PRELUDE = 19,
        KIND_SAMPLE = 20,
        KIND_USER_CALL = 21,
        KIND_HELD_LOCK = 12, KIND_MAPPING = 13, KIND_XATTR = 14,
        CODEC_STORED = 0, CODEC_ZSTD = 1,
    }
    u32 {
        CALL_COMPAT = 1, CALL_PATH_FAULT = 1 << 1, CALL_PATH_CUT = 1 << 2,
        CALL_IN_FLIGHT = 1 << 3, CALL_CWD_SPOOL = 1 << 4, CALL_EXTRA_FAULT = 1 << 5,
        CALL_RESTARTED = 1 << 6, CALL_SWITCH_UNSEEN = 1 << 7,
        CALL_OTHER_VIEW = 1 << 8, CALL_ELSEWHERE = 1 << 9,
    }
    u8 {
        SWITCH_BLOCKED = 1, SWITCH_PREEMPTED = 2,
        WAKER_NONE = 0, WAKER_TASK = 1, WAKER_IRQ = 2, WAKER_IDLE = 3,
    }
    u32 {
        TASK_SEEN = 1, TASK_FORK = 2, TASK_EXEC = 3, TASK_EXIT = 4, TASK_END = 5,
        TASK_COMM = 6, TASK_WATCHED = 7, TASK_CUT = 8, TASK_BORDER = 16,
        TASK_SHARE_FILES = 1, TASK_SHARE_FS = 1 << 1, TASK_KTHREAD = 1 << 2,
        TASK_CHROOTED = 1 << 3,
    }
    u16 {
        JBD2_START = 1, JBD2_LOCKING = 2, JBD2_FLUSHING = 3, JBD2_LOGGING = 4,
        JBD2_END = 5, JBD2_WAKE = 6, JBD2_CHECKPOINT = 7, JBD2_RUN_STATS = 8,
        XFS_LOG_FORCE = 20, XFS_ICLOG_SYNC = 21, XFS_ICLOG_DONE = 22,
        BTRFS_SYNC_FILE = 40, BTRFS_COMMIT = 41,
    }
    u8 { LOCK_POSIX = 1, LOCK_OPEN_FILE = 2, LOCK_FLOCK = 3, LOCK_LEASE = 4 }
    u32 { MAP_READ = 1, MAP_WRITE = 1 << 1, MAP_EXEC = 1 << 2, MAP_SHARED = 1 << 3 }
    u32 { NONE = 0xffff_ffff, ENTRY_LISTED = 1, ENTRY_TYPE_ONLY = 2 }
    u16 { PLAN_FORK = 1000, PLAN_EXEC = 1001, PLAN_EXIT = 1002, PLAN_FAULT = 1003,
        PLAN_LEFT_OUT = 1004 }
    u8 {
        BASE_NONE = 0, BASE_ROOT = 1, BASE_CWD = 2, BASE_FD = 3,
        END_NONE = 0, END_SLASH = 1, END_DOT = 2, END_UP = 4,
        VERDICT_PENDING = 0, VERDICT_SAME = 1, VERDICT_DIVERGED = 2, VERDICT_SKIPPED = 3,
        REASON_NONE = 0, REASON_ERRNO = 1, REASON_BYTES = 2, REASON_VALUE = 3,
        REASON_BAD_FD = 4, REASON_NOT_A_FILE = 5, REASON_UNSUPPORTED = 6,
        REASON_NO_ORDER = 7, REASON_NAMES = 8, REASON_USED_UP = 9, REASON_BROKEN = 10,
        REASON_AROUND = 11, REASON_STAND_IN = 12,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn members_lie_end_to_end_without_holes() {
        for (name, size, members) in LAYOUTS {
            let mut at = 0;
            for (member, offset, bytes) in *members {
                assert_eq!(*offset, at, "{name}.{member}");
                at += bytes;
            }
            assert_eq!(*size, at, "{name}");
        }
    }

    #[test]
    fn bytes_round_trip() {
        let records = [PlanFd {
            pos: 7,
            thread: 1,
            fd: 3,
            flags: 2,
            path: NONE,
            file: NONE,
            mode: 0o100_640,
        }];
        let bytes = as_bytes(&records).to_vec();
        assert_eq!(bytes.len(), 32);
        let mut back = [PlanFd::default()];
        bytemuck::cast_slice_mut::<PlanFd, u8>(&mut back).copy_from_slice(&bytes);
        assert_eq!(back[0].pos, 7);
        assert!(from_bytes::<PlanFd>(&bytes[..23]).is_none());
    }
}
