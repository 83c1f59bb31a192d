/* SPDX-License-Identifier: GPL-2.0-only OR BSD-3-Clause */
/*
 * One record per system call on a spool, written when the call returns.
 *
 * At entry the cheap question is asked first (is this call in calls.txt?), then
 * whether its descriptor, directory or path lies on a spool. Only then is state
 * kept. User memory is read at exit, when the kernel itself has just read it and
 * the page is resident: reading at entry lost 5 % of first-touch paths.
 *
 * Tier T0: without these programs there is no trace.
 */
#ifndef SPOOLSCOPE_SYSCALLS_BPF_H
#define SPOOLSCOPE_SYSCALLS_BPF_H

#include "files.bpf.h"

static __always_inline s64 arg_of(const struct task_state *st, s8 i)
{
	u32 n = i;

	return n < 6 ? st->args[n] : 0;
}

/* ---- is this task recorded? ---------------------------------------------- */

static __always_inline bool in_named_cgroup(struct task_struct *t)
{
	if (!n_cgroups)
		return false;
	for (int level = 0; level < 8; level++) {
		u64 id = bpf_get_current_ancestor_cgroup_id(level);

		if (!id)
			break;
		for (u32 i = 0; i < 8 && i < n_cgroups; i++)
			if (cgroup_ids[i] == id)
				return true;
	}
	return false;
}

static __always_inline bool has_named_comm(struct task_struct *t)
{
	char comm[SPSC_COMM];

	if (!n_comms)
		return false;
	BPF_CORE_READ_STR_INTO(&comm, t, comm);
	for (u32 i = 0; i < 8 && i < n_comms; i++) {
		bool same = true;

		for (int c = 0; c < SPSC_COMM; c++) {
			if (comm[c] != comms[i][c])
				same = false;
			if (!comm[c])
				break;
		}
		if (same)
			return true;
	}
	return false;
}

static __always_inline void decide(struct task_struct *t, struct task_state *st)
{
	u32 tgid = t->tgid;

	st->decided = 1;
	if (tgid == self_pid)
		st->target = 0;
	else if (!filter_tasks || st->target)
		st->target = 1;
	else
		st->target = bpf_map_lookup_elem(&target_pids, &tgid) || in_named_cgroup(t) ||
			     has_named_comm(t);
}

static __always_inline struct task_state *target_state(struct task_struct *t)
{
	struct task_state *st;

	st = bpf_task_storage_get(&tasks, t, 0, BPF_LOCAL_STORAGE_GET_F_CREATE);
	if (!st) {
		count_loss(0);
		return NULL;
	}
	if (!st->decided)
		decide(t, st);
	return st->target ? st : NULL;
}

/* ---- entry ---------------------------------------------------------------- */

static __always_inline enum answer object_on_spool(struct task_struct *t, struct task_state *st,
						   const volatile struct call_shape *s)
{
	enum answer answer = NO;
	struct inode *inode;
	struct file *f;
	u32 dev;

	if (s->fd >= 0 && (f = file_of_fd(t, (s32)arg_of(st, s->fd)))) {
		inode = inode_of(f);
		dev = dev_of(inode);
		if (is_spool(dev)) {
			note_object(st, inode, dev);
			st->pos = BPF_CORE_READ(f, f_pos);
			answer = YES;
		}
	}
	if (s->fd2 >= 0 && (f = file_of_fd(t, (s32)arg_of(st, s->fd2)))) {
		inode = inode_of(f);
		if (is_spool(dev_of(inode))) {
			st->ino2 = BPF_CORE_READ(inode, i_ino);
			answer = YES;
		}
	}
	return answer;
}

static __always_inline enum answer paths_on_spool(struct task_struct *t, struct task_state *st,
						  const volatile struct call_shape *s)
{
	enum answer first = NO, second = NO;

	if (s->path2 >= 0)
		second = path_on_spool(t, st, s->dirfd2 >= 0 ? arg_of(st, s->dirfd2) : AT_FDCWD,
				       arg_of(st, s->path2));
	if (s->path >= 0)
		first = path_on_spool(t, st, s->dirfd >= 0 ? arg_of(st, s->dirfd) : AT_FDCWD,
				      arg_of(st, s->path));
	return first > second ? (second == YES ? YES : first) : (first == YES ? YES : second);
}

/* AT_EMPTY_PATH: newfstatat(fd, "", ...) is how glibc writes fstat(fd). */
static __always_inline void note_empty_path(struct task_struct *t, struct task_state *st,
					    const volatile struct call_shape *s)
{
	struct inode *inode;
	struct file *f;
	u32 dev;

	if (s->dirfd < 0 || s->path < 0 || st->head[0])
		return;
	f = file_of_fd(t, (s32)arg_of(st, s->dirfd));
	if (!f)
		return;
	inode = inode_of(f);
	dev = dev_of(inode);
	if (is_spool(dev))
		note_object(st, inode, dev);
}

static __always_inline bool wanted(struct task_struct *t, struct task_state *st,
				   const volatile struct call_shape *s)
{
	enum answer answer;

	if (s->flags & (SHAPE_TASK | SHAPE_NEVER_RETURNS)) {
		st->certain = st->touched || filter_tasks;
		if (s->flags & SHAPE_EXEC)
			bpf_probe_read_user_str(st->head, sizeof(st->head),
						(void *)arg_of(st, s->path));
		return st->certain;
	}
	if (s->flags & SHAPE_ADDRESS) {
		st->certain = mapped_on_spool(t, st, arg_of(st, 0));
		return st->certain;
	}
	answer = object_on_spool(t, st, s);
	if (answer != YES && s->path >= 0) {
		answer = paths_on_spool(t, st, s);
		if (answer == YES)
			note_empty_path(t, st, s);
	}
	st->certain = answer == YES;
	return answer != NO || (s->flags & SHAPE_CHDIR);
}

SEC("tp_btf/sys_enter")
int BPF_PROG(on_enter, struct pt_regs *regs, long nr)
{
	struct task_struct *t;
	struct task_state *st;
	u32 call;

	if ((unsigned long)nr >= MAX_NR || !(call = call_of_nr[nr]))
		return 0;
	t = bpf_get_current_task_btf();
	if (t->thread_info.status & TS_COMPAT) /* 32-bit numbers mean other calls */
		return 0;
	st = target_state(t);
	if (!st)
		return 0;
	st->args[0] = PT_REGS_PARM1_CORE_SYSCALL(regs);
	st->args[1] = PT_REGS_PARM2_CORE_SYSCALL(regs);
	st->args[2] = PT_REGS_PARM3_CORE_SYSCALL(regs);
	st->args[3] = PT_REGS_PARM4_CORE_SYSCALL(regs);
	st->args[4] = PT_REGS_PARM5_CORE_SYSCALL(regs);
	st->args[5] = PT_REGS_PARM6_CORE_SYSCALL(regs);
	st->inode = st->ino = st->ino2 = 0;
	st->head_bytes = 0;
	st->pos = -1;
	st->dev = 0;
	st->obj_mode = 0;
	st->certain = 0;
	st->head[0] = 0;
	st->oncpu_ns = st->blocked_ns = st->runq_ns = st->preempted_ns = 0;
	if (!wanted(t, st, &shapes[(call - 1) & (MAX_CALLS - 1)]))
		return 0;
	st->cwd_spool = cwd_on_spool(t);
	st->out_ns = 0;
	st->start_ns = st->last_ns = bpf_ktime_get_ns();
	st->call = call;
	return 0;
}

/* ---- exit ----------------------------------------------------------------- */

static __always_inline void emit_seen(struct task_struct *t, struct task_state *st, u64 now)
{
	struct ring_task *e = reserve(SPSC_KIND_TASK, sizeof(*e));
	struct spsc_task *r;

	if (!e)
		return;
	st->seen = 1;
	r = &e->rec;
	__builtin_memset(r, 0, sizeof(*r));
	r->ts_ns = now;
	r->event = SPSC_TASK_SEEN;
	r->pid = t->tgid;
	r->tid = t->pid;
	r->parent_pid = BPF_CORE_READ(t, real_parent, tgid);
	r->uid = BPF_CORE_READ(t, cred, fsuid.val);
	r->gid = BPF_CORE_READ(t, cred, fsgid.val);
	r->umask = BPF_CORE_READ(t, fs, umask);
	r->cwd_ino = BPF_CORE_READ(t, fs, pwd.dentry, d_inode, i_ino);
	r->cwd_dev = BPF_CORE_READ(t, fs, pwd.dentry, d_sb, s_dev);
	r->exe_ino = BPF_CORE_READ(t, mm, exe_file, f_inode, i_ino);
	r->cgroup_id = bpf_get_current_cgroup_id();
	r->path = 0;
	BPF_CORE_READ_STR_INTO(&r->comm, t, comm);
	bpf_ringbuf_submit(e, 0);
}

/* One read of the kernel's answer instead of one per member. */
static __always_inline long fill_stat(struct spsc_syscall *r, const volatile struct call_shape *s,
				      const void *user)
{
	u64 words[8] = {};
	long bad = bpf_probe_read_user(words, sizeof(words), user);

	if (s->extra == EXTRA_STATX) { /* stx_mode at 28, stx_ino at 32, stx_size at 40 */
		r->obj_mode = words[3] >> 32;
		r->ino = words[4];
		r->size = words[5];
	} else {
		r->ino = words[(stat_ino_at / 8) & 7];
		r->obj_mode = words[(stat_mode_at / 8) & 7] >> (8 * (stat_mode_at & 7));
		r->size = words[(stat_size_at / 8) & 7];
	}
	return bad;
}

static __always_inline void fill_extra(struct spsc_syscall *r, const volatile struct call_shape *s,
				       const void *user)
{
	long bad = 0;
	u64 pair[2];

	if (s->extra == EXTRA_STAT || s->extra == EXTRA_STATX) {
		if (r->ret == 0)
			bad = fill_stat(r, s, user);
	} else if (s->extra == EXTRA_FLOCK) {
		u16 type[2] = {};
		u32 cmd = r->args[1];

		if (!(cmd >= 5 && cmd <= 7) && !(cmd >= 36 && cmd <= 38))
			return; /* not F_*LK: the argument is a number */
		bad |= bpf_probe_read_user(&type, 4, user);
		bad |= bpf_probe_read_user(&pair, 16, user + 8);
		r->lock_type = type[0] | type[1] << 8;
		r->pos = pair[0];
		r->size = pair[1];
	} else if (s->extra == EXTRA_IOV) {
		u64 n = r->args[2];

		for (u64 i = 0; i < 64 && i < n; i++) {
			if (bpf_probe_read_user(&pair, 16, user + i * 16)) {
				bad = 1;
				break;
			}
			r->count += pair[1];
		}
	} else if (s->extra == EXTRA_HOW) {
		bad |= bpf_probe_read_user(&pair, 16, user);
		r->args[2] = pair[0];
		r->args[3] = pair[1];
	}
	if (bad)
		r->flags |= SPSC_CALL_EXTRA_FAULT;
}

/* The size after the call. The call itself held the file open, so the inode noted at
 * entry is still there, except after a close. */
static __always_inline void fill_object(struct task_struct *t, struct task_state *st,
					struct spsc_syscall *r,
					const volatile struct call_shape *s)
{
	struct inode *inode = (struct inode *)st->inode;
	struct file *f;

	if ((s->flags & SHAPE_RETURNS_FD) && r->ret >= 0 && s->fd < 0) {
		f = file_of_fd(t, r->ret);
		if (!f)
			return;
		inode = inode_of(f);
		note_object(st, inode, dev_of(inode));
	}
	if (inode && !(s->flags & SHAPE_CLOSES))
		r->size = BPF_CORE_READ(inode, i_size);
}

static __always_inline void fill_call(struct task_struct *t, struct task_state *st,
				      struct spsc_syscall *r, long ret, u64 now, u32 flags)
{
	const volatile struct call_shape *s = &shapes[(st->call - 1) & (MAX_CALLS - 1)];

	r->start_ns = st->start_ns;
	r->end_ns = now;
	r->oncpu_ns = st->oncpu_ns + (now - st->last_ns);
	r->blocked_ns = st->blocked_ns;
	r->runq_ns = st->runq_ns;
	r->preempted_ns = st->preempted_ns;
	r->seq = st->n_calls - 1;
	r->ret = ret;
	r->size = -1;
	fill_object(t, st, r, s);
	__builtin_memcpy(r->args, st->args, sizeof(r->args));
	r->ino = st->ino;
	r->ino2 = st->ino2;
	r->pos = st->pos;
	r->count = 0;
	r->dev = st->dev;
	r->pid = t->tgid;
	r->tid = t->pid;
	r->path = r->path2 = 0;
	r->call = st->call - 1;
	r->cpu = bpf_get_smp_processor_id();
	r->obj_mode = st->obj_mode;
	r->lock_type = 0;
	r->flags = flags | (st->cwd_spool ? SPSC_CALL_CWD_SPOOL : 0);
	if (s->extra_arg >= 0)
		fill_extra(r, s, (void *)arg_of(st, s->extra_arg));
}

/* Reads one string to the end of a record; returns its length without NUL. */
static __always_inline u32 read_text(struct spsc_syscall *r, char *to, u32 room, u64 user)
{
	long n = bpf_probe_read_user_str(to, room, (void *)user);

	if (n > 0)
		return n - 1;
	if (user)
		r->flags |= SPSC_CALL_PATH_FAULT;
	return 0;
}

static __always_inline void fill_texts(struct task_state *st, struct ring_call *e, char *text,
				       u32 room)
{
	const volatile struct call_shape *s = &shapes[(st->call - 1) & (MAX_CALLS - 1)];

	e->head.stride = room;
	if (s->flags & SHAPE_EXEC) {
		bpf_probe_read_kernel(text, PATH_SHORT, st->head);
		e->head.len1 = PATH_SHORT - 1; /* the reader stops at the NUL */
		return;
	}
	if (s->path >= 0 && st->head_bytes && st->head_bytes < PATH_SHORT) {
		/* read at entry already, and whole */
		bpf_probe_read_kernel(text, PATH_SHORT, st->head);
		e->head.len1 = st->head_bytes - 1;
	} else if (s->path >= 0) {
		e->head.len1 = read_text(&e->rec, text, room, arg_of(st, s->path));
	}
	if (s->path2 >= 0)
		e->head.len2 = read_text(&e->rec, text + room, room, arg_of(st, s->path2));
	else if (s->text >= 0)
		e->head.len2 = read_text(&e->rec, text + room, room, arg_of(st, s->text));
}

static __always_inline bool truncated(const struct ring_call *e)
{
	return e->head.len1 >= PATH_SHORT - 1 || e->head.len2 >= PATH_SHORT - 1;
}

/* Paths longer than PATH_SHORT are rare; they get a record of their own size. */
static __noinline int emit_long(struct task_struct *t, struct task_state *st, long ret, u64 now,
				u32 flags)
{
	struct ring_call_long *e;

	if (!st || !t)
		return 0;
	e = reserve(SPSC_KIND_SYSCALL, sizeof(*e));
	if (!e)
		return 0;
	fill_call(t, st, &e->c.rec, ret, now, flags);
	fill_texts(st, &e->c, e->text, PATH_LONG);
	if (e->c.head.len1 >= PATH_LONG - 1 || e->c.head.len2 >= PATH_LONG - 1)
		e->c.rec.flags |= SPSC_CALL_PATH_CUT;
	bpf_ringbuf_submit(e, BPF_RB_NO_WAKEUP);
	return 0;
}

static __always_inline void emit_call(struct task_struct *t, struct task_state *st, long ret,
				      u64 now, u32 flags)
{
	const volatile struct call_shape *s = &shapes[(st->call - 1) & (MAX_CALLS - 1)];
	struct ring_call_short *e;
	struct ring_call *plain;

	if (!st->seen)
		emit_seen(t, st, now);
	st->touched = 1;
	st->n_calls++; /* before reserving: a lost record leaves a hole in seq */
	if (s->path < 0 && s->text < 0) {
		plain = reserve(SPSC_KIND_SYSCALL, sizeof(*plain));
		if (!plain)
			return;
		fill_call(t, st, &plain->rec, ret, now, flags);
		bpf_ringbuf_submit(plain, BPF_RB_NO_WAKEUP);
		return;
	}
	e = reserve(SPSC_KIND_SYSCALL, sizeof(*e));
	if (!e)
		return;
	fill_call(t, st, &e->c.rec, ret, now, flags);
	fill_texts(st, &e->c, e->text, PATH_SHORT);
	if (truncated(&e->c) && !(s->flags & SHAPE_EXEC)) {
		bpf_ringbuf_discard(e, BPF_RB_NO_WAKEUP);
		emit_long(t, st, ret, now, flags);
		return;
	}
	bpf_ringbuf_submit(e, BPF_RB_NO_WAKEUP);
}

/* A call that was MAYBE at entry: what does its result say? */
static __always_inline bool turned_out_on_spool(struct task_struct *t, struct task_state *st,
						const volatile struct call_shape *s, long ret)
{
	struct file *f;

	if (s->flags & SHAPE_CHDIR)
		return st->touched || cwd_on_spool(t);
	if ((s->flags & SHAPE_RETURNS_FD) && ret >= 0) {
		f = file_of_fd(t, ret);
		return f && is_spool(dev_of(inode_of(f)));
	}
	return paths_on_spool(t, st, s) == YES;
}

SEC("tp_btf/sys_exit")
int BPF_PROG(on_exit, struct pt_regs *regs, long ret)
{
	struct task_struct *t = bpf_get_current_task_btf();
	struct task_state *st = state_of(t);
	const volatile struct call_shape *s;

	if (!st || !st->call)
		return 0;
	s = &shapes[(st->call - 1) & (MAX_CALLS - 1)];
	if (st->certain || turned_out_on_spool(t, st, s, ret))
		emit_call(t, st, ret, bpf_ktime_get_ns(), 0);
	st->call = 0;
	return 0;
}

/* ---- life of tasks --------------------------------------------------------- */

static __always_inline struct ring_task *task_event(struct task_struct *t, u32 event)
{
	struct ring_task *e = reserve(SPSC_KIND_TASK, sizeof(*e));

	if (!e)
		return NULL;
	__builtin_memset(&e->rec, 0, sizeof(e->rec));
	e->rec.ts_ns = bpf_ktime_get_ns();
	e->rec.event = event;
	e->rec.pid = BPF_CORE_READ(t, tgid);
	e->rec.tid = BPF_CORE_READ(t, pid);
	BPF_CORE_READ_STR_INTO(&e->rec.comm, t, comm);
	return e;
}

SEC("tp_btf/sched_process_fork")
int BPF_PROG(on_fork, struct task_struct *parent, struct task_struct *child)
{
	struct task_state *from, *to;
	struct ring_task *e;

	from = bpf_task_storage_get(&tasks, parent, 0, BPF_LOCAL_STORAGE_GET_F_CREATE);
	if (from && !from->decided)
		decide(parent, from);
	to = bpf_task_storage_get(&tasks, child, 0, BPF_LOCAL_STORAGE_GET_F_CREATE);
	if (from && to) {
		to->target = from->target;
		to->touched = from->touched;
		to->decided = 1;
	} else {
		count_loss(0);
	}
	e = task_event(child, SPSC_TASK_FORK);
	if (!e)
		return 0;
	e->rec.parent_pid = parent->tgid;
	e->rec.parent_tid = parent->pid;
	e->rec.uid = BPF_CORE_READ(child, cred, fsuid.val);
	e->rec.gid = BPF_CORE_READ(child, cred, fsgid.val);
	e->rec.umask = BPF_CORE_READ(child, fs, umask);
	if (BPF_CORE_READ(parent, files) == BPF_CORE_READ(child, files))
		e->rec.flags |= SPSC_TASK_SHARE_FILES;
	if (BPF_CORE_READ(parent, fs) == BPF_CORE_READ(child, fs))
		e->rec.flags |= SPSC_TASK_SHARE_FS;
	bpf_ringbuf_submit(e, BPF_RB_NO_WAKEUP);
	return 0;
}

SEC("tp_btf/sched_process_exec")
int BPF_PROG(on_exec, struct task_struct *t, int old_pid, struct linux_binprm *bprm)
{
	struct task_state *st = state_of(t);
	struct ring_task *e;
	long n;

	if (st && n_comms && !st->target)
		st->decided = 0; /* a new program: ask again by name */
	e = task_event(t, SPSC_TASK_EXEC);
	if (!e)
		return 0;
	e->rec.exe_ino = BPF_CORE_READ(bprm, file, f_inode, i_ino);
	e->rec.cgroup_id = bpf_get_current_cgroup_id();
	n = bpf_probe_read_kernel_str(e->text, sizeof(e->text), BPF_CORE_READ(bprm, filename));
	e->head.len1 = n > 0 ? n - 1 : 0;
	bpf_ringbuf_submit(e, BPF_RB_NO_WAKEUP);
	return 0;
}

SEC("tp_btf/task_rename")
int BPF_PROG(on_rename, struct task_struct *t, const char *comm)
{
	struct task_state *st = state_of(t);
	struct ring_task *e;

	if (!st || !st->touched)
		return 0;
	e = task_event(t, SPSC_TASK_COMM);
	if (!e)
		return 0;
	bpf_probe_read_kernel_str(e->rec.comm, sizeof(e->rec.comm), comm);
	bpf_ringbuf_submit(e, BPF_RB_NO_WAKEUP);
	return 0;
}

SEC("tp_btf/sched_process_exit")
int BPF_PROG(on_task_exit, struct task_struct *t)
{
	struct task_state *st = state_of(t);
	struct ring_task *e;

	if (st && st->call) { /* exit itself, or killed inside a call */
		if (st->certain)
			emit_call(t, st, 0, bpf_ktime_get_ns(), SPSC_CALL_IN_FLIGHT);
		st->call = 0;
	}
	e = task_event(t, SPSC_TASK_EXIT);
	if (!e)
		return 0;
	e->rec.n_calls = st ? st->n_calls : 0;
	e->rec.exit_code = BPF_CORE_READ(t, exit_code);
	bpf_ringbuf_submit(e, BPF_RB_NO_WAKEUP);
	return 0;
}

#endif
