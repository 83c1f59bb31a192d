/* SPDX-License-Identifier: Apache-2.0 OR BSD-2-Clause OR GPL-2.0-only */
/*
 * The records of a spoolscope capture; those of what was there before are in
 * spoolscope_snapshot.h, those of a replay plan in spoolscope_plan.h.
 *
 * This header is the contract between three languages. The BPF programs include
 * it; the Rust structs (src/records.rs) and the numpy dtypes (flat.py) repeat it
 * and traces/tests/test_layout.py compares all three, member by member.
 *
 * Rules: fixed-size types only; 8-byte members first; explicit padding; enum
 * values are stored on disk, so append, never renumber. Times are nanoseconds of
 * CLOCK_MONOTONIC unless a comment says otherwise. "String id" means: the index
 * of a string in the capture's STRING chunks; 0 is "none".
 */
#ifndef SPOOLSCOPE_RECORDS_H
#define SPOOLSCOPE_RECORDS_H

#if !defined(__VMLINUX_H__) && !defined(SPSC_TYPES_DEFINED)
#include <linux/types.h>
#endif

#define SPSC_STACK_FRAMES 32
#define SPSC_COMM 16
#define SPSC_NO_CALL 0 /* call_ns of a record made outside any traced call */
#define SPSC_STEAL_UNKNOWN (~0ULL) /* stolen_ns where the kernel does not count it */

/* What a chunk of the capture holds. */
enum spsc_kind {
	SPSC_KIND_SYSCALL = 1,
	SPSC_KIND_SWITCH = 2,
	SPSC_KIND_TASK = 3,
	SPSC_KIND_JOURNAL = 4,
	SPSC_KIND_BLOCK = 5,
	SPSC_KIND_OPEN_FILE = 6,
	SPSC_KIND_TREE = 7,
	SPSC_KIND_STACK = 8, /* base = first stack id; SPSC_STACK_FRAMES x u64, 0-padded */
	SPSC_KIND_STRING = 9, /* base = first string id; n x u32 lengths, then the bytes */
	SPSC_KIND_SYMBOLS = 10, /* text lines "hexaddress name", sorted by address */
	SPSC_KIND_META = 11, /* one JSON object; the last one counts */
	SPSC_KIND_WAIT = 17,
	SPSC_KIND_SHED = 18,
	SPSC_KIND_FAULT = 15,
	SPSC_KIND_URING = 16,
	SPSC_KIND_PRELUDE = 19, /* struct spsc_syscall: the segment before, during our snapshot */
	SPSC_KIND_HELD_LOCK = 12,
	SPSC_KIND_MAPPING = 13,
	SPSC_KIND_XATTR = 14,
	SPSC_KIND_SAMPLE = 20,
	SPSC_KIND_USER_CALL = 21,
};

/* First 64 bytes of a capture file. */
struct spsc_file_header {
	char magic[8]; /* "SPOOLSEG" */
	__u32 version;
	__u32 state; /* 0xffffffff while being written, 0 once closed in order */
	__s64 start_mono_ns; /* CLOCK_MONOTONIC and CLOCK_REALTIME, read together */
	__s64 start_real_ns;
	__u32 number; /* of the segment, from 1; a later one continues the one before */
	__u32 crc32; /* IEEE, over this header with crc32 = 0 */
	__u8 reserved[24];
};

/* Before every chunk. A chunk counts only if it is whole and its checksum agrees. */
struct spsc_chunk_header {
	__u32 magic; /* 0x4b435053, "SPCK" */
	__u16 kind; /* enum spsc_kind */
	__u16 codec; /* 0 stored, 1 zstd */
	__u32 n_records;
	__u32 raw_bytes;
	__u32 stored_bytes;
	__u32 crc32; /* IEEE, over this header with crc32 = 0 and the stored bytes */
	__u64 base; /* first id of STACK and STRING chunks, else 0 */
};

enum spsc_call_flags {
	SPSC_CALL_COMPAT = 1 << 0, /* 32-bit caller: arguments not decoded */
	SPSC_CALL_PATH_FAULT = 1 << 1, /* the user page of a path could not be read */
	SPSC_CALL_PATH_CUT = 1 << 2, /* path longer than PATH_MAX */
	SPSC_CALL_IN_FLIGHT = 1 << 3, /* never returned before the recording ended */
	SPSC_CALL_CWD_SPOOL = 1 << 4, /* the caller's cwd lay on a spool filesystem */
	SPSC_CALL_EXTRA_FAULT = 1 << 5, /* stat/flock/iov/how could not be read */
	SPSC_CALL_RESTARTED = 1 << 6, /* a signal came; the converter makes it EINTR */
	SPSC_CALL_SWITCH_UNSEEN = 1 << 7, /* a switch-in went unreported, see absence.bpf.h */
	SPSC_CALL_OTHER_VIEW = 1 << 8, /* absolute paths as the recorder sees them, or empty */
	SPSC_CALL_ELSEWHERE = 1 << 9, /* by the converter: about what is mounted below a spool */
};

/*
 * One system call, written when it returns.
 * oncpu + blocked + runq + preempted == end - start, exactly.
 */
struct spsc_syscall {
	__u64 start_ns;
	__u64 end_ns;
	__u64 oncpu_ns;
	__u64 blocked_ns; /* switched out asleep -> woken */
	__u64 runq_ns; /* woken -> running */
	__u64 preempted_ns; /* switched out runnable -> running */
	__u64 stolen_ns; /* of oncpu: the host had taken the CPU away; or SPSC_STEAL_UNKNOWN */
	__u64 seq; /* per thread, from 0, no holes unless records were lost */
	__s64 ret; /* -errno on failure */
	__u64 args[6]; /* as passed, offsets by pointer as they were; meaning: calls.txt */
	__u64 ino; /* object: fd's inode, or the inode opened/stat'ed; 0 unknown */
	__u64 ino2; /* second object (dup2 target, copy_file_range output) */
	__s64 pos; /* file offset before the call, -1 unknown; flock: l_start */
	__s64 size; /* object size after the call, -1 unknown; flock: l_len */
	__u64 count; /* bytes asked for when not an argument: sum of an iovec */
	__u32 dev; /* kernel dev_t (major << 20 | minor) of the object; 0 unknown */
	__u32 pid;
	__u32 tid;
	__u32 path; /* string id, as the caller passed it; but see OTHER_VIEW */
	__u32 path2; /* string id: second path, symlink target or xattr name */
	__u16 call; /* id in calls.txt */
	__u16 cpu; /* where it returned */
	__u16 obj_mode; /* i_mode of the object, 0 unknown */
	__u16 lock_type; /* fcntl locks: l_type | l_whence << 8 */
	__u32 flags; /* enum spsc_call_flags */
	__u32 skipped; /* calls of this thread left out on purpose just before, see spsc_shed */
	__s16 longer; /* OTHER_VIEW: bytes by which path is longer than what the caller passed */
	__s16 longer2; /* the same of path2 */
};

enum spsc_switch_state {
	SPSC_SWITCH_BLOCKED = 1, /* went to sleep: out -> wake -> in */
	SPSC_SWITCH_PREEMPTED = 2, /* stayed runnable: out -> in, wake_ns is 0 */
};

enum spsc_waker {
	SPSC_WAKER_NONE = 0,
	SPSC_WAKER_TASK = 1, /* a task in process context */
	SPSC_WAKER_IRQ = 2, /* hard or soft interrupt; the task named was interrupted */
	SPSC_WAKER_IDLE = 3, /* interrupt on an idle CPU */
};

/* In which string of the call the name stands that is being looked up. */
enum spsc_name_of {
	SPSC_NAME_NONE = 0, /* no name, or one that the kernel was not given by the call */
	SPSC_NAME_PATH = 1,
	SPSC_NAME_PATH2 = 2,
	SPSC_NAME_LINK = 3, /* in the body of a symlink, which is not recorded */
};

/* One absence from the CPU, inside a traced call or of a watched kernel thread. */
struct spsc_switch {
	__u64 call_ns; /* start_ns of the call; SPSC_NO_CALL for watched kernel threads */
	__u64 out_ns;
	__u64 wake_ns; /* first waking after out_ns */
	__u64 in_ns;
	__u64 waker_call_ns; /* start_ns of the call the waker was in, or SPSC_NO_CALL */
	__u64 dir_ino; /* directory in which the kernel was looking up a name, 0 none */
	__u64 held_from_ns; /* since when another process had the CPU that it waited for */
	__u64 held_ns; /* and how long, all in all; 0: nobody is known */
	__u32 dir_dev; /* kernel dev_t of dir_ino */
	__u32 pid;
	__u32 tid;
	__u32 stack; /* stack id at switch-out, 0 none */
	__u32 waker_pid;
	__u32 waker_tid;
	__u32 held_pid; /* of several the one that had it longest at a time */
	__u32 held_tid;
	__u16 cpu; /* where it was switched out */
	__u8 state; /* enum spsc_switch_state */
	__u8 waker; /* enum spsc_waker */
	__u16 name_at; /* byte of the path at which the name begins that was looked up in dir_ino */
	__u8 name_bytes; /* its length */
	__u8 name_of; /* enum spsc_name_of */
	char waker_comm[SPSC_COMM];
	char held_comm[SPSC_COMM];
};

/* What a thread was running inside a traced call, looked at on every CPU at a steady rate. */
struct spsc_sample {
	__u64 ts_ns;
	__u64 call_ns; /* start_ns of the call */
	__u32 pid;
	__u32 tid;
	__u32 stack; /* stack id, 0 none */
	__u32 cpu;
};

/* Which code made a call: where its thread stood in user space. Stacks are in the last META. */
struct spsc_user_call {
	__u64 call_ns; /* start_ns of the call */
	__u64 end_ns;
	__u32 pid;
	__u32 tid;
	__u32 user_stack; /* its place in user_stacks.stacks of META */
	__u32 pad;
};

enum spsc_task_event {
	SPSC_TASK_SEEN = 1, /* first time this thread is recorded, or its state at start */
	SPSC_TASK_FORK = 2, /* pid/tid = the child; parent_* = the forking thread */
	SPSC_TASK_EXEC = 3,
	SPSC_TASK_EXIT = 4, /* n_calls = calls recorded; exit_code as in wait(2) */
	SPSC_TASK_END = 5, /* alive when the recording ended; n_calls as for EXIT */
	SPSC_TASK_COMM = 6, /* renamed itself */
	SPSC_TASK_WATCHED = 7, /* a kernel thread whose segments are recorded */
	SPSC_TASK_BORDER = 16, /* in a later segment: this thread's calls below n_calls are in
				* the segments before; ts_ns = when the last of them returned */
	SPSC_TASK_CUT = 8, /* the snapshot shows this moment; what was read before and after is
			    * brought there by the calls recorded meanwhile */
};

enum spsc_task_flags {
	SPSC_TASK_SHARE_FILES = 1 << 0, /* FORK: child shares the fd table */
	SPSC_TASK_SHARE_FS = 1 << 1, /* FORK: child shares cwd, root and umask */
	SPSC_TASK_KTHREAD = 1 << 2,
	SPSC_TASK_CHROOTED = 1 << 3, /* SEEN-at-start: root directory is not the host's */
	SPSC_TASK_IN_CALL = 1 << 4, /* END: a recorded call had not returned yet */
};

struct spsc_task {
	__u64 ts_ns;
	__u64 n_calls;
	__u64 cgroup_id;
	__u64 cwd_ino;
	__u64 exe_ino;
	__u32 cwd_dev;
	__u32 event; /* enum spsc_task_event */
	__u32 pid;
	__u32 tid;
	__u32 parent_pid;
	__u32 parent_tid;
	__u32 uid;
	__u32 gid;
	__u32 umask;
	__u32 flags; /* enum spsc_task_flags */
	__s32 exit_code;
	__u32 path; /* string id: EXEC the program, SEEN-at-start the cwd */
	__u32 root; /* string id: SEEN-at-start the root directory if it is not "/" */
	__u32 exe; /* string id: SEEN-at-start the program's path */
	__u32 skipped; /* EXIT, END: calls left out on purpose since its last record */
	__u32 mount_ns; /* FORK, EXEC, SEEN: inode of /proc/PID/ns/mnt, 0 unknown */
	char comm[SPSC_COMM];
};

enum spsc_journal_event {
	SPSC_JBD2_START = 1, /* id = transaction id; the commit thread starts */
	SPSC_JBD2_LOCKING = 2, /* waits for running handles */
	SPSC_JBD2_FLUSHING = 3, /* writes ordered data */
	SPSC_JBD2_LOGGING = 4, /* writes the log */
	SPSC_JBD2_END = 5, /* a = head (txn id), commit done */
	SPSC_JBD2_WAKE = 6, /* this task woke the jbd2 thread; a = tid of that thread */
	SPSC_JBD2_CHECKPOINT = 7, /* a = result */
	SPSC_JBD2_RUN_STATS = 8, /* a = blocks logged, b = handles; id = transaction id */
	SPSC_JBD2_HANDLE = 9, /* id = transaction id; a handle ends; a = ns it was open, to a jiffy;
				 b = 1 if its transaction was being locked meanwhile */
	SPSC_JBD2_CHECKPOINT_DONE = 10, /* id = transaction id written back to its places;
					   a = blocks written, b = ns it took, to a jiffy */
	SPSC_JBD2_LOG_TAIL = 11, /* id = oldest transaction still needed; a = blocks freed */
	SPSC_JBD2_LOCK_STALL = 12, /* a = ns this task waited for a buffer lock (over 100 ms) */
	SPSC_XFS_LOG_FORCE = 20, /* id = lsn asked for, 0 all; this task forces the log */
	SPSC_XFS_ICLOG_SYNC = 21, /* id = iclog address; starts to write an iclog; a = bytes */
	SPSC_XFS_ICLOG_DONE = 22, /* id = iclog address */
	SPSC_XFS_CIL_PUSH = 23, /* id = checkpoint sequence; a worker starts to write it */
	SPSC_XFS_CIL_PUSHED = 24, /* the checkpoint this worker began is in the log's buffers */
	SPSC_XFS_AIL_STUCK = 25, /* id = lsn; xfsaild cannot write an item back;
				    a = 1 pinned by the log, 2 locked, 3 under way */
	SPSC_BTRFS_SYNC_FILE = 40, /* id = ino; this task fsyncs (log tree commit) */
	SPSC_BTRFS_COMMIT = 41, /* id = generation; transaction commit done */
	SPSC_BTRFS_SYNC_FS = 42, /* this task syncs the filesystem */
	SPSC_BTRFS_WRITE = 43, /* id = generation; this task begins to write the blocks of a tree:
				  of the transaction, or of a log tree */
	SPSC_BTRFS_ORDERED_ADD = 44, /* id = address; data to be written before its metadata;
					a = ino, b = bytes */
	SPSC_BTRFS_ORDERED_DONE = 45, /* id = address; a = ino */
};

struct spsc_journal {
	__u64 ts_ns;
	__u64 id;
	__u64 a;
	__u64 b;
	__u64 call_ns; /* call the task was in, or SPSC_NO_CALL */
	__u32 dev; /* kernel dev_t, 0 unknown */
	__u32 pid;
	__u32 tid;
	__u32 stack; /* stack id (WAKE), or one that is only the caller (LOG_FORCE), 0 none */
	__u16 event; /* enum spsc_journal_event */
	__u16 cpu;
	__u32 pad;
	char comm[SPSC_COMM];
};

enum spsc_block_flags { SPSC_BLOCK_HELD_BACK = 1 }; /* until start_ns, by a control group's limit */
/* One block request, written when it completes. start <= issue <= done. */
struct spsc_block {
	__u64 start_ns; /* first seen: accounted, inserted or issued */
	__u64 issue_ns; /* handed to the driver */
	__u64 done_ns;
	__u64 sector;
	__u64 call_ns; /* call the submitter was in, or SPSC_NO_CALL */
	__u64 parent_sector; /* where parent_dev had it; 0 for a loop device */
	__u64 cgroup_id; /* HELD_BACK: for whom, in the hierarchy of block I/O */
	__u32 bytes;
	__u32 dev; /* kernel dev_t of the disk */
	__u32 cmd_flags; /* request.cmd_flags: low 8 bits REQ_OP, rest REQ_* */
	__u32 pid;
	__u32 tid;
	__s32 error;
	__u32 parent_dev; /* partition, dm, md or loop device it was made for, 0 unknown */
	__u32 flags; /* enum spsc_block_flags */
	char comm[SPSC_COMM];
};

/* What is left out to stay within the budget of --max-overhead. Each includes the ones
 * before it; calls on names and metadata are never left out. */
enum spsc_shed_level {
	SPSC_SHED_NOTHING = 0,
	SPSC_SHED_STACKS = 1, /* of waits: their causes stay unexplained */
	SPSC_SHED_MOST_DATA = 2, /* reads and writes: 7 of 8 in each thread */
	SPSC_SHED_DATA = 3, /* reads and writes: 63 of 64 */
};

/* From here on the recording leaves out what `level` says. */
struct spsc_shed {
	__u64 ts_ns;
	__u32 level; /* enum spsc_shed_level */
	__u32 overhead_ppm; /* share of all CPUs that the recording took, just before */
};

enum spsc_wait_kind {
	SPSC_WAIT_MUTEX = 1,
	SPSC_WAIT_RWSEM_READ = 2,
	SPSC_WAIT_RWSEM_WRITE = 3,
	SPSC_WAIT_SEMAPHORE = 4,
	SPSC_WAIT_RT_MUTEX = 5,
	SPSC_WAIT_PERCPU_RWSEM = 6,
	SPSC_WAIT_POSIX_LOCK = 7, /* fcntl: object = inode */
	SPSC_WAIT_FLOCK = 8,
	SPSC_WAIT_WRITEBACK = 9, /* a page of the inode is being written */
	SPSC_WAIT_DIRTY_LIMIT = 10, /* too many dirty pages: the kernel lets the task pause */
	SPSC_WAIT_LOG_SPACE = 11, /* xfs: no room left in the log */
	SPSC_WAIT_ICLOG = 12, /* xfs: a log buffer has to reach the disk */
	SPSC_WAIT_CIL = 13, /* xfs: too much is waiting to be written to the log */
};

enum spsc_wait_object {
	SPSC_OBJECT_OTHER = 0, /* an address that says nothing more */
	SPSC_OBJECT_INODE = 1, /* inode.i_rwsem, or a file of that inode: ino is known */
	SPSC_OBJECT_TREE_BLOCK = 2, /* btrfs extent_buffer.lock: ino = its byte address */
	SPSC_OBJECT_MMAP = 3, /* mm_struct.mmap_lock of the waiting process */
	SPSC_OBJECT_RENAME = 4, /* super_block.s_vfs_rename_mutex */
};

enum spsc_wait_flags {
	SPSC_WAIT_SHARED = 1 << 0, /* readers hold it; the owner is the last who came */
};

/* What a thread waited for inside a traced call, or a watched kernel thread. */
struct spsc_wait {
	__u64 begin_ns;
	__u64 end_ns; /* 0: the kernel does not tell; the absence that follows does */
	__u64 call_ns; /* call the task was in, or SPSC_NO_CALL */
	__u64 object; /* kernel address of the lock, 0 none */
	__u64 ino;
	__u32 dev; /* kernel dev_t of ino, 0 unknown */
	__u32 pid;
	__u32 tid;
	__u32 owner_pid; /* who held it at begin_ns, 0 unknown */
	__u32 owner_tid; /* 0: only the process is known */
	__u16 kind; /* enum spsc_wait_kind */
	__u16 what; /* enum spsc_wait_object */
	__u32 flags; /* enum spsc_wait_flags */
	__u32 pad;
	char owner_comm[SPSC_COMM];
};

enum spsc_fault_event {
	SPSC_FAULT_PAGE = 1, /* this page is looked for in the page cache */
	SPSC_FAULT_AROUND = 2, /* what the cache holds of these pages was mapped */
	SPSC_FAULT_DIRTY = 3, /* this clean page is about to be written */
};

enum spsc_fault_flags {
	SPSC_FAULT_ABSENT = 1 << 0, /* PAGE: not in the cache; the kernel counts a major fault */
};

/* One step of a page fault on a file of a spool. */
struct spsc_fault {
	__u64 ts_ns;
	__u64 call_ns; /* call the task was in, or SPSC_NO_CALL */
	__u64 n_faults; /* faults the thread had ended before; steps of one fault share it */
	__u64 ino;
	__u64 page; /* first page, from the beginning of the file */
	__u32 n_pages;
	__u32 dev; /* kernel dev_t */
	__u32 pid;
	__u32 tid;
	__u16 event; /* enum spsc_fault_event */
	__u16 flags; /* enum spsc_fault_flags */
	__u32 pad;
};

enum spsc_uring_flags {
	SPSC_URING_ON_SPOOL = 1 << 0,
	SPSC_URING_ENTRY = 1 << 1, /* fd, offset, size and flags are those of the queue's entry */
	SPSC_URING_WORKER = 1 << 2, /* handed to a worker thread */
};

/* One io_uring operation on a file or name of a spool. */
struct spsc_uring {
	__u64 submit_ns;
	__u64 done_ns; /* 0: its success is not reported (IOSQE_CQE_SKIP_SUCCESS) */
	__u64 ring; /* kernel address of the ring: tells rings apart */
	__u64 user_data;
	__u64 ino; /* 0 unknown */
	__s64 offset; /* -1 the file position; what it means depends on the opcode */
	__u32 size;
	__s32 res; /* -errno on failure */
	__s32 fd; /* or index of a registered file, see sqe_flags */
	__u32 op_flags;
	__u32 dev; /* kernel dev_t of ino */
	__u32 pid;
	__u32 tid;
	__u16 obj_mode; /* i_mode, 0 unknown */
	__u8 opcode; /* IORING_OP_* */
	__u8 sqe_flags; /* IOSQE_* */
	__u32 flags; /* enum spsc_uring_flags */
	__u32 pad;
};

#include "spoolscope_snapshot.h"

#endif
