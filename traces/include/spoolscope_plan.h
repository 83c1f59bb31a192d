/* SPDX-License-Identifier: Apache-2.0 OR BSD-2-Clause OR GPL-2.0-only */
/*
 * The records of a replay plan: written by Python, mapped by the replayer.
 * The rules are those of spoolscope_records.h.
 */
#ifndef SPOOLSCOPE_PLAN_H
#define SPOOLSCOPE_PLAN_H

#include "spoolscope_records.h"

#define SPSC_NONE 0xffffffffu /* "no index" in plan records */

/* Sections follow the header in this order, each 8-byte aligned. */
struct spsc_plan_header {
	char magic[8]; /* "SPOOLPLN" */
	__u32 version; /* 5 */
	__u32 n_threads;
	__u64 n_ops;
	__u64 n_entries;
	__u64 n_fds;
	__u64 n_xattrs;
	__u64 n_strings;
	__u64 string_bytes;
	__u64 threads_at; /* byte offsets of the sections */
	__u64 ops_at;
	__u64 entries_at;
	__u64 fds_at;
	__u64 xattrs_at;
	__u64 string_index_at; /* u64 x (n_strings + 1): offsets into the bytes */
	__u64 string_bytes_at;
	__s64 duration_ns;
};

/* A recorded thread; index = position. A thread with pid == tid leads a process. */
struct spsc_plan_thread {
	__u64 start_ns; /* since trace start; 0 = alive at start */
	__u32 tid;
	__u32 pid;
	__u32 parent; /* thread index, SPSC_NONE = root of a tree */
	__u32 uid;
	__u32 gid;
	__u32 umask;
	__u32 cwd; /* string index, relative to the spool; SPSC_NONE = outside */
	__u32 flags; /* enum spsc_task_flags: SHARE_FILES, SHARE_FS; 1 << 16: calls are left out */
	char comm[SPSC_COMM];
};

/* Ids 1000 and up are not calls of calls.txt: they carry process life. */
enum spsc_plan_pseudo {
	SPSC_PLAN_FORK = 1000, /* arg = thread index of the child */
	SPSC_PLAN_EXEC = 1001, /* close-on-exec descriptors go */
	SPSC_PLAN_EXIT = 1002,
	SPSC_PLAN_FAULT = 1003, /* touches a mapped page of ino: offset; flags 1 = writes */
	SPSC_PLAN_LEFT_OUT = 1004, /* a call left out on purpose: arg = its id */
};

enum spsc_path_base {
	SPSC_BASE_NONE = 0,
	SPSC_BASE_ROOT = 1, /* given as an absolute path */
	SPSC_BASE_CWD = 2,
	SPSC_BASE_FD = 3, /* relative to dirfd / dirfd2 */
};

/* What makes a name as it was given lead through its last component, as if that were a directory. */
enum spsc_path_end {
	SPSC_END_NONE = 0,
	SPSC_END_SLASH = 1, /* "x/" */
	SPSC_END_DOT = 2, /* "x/.", and "x/.." if path is x */
	SPSC_END_UP = 4, /* added: '..' stands before the last component */
};

/* One operation; sorted by start_ns. Unused descriptors are -1, unused paths SPSC_NONE. */
struct spsc_plan_op {
	__s64 start_ns; /* since trace start */
	__s64 end_ns;
	__s64 ret; /* -errno on failure */
	__s64 offset; /* file offset, length for truncate; -1 none */
	__s64 size; /* bytes asked for, -1 none */
	__s64 arg; /* uid | gid << 32 for chown; child for FORK; 1 for a getdents that reads on */
	__s64 obj_size; /* size of the object after the call, -1 unknown */
	__u64 ino; /* identity of the object (dev folded in), 0 unknown */
	__u64 call; /* row in the trace's syscalls table, or all ones */
	__u32 thread; /* thread index */
	__u32 path; /* string index: full path relative to the spool, no leading '/' */
	__u32 path2; /* second path, symlink target or xattr name */
	__u32 given; /* path as it was given, with '..' in it or an end; SPSC_NONE = as it is */
	__u32 given2;
	__s32 fd;
	__s32 fd2;
	__s32 dirfd;
	__s32 dirfd2;
	__u32 flags;
	__u32 mode;
	__s32 cmd;
	__u16 op; /* id in calls.txt or enum spsc_plan_pseudo */
	__u16 obj_mode; /* i_mode of the object, 0 unknown */
	__u8 base; /* of path and path2: enum spsc_path_base | enum spsc_path_end << 4 */
	__u8 base2;
	__u8 lock_type; /* F_RDLCK, F_WRLCK, F_UNLCK */
	__u8 lock_whence;
};

/* One name that must exist before the first operation; parents come first. */
struct spsc_plan_entry {
	__u64 ino; /* equal inos are hard links */
	__s64 size;
	__s64 holes; /* bytes of it that are in holes of the file */
	__s64 mtime_ns;
	__u32 path;
	__u32 target; /* symlink */
	__u32 mode;
	__u32 uid;
	__u32 gid;
	__u32 flags; /* enum spsc_entry_flags */
};

enum spsc_entry_flags {
	SPSC_ENTRY_LISTED = 1 << 0, /* a directory: all names in it are entries */
	SPSC_ENTRY_TYPE_ONLY = 1 << 1, /* of its mode only the type is known */
};

/* A descriptor open in a thread's process at start. */
struct spsc_plan_fd {
	__s64 pos;
	__u32 thread;
	__s32 fd;
	__u32 flags;
	__u32 path;
	__u32 file; /* equal numbers share one open file; SPSC_NONE = not known */
	__u32 mode; /* i_mode of it, 0 unknown */
};

/* An extended attribute of an entry; its value is a pattern. */
struct spsc_plan_xattr {
	__u32 path;
	__u32 name; /* string index */
	__u32 length; /* of the value, bytes */
	__u32 pad;
};

enum spsc_outcome_verdict {
	SPSC_VERDICT_PENDING = 0, /* never reached */
	SPSC_VERDICT_SAME = 1,
	SPSC_VERDICT_DIVERGED = 2,
	SPSC_VERDICT_SKIPPED = 3, /* deliberately not executed; reason says why */
};

enum spsc_outcome_reason {
	SPSC_REASON_NONE = 0,
	SPSC_REASON_ERRNO = 1, /* another errno, or failure for success */
	SPSC_REASON_BYTES = 2, /* another number of bytes */
	SPSC_REASON_VALUE = 3, /* another value (offset, type, size) */
	SPSC_REASON_BAD_FD = 4, /* the descriptor was never opened in this replay */
	SPSC_REASON_NOT_A_FILE = 5, /* skipped: pipe, socket or device */
	SPSC_REASON_UNSUPPORTED = 6, /* skipped: this call is not replayed */
	SPSC_REASON_NO_ORDER = 7, /* its order was given up after the watchdog fired */
	SPSC_REASON_NAMES = 8, /* a listing showed other names */
	SPSC_REASON_USED_UP = 9, /* skipped: no space, descriptors or memory, or a limit was met */
	SPSC_REASON_BROKEN = 10, /* skipped: the recorded disk failed or was read-only */
	SPSC_REASON_AROUND = 11, /* skipped: another filesystem, mount or program was in the way */
	SPSC_REASON_STAND_IN = 12, /* skipped: a device node, for which a socket stands in */
};

/* Result of one op, same index as the op. */
struct spsc_outcome {
	__s64 issue_ns; /* since replay start; when the call was really issued */
	__s64 end_ns;
	__s64 ready_ns; /* when its last dependency was done (or its own schedule) */
	__s64 ret; /* -errno on failure */
	__u32 tid; /* kernel tid that issued it */
	__u8 verdict; /* enum spsc_outcome_verdict */
	__u8 reason; /* enum spsc_outcome_reason */
	__u16 pad;
};

#endif
