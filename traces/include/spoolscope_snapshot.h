/* SPDX-License-Identifier: Apache-2.0 OR BSD-2-Clause OR GPL-2.0-only */
/*
 * The records of a capture about what was there when the recording began: included by
 * spoolscope_records.h, whose rules hold here, too.
 */
#ifndef SPOOLSCOPE_SNAPSHOT_H
#define SPOOLSCOPE_SNAPSHOT_H

/* A descriptor open on a spool filesystem when the recording began. */
struct spsc_open_file {
	__u64 ts_ns;
	__u64 ino;
	__s64 pos;
	__s64 size;
	__u32 pid;
	__u32 tid;
	__s32 fd;
	__u32 flags; /* f_flags */
	__u32 dev;
	__u32 mode; /* i_mode */
	__u32 path; /* string id */
	__u32 description; /* equal numbers share one open file, with its position */
};

/* A lock held, or waited for, when the recording began. */
struct spsc_held_lock {
	__u64 ts_ns;
	__u64 ino;
	__s64 start;
	__s64 length; /* 0: to the end of the file, however far that is */
	__u32 dev;
	__u32 pid; /* who asked for it; 0 for locks of open files (F_OFD_SETLK) */
	__u8 kind; /* enum spsc_lock_kind */
	__u8 exclusive; /* 1: F_WRLCK or LOCK_EX; 0: F_RDLCK or LOCK_SH */
	__u8 waiting; /* 1: not held, waited for */
	__u8 pad[5];
};

enum spsc_lock_kind {
	SPSC_LOCK_POSIX = 1,
	SPSC_LOCK_OPEN_FILE = 2, /* F_OFD_SETLK */
	SPSC_LOCK_FLOCK = 3,
	SPSC_LOCK_LEASE = 4,
};

/* A spool file mapped into memory when the recording began. */
struct spsc_mapping {
	__u64 ts_ns;
	__u64 ino;
	__u64 address;
	__u64 length; /* bytes */
	__u64 offset; /* in the file, bytes */
	__u32 dev;
	__u32 pid;
	__u32 flags; /* enum spsc_map_flags */
	__u32 path; /* string id */
};

/* The first three as PROT_*. */
enum spsc_map_flags {
	SPSC_MAP_READ = 1 << 0,
	SPSC_MAP_WRITE = 1 << 1,
	SPSC_MAP_EXEC = 1 << 2,
	SPSC_MAP_SHARED = 1 << 3, /* made with MAP_SHARED */
};

/* One name of the spool tree. The name was there at ts_ns, or since the ts_ns of the record
 * before. Without an inode: until ts_ns all names of the directory `parent` were met. */
struct spsc_tree {
	__u64 ts_ns;
	__u64 ino;
	__s64 size;
	__s64 mtime_ns; /* CLOCK_REALTIME */
	__s64 btime_ns; /* birth, CLOCK_REALTIME; 0 where the filesystem keeps none */
	__s64 blocks; /* of 512 bytes */
	__u32 mode; /* st_mode */
	__u32 uid;
	__u32 gid;
	__u32 nlink;
	__u32 dev;
	__u32 parent; /* its directory: which record of this kind, from 1; 0: path is absolute */
	__u32 path; /* string id: the name in its directory */
	__u32 target; /* string id: a symlink's target */
	__u32 extents; /* stretches of data of a sparse file; 0: not counted, it has no hole */
	__u32 pad;
};

/* An extended attribute of a name in the tree. Its value is never recorded. */
struct spsc_xattr {
	__u32 tree; /* which TREE record, from 1 */
	__u32 name; /* string id */
	__u32 length; /* of the value, bytes */
	__u32 pad;
};

#endif
