/* SPDX-License-Identifier: GPL-2.0-only OR BSD-3-Clause */
/*
 * Definitions that all recorder programs share: settings, per-task state, the ring.
 * Functions are static inline: one object, no cross-file linking.
 */
#ifndef SPOOLSCOPE_STATE_BPF_H
#define SPOOLSCOPE_STATE_BPF_H

#include "kernel.h"
#include <bpf/bpf_core_read.h>
#include <bpf/bpf_helpers.h>
#include <bpf/bpf_tracing.h>
#include <spoolscope_records.h>

#define MAX_SPOOLS 8
#define MAX_DISKS 16
#define MAX_HEADS 16
#define VIEW_UNKNOWN (~0U) /* not looked at yet */
#define VIEW_ASSUMED (~1U) /* likewise, but with our root directory: names as ours */
#define MAX_CALLS 128
#define MAX_NR 512
#define PATH_ONE 128 /* most calls have one path, not longer than this */
#define PATH_SHORT 256
#define PATH_LONG 4096
#define NAME_KEY 260 /* bytes: the longest key of a trie */
#define NAME_COMPARED (NAME_KEY - 16) /* bytes of a path */
#define NAME_LONGEST 255 /* NAME_MAX */
#define SKIP_BPF_FRAMES 2 /* bpf_prog_*, bpf_trace_run*: the innermost, on every stack */

/* ---- settings, written by the recorder before load ---------------------- */

/* The arguments of a call, by position; derived from calls.txt. -1 = has none. */
struct call_shape {
	s8 fd, fd2, dirfd, dirfd2;
	s8 path, path2, text, extra_arg;
	u16 flags; /* enum shape_flags */
	u8 extra; /* enum shape_extra */
	u8 is_data; /* reads or writes at an offset, and may be shed */
	s8 at, at2;
	u8 user_stack; /* note the calling user code: user_stacks.bpf.h */
	s8 size; /* the bytes that are asked for; of vectors the extra argument has them */
	u8 by_fd; /* 1 + id of the call that does the same by a descriptor instead of argument 0;
		   * of linkat itself, which can */
};

enum shape_extra {
	EXTRA_NONE,
	EXTRA_STAT,
	EXTRA_STATX,
	EXTRA_FLOCK,
	EXTRA_IOV,
	EXTRA_HOW,
	EXTRA_CLONE,
	EXTRA_ACL,
};

enum shape_flags {
	SHAPE_RETURNS_FD = 1, /* the object is the descriptor returned */
	SHAPE_CLOSES = 2, /* fd is gone at exit */
	SHAPE_TASK = 4, /* process life and umask: recorded once the process touched a spool */
	SHAPE_CHDIR = 8, /* chdir, fchdir, chroot: recorded if they lead onto a spool, or off it */
	SHAPE_ADDRESS = 16, /* arg 0 is an address: object = file mapped there */
	SHAPE_EXEC = 32, /* the path must be read at entry, exec replaces the memory */
	SHAPE_NEVER_RETURNS = 64,
	SHAPE_ONLY_FD = 128, /* only its descriptor shows if it is about a spool */
	SHAPE_ONLY_PATH = 256, /* only argument 0, or argument 1 seen from argument 0, shows it */
	SHAPE_UMASK = 512, /* returns the value that it changes */
	SHAPE_SOCKET = 1024, /* its path lies in a struct sockaddr_un, after the family */
	SHAPE_RANGE = 2048, /* affects all descriptors from argument 0 to argument 1 */
	SHAPE_ROOT = 4096, /* the SHAPE_CHDIR call that changes the root directory */
	SHAPE_MOUNTS = 8192, /* changes mounts */
};

struct spool {
	u32 dev; /* super_block.s_dev */
	u32 part; /* only the directory in `tops` is the spool */
	u32 top_fd; /* the recorder's descriptor of that directory */
};

/* Beginnings of the names of spools: a path that begins with none of these leads to no spool. */
struct heads {
	u64 word[MAX_HEADS];
	u64 mask[MAX_HEADS];
	u32 n, pad;
};

const volatile u8 call_of_nr[MAX_NR]; /* id in calls.txt + 1; 0 = not traced */
const volatile struct call_shape shapes[MAX_CALLS];
const volatile struct spool spools[MAX_SPOOLS];
const volatile u32 n_spools;
const volatile u32 n_parts; /* spools that are only a part of their filesystem */
const volatile struct heads own_heads;
const volatile u64 above[64]; /* bit n is set if `places` has an inode with the low bits n */
const volatile u32 disks[MAX_DISKS];
const volatile u32 n_disks;
const volatile u32 n_own_disks; /* the first of them: not those below loop, dm or md */
const volatile u64 root_ino; /* the recorder's root directory */
const volatile u32 root_dev; /* 0: do not compare */
const volatile u32 root_mount; /* id of the mount it lies on */
const volatile u32 last_ring; /* index in `rings` */
const volatile u32 self_pid; /* the recorder never records itself */
const volatile bool filter_tasks;
const volatile bool sum_calls; /* keep the sums of call_sums.bpf.h */
const volatile bool no_records; /* only these: no records are made */
const volatile u32 n_cgroups;
const volatile u64 cgroup_ids[8];
const volatile u32 n_comms;
const volatile char comms[8][SPSC_COMM];
/* Offsets of these members in struct stat of this architecture, in bytes. */
const volatile u32 stat_ino_at, stat_mode_at, stat_size_at;

/* True when all programs are attached. Calls are noted only then: a call seen by the entry
 * program alone would seem to run on the CPU all the time. */
bool armed;

/* The level of shedding at present; written by budget.rs. */
u32 shed; /* enum spsc_shed_level */

/* Addresses of the inodes of spools that are directories, found by snapshot.bpf.h. They stay
 * valid as the recorder has these open. */
u64 tops[MAX_SPOOLS];

/* ---- per-task state ------------------------------------------------------ */

/* The way up from a mount of a spool, see mounted.bpf.h. Addresses are numbers: all is read as
 * it was a moment ago, without a lock. It is kept here because a program's stack is too small. */
struct climb {
	u64 mount, dentry; /* position; dentry 0: the next mount is to be taken */
	u64 next; /* in the superblock: struct mount or, in older kernels, its list_head */
	u64 end; /* end of that list */
	u64 ns, root_mount, root_dentry;
	u64 name[2]; /* the last name on that way, as far as it fits */
	u64 wanted[2]; /* first component of the name in question; 0: any */
	u64 found;
};

/* A path, and the directory from which it is seen: the key for `ways`. */
struct name {
	u32 bits; /* length of all that follows, as a trie wants it */
	u32 dev;
	u64 ino;
	char text[PATH_SHORT]; /* the first NAME_COMPARED bytes are compared */
};

/* A part of a call's time asleep. */
struct part {
	u64 what; /* a cause, or the hash of a stack (STACK_HASH) whose cause is not known yet */
	u64 ns;
};

/* Most parts of a call: one for each cause, or for each stack whose cause is not known yet; further
 * ones count as unexplained. */
#define MOST_PARTS 16

struct task_state {
	/* the call under way; call == 0: none */
	u64 start_ns;
	u64 last_ns; /* oncpu is counted up to here */
	u64 oncpu_ns, blocked_ns, runq_ns, preempted_ns;
	u64 stolen_ns, steal_mark; /* steal.bpf.h */
	u64 steal_cpu;
	u64 args[6];
	u64 inode; /* kernel address of the object's inode, 0 none */
	u64 ino, ino2;
	s64 pos; /* that of the file at entry; once `placed`, the first byte that is locked */
	u32 dev;
	u32 name_read; /* bytes of the path in name.text, with NUL; 0: not read yet */
	u16 call; /* id + 1 */
	u16 obj_mode;
	u32 named_dev; /* device of the spool that a name leads to, 0 unknown */
	u32 view; /* view of its absolute names: views.bpf.h; 0: the recorder's own */
	u8 placed; /* the kernel counted the bytes of a lock from the position */
	u8 certain; /* the object is known to lie on a spool */
	u8 cwd_spool;
	u8 mounts; /* the call changes mounts */
	u32 cwd_dev; /* working directory before the call */
	u64 cwd_ino;
	/* off-CPU: out_ns == 0 while running */
	u8 out_state;
	u8 waker;
	u32 out_cpu;
	u64 out_ns, wake_ns, waker_call_ns;
	u32 waker_pid, waker_tid;
	char waker_comm[SPSC_COMM];
	u64 held_from_ns, held_ns; /* thread that had the CPU meanwhile: turns.bpf.h */
	u32 held_pid, held_tid;
	u64 held_comm[SPSC_COMM / 8];
	u64 dir_ino; /* directory and name that were looked up: lookup.bpf.h */
	u32 dir_dev;
	u16 name_at;
	u8 name_bytes, name_of;
	/* life */
	u64 n_calls; /* = next seq */
	u32 skipped; /* calls that were shed since the last record */
	u32 n_data; /* reads and writes while most are shed */
	u8 decided, target, seen;
	u8 exited; /* its EXIT record is in a ring or in unreported_exits */
	u8 touched; /* it made a recorded call; for a leader: any of its threads did */
	u8 watched; /* kernel thread whose switches are recorded: enum watch */
	u8 committing; /* jbd2 thread between start and end of a commit */
	u8 waits; /* counted in `waiting`: turns.bpf.h */
	u8 unjudged; /* why a name of this call could lead anywhere: enum unjudged_why */
	u8 n_parts; /* of the call under way, for call_sums.bpf.h */
	u8 unnamed; /* the cause of a part was not known */
	u8 forced; /* it forced the log of xfs */
	struct part parts[MOST_PARTS];
	u64 stack_hash; /* of `stack`; 0: none */
	u64 dir; /* dentry of dir_ino, for its name */
	u64 dir_met; /* the directory in which the call waited last, 0 none */
	u64 log_commit_ns; /* begin of the commit that the call makes itself, 0 none */
	u64 commit_wait_ns; /* begin of the call's first wait for a commit, 0 none */
	struct climb climb;
	u32 n_frames;
	u64 stack[SPSC_STACK_FRAMES];
	struct name name; /* start of the path, read at entry */
	struct name tidy; /* the same without "//" and "/./" */
};

enum watch {
	WATCH_NOT,
	WATCH_OTHER,
	WATCH_JBD2, /* its wakings show which task asked for a commit */
	WATCH_WORKER, /* until the end of a work item: workers.bpf.h */
	WATCH_CIL, /* the same, of an xfs log push */
	WATCH_LOOP, /* the same, of a loop device: without stacks */
	WATCH_THROTTLE, /* the same, while it submits I/O that limits had held back */
};

/* key: task; value: its state; lives and dies with the task. When memory is short the task is
 * not recorded and COUNT_NO_STATE counts it. */
struct {
	__uint(type, BPF_MAP_TYPE_TASK_STORAGE);
	__uint(map_flags, BPF_F_NO_PREALLOC);
	__type(key, int);
	__type(value, struct task_state);
} tasks SEC(".maps");

/* key: tgid named with --pid or the command's; value unused. Full: refused in user space. */
struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(max_entries, 4096);
	__type(key, u32);
	__type(value, u8);
} target_pids SEC(".maps");

struct ring {
	__uint(type, BPF_MAP_TYPE_RINGBUF);
	__uint(max_entries, 4096); /* the real ones are made by rings.rs */
};

/* index: CPU, the last one is for all; value: the ring for its records, in the order they were
 * made. One ring for all CPUs would be a lock that all of them want. Full: the record goes to
 * the last ring; if that is full, too, it is lost and counted, and its seq is missing. */
struct {
	__uint(type, BPF_MAP_TYPE_ARRAY_OF_MAPS);
	__uint(max_entries, 1); /* set by the recorder */
	__type(key, u32);
	__array(values, struct ring);
} rings SEC(".maps");

/* index: enum spsc_kind of a lost record, or one of these; value: the number of them.
 * counters.rs repeats the numbers. */
enum {
	COUNT_NO_STATE = 0, /* no memory for a task's state: its calls go unrecorded */
	COUNT_UNJUDGED = 48, /* calls by names of a view not looked at yet, or with many names */
	COUNT_COMPAT = 49, /* 32-bit calls seen: not recorded, as their numbers differ */
	COUNT_RESCUED = 50, /* records that went to the last ring as that of their CPU was full */
	COUNT_NOT_COMPLETED = 51, /* requests for whose completion no program ran */
	COUNT_UNSUMMED = 52, /* calls that are in no sum, as a table or a ring was full */
	COUNT_APART = 53, /* calls of threads with tables of their own, as of unshare(2) */
	COUNT_THROUGH = 54, /* calls by a name below that of a descriptor: not recorded */
	COUNT_AIO = 55, /* calls of io_submit(2): not recorded */
};

struct {
	__uint(type, BPF_MAP_TYPE_PERCPU_ARRAY);
	__uint(max_entries, 64);
	__type(key, u32);
	__type(value, u64);
} counts SEC(".maps");

static __always_inline void count(u32 what)
{
	u64 *n = bpf_map_lookup_elem(&counts, &what);

	if (n)
		(*n)++;
}

/* Not records: a question to user space (views.bpf.h), and what the sums need (call_parts.bpf.h,
 * call_sums.bpf.h). rollup/asked_causes.rs repeats the numbers. */
#define RING_VIEW 256
#define RING_STACK 257
#define RING_UNNAMED 258
#define RING_DIRECTORY 259

/* Ring records start with this; strings follow a syscall or task record. */
struct ring_head {
	u32 kind; /* enum spsc_kind, or RING_VIEW */
	u16 len1; /* bytes of the first string, without NUL; it is at the record's end */
	u16 len2; /* second string, at slot offset stride */
	u32 stride;
	u32 view; /* for a call: the view of its absolute names */
};

struct ring_switch {
	struct ring_head head;
	struct spsc_switch rec;
	u32 n_frames, pad;
	u64 stack[SPSC_STACK_FRAMES];
};

struct ring_preempted {
	struct ring_head head;
	struct spsc_switch rec;
};

struct ring_journal {
	struct ring_head head;
	struct spsc_journal rec;
	u32 n_frames, pad;
	u64 stack[SPSC_STACK_FRAMES];
};

struct ring_block {
	struct ring_head head;
	struct spsc_block rec;
};

struct ring_task {
	struct ring_head head;
	struct spsc_task rec;
	char text[PATH_SHORT];
};

struct ring_call {
	struct ring_head head;
	struct spsc_syscall rec;
};

struct ring_call_one {
	struct ring_call c;
	char text[PATH_ONE];
};

struct ring_call_short {
	struct ring_call c;
	char text[2 * PATH_SHORT];
};

struct ring_call_long {
	struct ring_call c;
	char text[2 * PATH_LONG];
};

static __always_inline void *reserve_in(u32 index, u64 size)
{
	void *ring = bpf_map_lookup_elem(&rings, &index);

	return ring ? bpf_ringbuf_reserve(ring, size, 0) : NULL;
}

static __always_inline void *reserve(u32 kind, u64 size)
{
	struct ring_head *h;

	if (no_records && kind < RING_VIEW)
		return NULL;
	h = reserve_in(bpf_get_smp_processor_id(), size);
	if (!h) {
		h = reserve_in(last_ring, size);
		if (!h) {
			if (kind < RING_VIEW)
				count(kind);
			return NULL;
		}
		count(COUNT_RESCUED);
	}
	h->kind = kind;
	h->len1 = 0;
	h->len2 = 0;
	h->stride = 0;
	h->view = 0;
	return h;
}

/* ---- small helpers ------------------------------------------------------- */

extern void *bpf_rdonly_cast(const void *object, u32 btf_id) __ksym __weak;

/* Read a member of a kernel object found through an untyped pointer: by a plain load where the
 * verifier can be given its type (a35b9af4ec2c "bpf: Add a kfunc for generic type cast", v6.2),
 * else by a helper call, which costs ten times as much. */
#define MEMBER(type, pointer, member)                                                              \
	({                                                                                         \
		type *object_ = (type *)(pointer);                                                 \
		typeof(object_->member) value_;                                                    \
		if (bpf_ksym_exists(bpf_rdonly_cast))                                              \
			value_ = ((type *)bpf_rdonly_cast(object_, bpf_core_type_id_kernel(type))) \
					 ->member;                                                 \
		else                                                                               \
			value_ = BPF_CORE_READ(object_, member);                                   \
		value_;                                                                            \
	})

/* The same pointer, for loads alone. For each pointer loaded from a trusted one the verifier checks
 * up to four times if that can be trusted, too, and searches all types of the kernel each time: that
 * took two thirds of the time to load all programs. */
#define untrusted(pointer)                                                                         \
	({                                                                                         \
		typeof(pointer) trusted_ = (pointer);                                              \
		if (bpf_ksym_exists(bpf_rdonly_cast))                                              \
			trusted_ = bpf_rdonly_cast(trusted_,                                       \
						   bpf_core_type_id_kernel(typeof(*trusted_)));    \
		trusted_;                                                                          \
	})

static __always_inline struct task_state *state_of(struct task_struct *t)
{
	return bpf_task_storage_get(&tasks, t, 0, 0);
}

static __always_inline s32 spool_index(u32 dev)
{
	for (u32 i = 0; i < MAX_SPOOLS; i++) {
		if (i >= n_spools)
			break;
		if (spools[i].dev == dev)
			return i;
	}
	return -1;
}

static __always_inline bool is_spool(u32 dev)
{
	return spool_index(dev) >= 0;
}

static __always_inline u64 call_of(struct task_struct *t)
{
	struct task_state *st = state_of(t);

	return st && st->call ? st->start_ns : SPSC_NO_CALL;
}

/* index 0: depth of interrupts on this CPU. preempt_count has it as well, but its symbol is
 * missing from kallsyms where CONFIG_KALLSYMS_ALL is off. */
struct {
	__uint(type, BPF_MAP_TYPE_PERCPU_ARRAY);
	__uint(max_entries, 1);
	__type(key, u32);
	__type(value, s64);
} irq_depth SEC(".maps");

/* In an interrupt, `current` is only the task that was interrupted. */
static __always_inline u8 waker_kind(struct task_struct *t)
{
	u32 zero = 0;
	s64 *depth;

	if (t->pid == 0)
		return SPSC_WAKER_IDLE;
	depth = bpf_map_lookup_elem(&irq_depth, &zero);
	return depth && *depth > 0 ? SPSC_WAKER_IRQ : SPSC_WAKER_TASK;
}

#endif
