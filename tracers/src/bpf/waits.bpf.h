/* SPDX-License-Identifier: GPL-2.0-only OR BSD-3-Clause */
/*
 * Waits of traced calls and watched kernel threads, with the owners: contended locks, file locks,
 * pages under writeback, the limit of dirty pages.
 *
 * All of these are slow paths; outside a traced call each costs one look at the task's state. The
 * owner is noted when the wait begins; the converter finds the call that the owner was in then.
 * Spinlocks are left out.
 *
 * Tier T2, every program optional.
 */
#ifndef SPOOLSCOPE_WAITS_BPF_H
#define SPOOLSCOPE_WAITS_BPF_H

#include "state.bpf.h"

/* Shorter contention was resolved by spinning; a sleep alone takes longer than this. */
#define MIN_CONTENTION_NS 5000
#define FILE_LOCK_DEFERRED 1
/* include/trace/events/lock.h */
#define LCB_F_SPIN 1
#define LCB_F_READ 2
#define LCB_F_WRITE 4
#define LCB_F_RT 8
#define LCB_F_PERCPU 16
#define LCB_F_MUTEX 32
#define OWNER_FLAGS 7ul /* low bits of mutex.owner and rw_semaphore.owner */
#define RWSEM_READER_OWNED 1ul

struct ring_wait {
	struct ring_head head;
	struct spsc_wait rec;
};

/* key: task; value: the lock it is contending for; begin_ns 0: none. */
struct {
	__uint(type, BPF_MAP_TYPE_TASK_STORAGE);
	__uint(map_flags, BPF_F_NO_PREALLOC);
	__type(key, int);
	__type(value, struct spsc_wait);
} contended SEC(".maps");

static __always_inline struct task_state *waiting_state(struct task_struct *t)
{
	struct task_state *st = state_of(t);

	return st && (st->call || st->watched) ? st : NULL;
}

static __always_inline void fill_wait(struct spsc_wait *w, struct task_struct *t,
				      struct task_state *st, u16 kind)
{
	__builtin_memset(w, 0, sizeof(*w));
	w->begin_ns = bpf_ktime_get_ns();
	w->call_ns = st->call ? st->start_ns : SPSC_NO_CALL;
	w->pid = t->tgid;
	w->tid = t->pid;
	w->kind = kind;
}

static __always_inline void fill_inode(struct spsc_wait *w, struct inode *inode)
{
	w->what = SPSC_OBJECT_INODE;
	w->ino = BPF_CORE_READ(inode, i_ino);
	w->dev = BPF_CORE_READ(inode, i_sb, s_dev);
}

/* Begin a wait whose end the kernel does not report; the task sleeps right after this. */
static __always_inline struct ring_wait *begin_wait(u16 kind)
{
	struct task_struct *t = bpf_get_current_task_btf();
	struct task_state *st = waiting_state(t);
	struct ring_wait *e;

	if (!st)
		return NULL;
	e = reserve(SPSC_KIND_WAIT, sizeof(*e));
	if (e)
		fill_wait(&e->rec, t, st, kind);
	return e;
}

static __always_inline void wait_begins(u16 kind, u64 object, u32 dev)
{
	struct ring_wait *e = begin_wait(kind);

	if (!e)
		return;
	e->rec.object = object;
	e->rec.dev = dev;
	bpf_ringbuf_submit(e, BPF_RB_NO_WAKEUP);
}

/* ---- contended locks ----------------------------------------------------- */

static __always_inline u16 lock_kind(u32 flags)
{
	if (flags & LCB_F_MUTEX)
		return SPSC_WAIT_MUTEX;
	if (flags & LCB_F_PERCPU)
		return SPSC_WAIT_PERCPU_RWSEM;
	if (flags & LCB_F_RT)
		return SPSC_WAIT_RT_MUTEX;
	if (flags & LCB_F_READ)
		return SPSC_WAIT_RWSEM_READ;
	return flags & LCB_F_WRITE ? SPSC_WAIT_RWSEM_WRITE : SPSC_WAIT_SEMAPHORE;
}

static __always_inline u64 owner_word(struct spsc_wait *w, u64 lock)
{
	if (w->kind == SPSC_WAIT_MUTEX)
		return BPF_CORE_READ((struct mutex *)lock, owner.counter);
	if (w->kind == SPSC_WAIT_RWSEM_READ || w->kind == SPSC_WAIT_RWSEM_WRITE)
		return BPF_CORE_READ((struct rw_semaphore *)lock, owner.counter);
	/* With CONFIG_DETECT_HUNG_TASK_BLOCKER, v6.16. */
	if (w->kind == SPSC_WAIT_SEMAPHORE &&
	    bpf_core_field_exists(((struct semaphore *)0)->last_holder))
		return BPF_CORE_READ((struct semaphore *)lock, last_holder);
	return 0;
}

static __always_inline void fill_owner(struct spsc_wait *w, u64 lock)
{
	u64 word = owner_word(w, lock);
	struct task_struct *owner = (struct task_struct *)(word & ~OWNER_FLAGS);

	if (!owner || owner == bpf_get_current_task_btf())
		return;
	w->owner_tid = BPF_CORE_READ(owner, pid);
	w->owner_pid = BPF_CORE_READ(owner, tgid);
	BPF_CORE_READ_STR_INTO(&w->owner_comm, owner, comm);
	if (w->kind != SPSC_WAIT_MUTEX && word & RWSEM_READER_OWNED)
		w->flags |= SPSC_WAIT_SHARED;
}

/* Find out which lock it is: a guess by its place, which the object there must confirm. */
static __always_inline void fill_rwsem(struct spsc_wait *w, u64 lock)
{
	struct inode *inode = (void *)(lock - bpf_core_field_offset(struct inode, i_rwsem));
	struct task_struct *t = bpf_get_current_task_btf();
	struct extent_buffer *block;
	struct btrfs_fs_info *info;
	u64 mm;

	if (BPF_CORE_READ(inode, i_data.host) == inode) {
		fill_inode(w, inode);
		return;
	}
	mm = (u64)BPF_CORE_READ(t, mm);
	if (mm && lock == mm + bpf_core_field_offset(struct mm_struct, mmap_lock)) {
		w->what = SPSC_OBJECT_MMAP;
		return;
	}
	if (!bpf_core_type_exists(struct extent_buffer))
		return;
	block = (void *)(lock - bpf_core_field_offset(struct extent_buffer, lock));
	info = BPF_CORE_READ(block, fs_info);
	if (info && BPF_CORE_READ(info, sb, s_fs_info) == info) {
		w->what = SPSC_OBJECT_TREE_BLOCK;
		w->ino = BPF_CORE_READ(block, start);
		w->dev = BPF_CORE_READ(info, sb, s_dev);
	}
}

static __always_inline void fill_mutex(struct spsc_wait *w, u64 lock)
{
	struct super_block *sb;
	u32 dev;

	sb = (void *)(lock - bpf_core_field_offset(struct super_block, s_vfs_rename_mutex));
	dev = BPF_CORE_READ(sb, s_dev);
	if (dev && is_spool(dev)) {
		w->what = SPSC_OBJECT_RENAME;
		w->dev = dev;
	}
}

/* Since v5.19, "locking: Add lock contention tracepoints". */
SEC("tp_btf/contention_begin")
int BPF_PROG(on_contention, void *lock, u32 flags)
{
	struct task_struct *t;
	struct task_state *st;
	struct spsc_wait *w;

	if ((flags & (LCB_F_SPIN | LCB_F_MUTEX)) == LCB_F_SPIN)
		return 0;
	t = bpf_get_current_task_btf();
	st = waiting_state(t);
	if (!st)
		return 0;
	w = bpf_task_storage_get(&contended, t, 0, BPF_LOCAL_STORAGE_GET_F_CREATE);
	if (!w) {
		count(SPSC_KIND_WAIT);
		return 0;
	}
	/* A mutex reports it twice: when it spins, and when it goes to sleep. */
	if (w->begin_ns && w->object == (u64)lock)
		return 0;
	fill_wait(w, t, st, lock_kind(flags));
	w->object = (u64)lock;
	fill_owner(w, (u64)lock);
	if (w->kind == SPSC_WAIT_RWSEM_READ || w->kind == SPSC_WAIT_RWSEM_WRITE)
		fill_rwsem(w, (u64)lock);
	else if (w->kind == SPSC_WAIT_MUTEX)
		fill_mutex(w, (u64)lock);
	return 0;
}

SEC("tp_btf/contention_end")
int BPF_PROG(on_contention_end, void *lock)
{
	struct task_struct *t = bpf_get_current_task_btf();
	struct ring_wait *e;
	struct spsc_wait *w;
	u64 now;

	w = bpf_task_storage_get(&contended, t, 0, 0);
	if (!w || !w->begin_ns || w->object != (u64)lock)
		return 0;
	now = bpf_ktime_get_ns();
	if (now - w->begin_ns >= MIN_CONTENTION_NS) {
		e = reserve(SPSC_KIND_WAIT, sizeof(*e));
		if (e) {
			__builtin_memcpy(&e->rec, w, sizeof(e->rec));
			e->rec.end_ns = now;
			bpf_ringbuf_submit(e, BPF_RB_NO_WAKEUP);
		}
	}
	w->begin_ns = 0;
	return 0;
}

/* ---- file locks ---------------------------------------------------------- */

/* Return the process that holds the lock; 0 for open file description locks, which belong to
 * none. */
static __always_inline u32 blocker_of(struct file_lock *lock)
{
	s32 pid = 0;

	/* Since v6.9, "filelock: split common fields into struct file_lock_core". */
	if (bpf_core_field_exists(lock->c)) {
		pid = BPF_CORE_READ(lock, c.flc_blocker, flc_pid);
	} else {
		struct file_lock___before_core *old = (void *)lock;

		pid = BPF_CORE_READ(old, fl_blocker, fl_pid);
	}
	return pid > 0 ? pid : 0;
}

static __always_inline void file_lock_waits(u16 kind, struct inode *inode, struct file_lock *lock)
{
	struct ring_wait *e = begin_wait(kind);

	if (!e)
		return;
	fill_inode(&e->rec, inode);
	e->rec.owner_pid = blocker_of(lock);
	bpf_ringbuf_submit(e, BPF_RB_NO_WAKEUP);
}

SEC("tp_btf/posix_lock_inode")
int BPF_PROG(on_posix_lock, struct inode *inode, struct file_lock *lock, int ret)
{
	struct task_state *st = state_of(bpf_get_current_task_btf());

	if (!inode || !lock)
		return 0;
	if (st && st->call && st->inode == (u64)inode) {
		st->pos = lock->fl_start;
		st->placed = 1;
	}
	if (ret == FILE_LOCK_DEFERRED)
		file_lock_waits(SPSC_WAIT_POSIX_LOCK, inode, lock);
	return 0;
}

SEC("tp_btf/flock_lock_inode")
int BPF_PROG(on_flock, struct inode *inode, struct file_lock *lock, int ret)
{
	if (inode && lock && ret == FILE_LOCK_DEFERRED)
		file_lock_waits(SPSC_WAIT_FLOCK, inode, lock);
	return 0;
}

/* ---- writeback ----------------------------------------------------------- */

SEC("tp_btf/folio_wait_writeback")
int BPF_PROG(on_writeback_wait, void *folio, struct address_space *mapping)
{
	struct ring_wait *e = begin_wait(SPSC_WAIT_WRITEBACK);
	struct inode *inode;

	if (!e)
		return 0;
	inode = mapping ? BPF_CORE_READ(mapping, host) : NULL;
	if (inode)
		fill_inode(&e->rec, inode);
	bpf_ringbuf_submit(e, BPF_RB_NO_WAKEUP);
	return 0;
}

/* This also fires without a pause; the absence that follows shows if there was one. */
SEC("tp_btf/balance_dirty_pages")
int BPF_PROG(on_dirty_limit)
{
	wait_begins(SPSC_WAIT_DIRTY_LIMIT, 0, 0);
	return 0;
}

#endif
