/* SPDX-License-Identifier: GPL-2.0-only OR BSD-3-Clause */
/*
 * One record per system call on a spool, written when the call returns.
 *
 * At entry the cheap test comes first (is this call in calls.txt?), then the test that its
 * descriptor, directory or path lies on a spool. Only then is state kept. User memory is read at
 * exit, when the kernel itself has just read it and the page is resident: reading at entry lost 5 %
 * of first-touch paths.
 *
 * Tier T0: without these programs there is no trace.
 */
#ifndef SPOOLSCOPE_SYSCALLS_BPF_H
#define SPOOLSCOPE_SYSCALLS_BPF_H

#include "emit.bpf.h"
#include "user_stacks.bpf.h"

static __always_inline bool leads_to_spool(struct task_struct *t, s32 fd)
{
	struct file *f = file_of_fd(t, fd);

	return f && file_on_spool(f, dev_of(inode_of(f)));
}

/* The descriptor is argument 0 or 4 (mmap) in every call of calls.txt. */
static __always_inline bool fd_on_spool(struct task_struct *t, struct pt_regs *regs, s8 at)
{
	return leads_to_spool(t,
			      at == 0 ? PT_REGS_PARM1_SYSCALL(regs) : PT_REGS_PARM5_SYSCALL(regs));
}

static __always_inline enum away path_elsewhere(struct task_struct *t, struct pt_regs *regs,
						s8 dirfd)
{
	if (dirfd < 0)
		return elsewhere(t, AT_FDCWD, PT_REGS_PARM1_SYSCALL(regs));
	return elsewhere(t, PT_REGS_PARM1_SYSCALL(regs), PT_REGS_PARM2_SYSCALL(regs));
}

/* Count a call by a name below that of a descriptor, if that is of a directory of a spool. */
static __always_inline void count_through(struct task_struct *t, s64 named)
{
	if (named < -1 && leads_to_spool(t, -2 - named) && target_state(t))
		count(COUNT_THROUGH);
}

/* The same for a call with two names. */
static __always_inline void count_pair_through(struct task_struct *t, struct task_state *st,
					       const volatile struct call_shape *s)
{
	s64 named = descriptor_in_name(arg_of(st, s->path));

	count_through(t, named < -1 ? named : descriptor_in_name(arg_of(st, s->path2)));
}

static __always_inline bool is_compat(struct task_struct *t)
{
#if defined(__TARGET_ARCH_x86)
	return t->thread_info.status & TS_COMPAT;
#else
	return t->thread_info.flags & TIF_32BIT;
#endif
}

#if defined(__TARGET_ARCH_x86)
#define NR_IO_SUBMIT 209
#else
#define NR_IO_SUBMIT 2
#endif
#define AIO_FILDES 20 /* its offset in struct iocb */

/* Count a call of io_submit(2) whose first request is on a spool. */
static __always_inline void count_aio(struct pt_regs *regs)
{
	struct task_struct *t = bpf_get_current_task_btf();
	struct file *f;
	u64 request;
	u32 fd;

	if (is_compat(t) ||
	    bpf_probe_read_user(&request, sizeof(request), (void *)PT_REGS_PARM3_SYSCALL(regs)) ||
	    bpf_probe_read_user(&fd, sizeof(fd), (void *)(request + AIO_FILDES)))
		return;
	f = file_of_fd(t, fd);
	if (f && file_on_spool(f, dev_of(inode_of(f))) && target_state(t))
		count(COUNT_AIO);
}

/* Return true for ioctls that change contents or descriptors; queries of terminals are frequent. */
static __always_inline bool is_recorded_ioctl(u32 command)
{
	return command == FICLONE || command == FICLONERANGE || command == FIOCLEX ||
	       command == FIONCLEX;
}

/* Return true if an address is a name below a directory: not of a network, nor abstract, nor
 * empty. */
static __always_inline bool is_socket_name(u64 address, u64 length)
{
	struct {
		u16 family;
		char first, second;
	} head;

	if (length <= sizeof(u16))
		return false;
	if (bpf_probe_read_user(&head, sizeof(head), (void *)address))
		return true; /* tested again when the call has returned */
	return head.family == AF_UNIX && head.first;
}

/* Skip all but one of 8 or 64 of a thread's reads and writes. They are counted in its seq. */
static __always_inline bool left_out(struct task_state *st)
{
	u32 period = shed == SPSC_SHED_MOST_DATA ? 8 : 64;

	if (!st->touched || !(++st->n_data % period))
		return false;
	st->n_calls++;
	st->skipped++;
	return true;
}

/* A link of a file by the name of its descriptor is recorded as linkat(fd, "", ..., AT_EMPTY_PATH). */
static __always_inline void link_descriptor(struct task_state *st)
{
	s64 named;

	if (!(st->args[4] & AT_SYMLINK_FOLLOW))
		return;
	named = descriptor_in_name(st->args[1]);
	if (named < 0)
		return;
	st->args[0] = (u32)named;
	st->args[1] += named >> 32; /* its NUL */
	st->args[4] = (st->args[4] & ~AT_SYMLINK_FOLLOW) | AT_EMPTY_PATH;
}

SEC("tp_btf/sys_enter")
int BPF_PROG(on_enter, struct pt_regs *regs, long nr)
{
	const volatile struct call_shape *s;
	struct task_struct *t;
	struct task_state *st;
	enum away away;
	u64 first;
	s64 named;
	u32 call;
	int fd;

	if (!armed || (unsigned long)nr >= MAX_NR)
		return 0;
	call = call_of_nr[nr];
	if (!call) {
		if (nr == NR_IO_SUBMIT)
			count_aio(regs);
		return 0;
	}
	t = bpf_get_current_task_btf();
	if (is_compat(t)) { /* 32-bit numbers mean other calls */
		if (target_state(t))
			count(COUNT_COMPAT);
		return 0;
	}
	s = &shapes[(call - 1) & (MAX_CALLS - 1)];
	if (s->extra == EXTRA_CLONE && !is_recorded_ioctl(PT_REGS_PARM2_SYSCALL(regs)))
		return 0;
	if ((s->flags & SHAPE_SOCKET) &&
	    !is_socket_name(PT_REGS_PARM2_SYSCALL(regs), PT_REGS_PARM3_SYSCALL(regs)))
		return 0;
	/* Most calls of programs that have nothing to do with a spool end here. */
	if ((s->flags & SHAPE_ONLY_FD) && !fd_on_spool(t, regs, s->fd))
		return 0;
	away = s->flags & SHAPE_ONLY_PATH ? path_elsewhere(t, regs, s->dirfd) : PERHAPS_HERE;
	first = PT_REGS_PARM1_SYSCALL(regs);
	if (away && s->by_fd) {
		/* A change by the name of an open descriptor is recorded as by the descriptor. */
		named = descriptor_in_name(first);
		fd = named;
		count_through(t, named);
		if (named < 0 || !leads_to_spool(t, fd))
			return 0;
		call = s->by_fd;
		s = &shapes[(call - 1) & (MAX_CALLS - 1)];
		first = fd;
		away = PERHAPS_HERE;
	}
	/* A symbolic link may lead to a spool: the descriptor returned will show it. */
	if (away && !(s->flags & SHAPE_RETURNS_FD)) {
		if (away == AWAY_PROC)
			count_through(t, descriptor_in_name(s->dirfd < 0
								    ? first
								    : PT_REGS_PARM2_SYSCALL(regs)));
		return 0;
	}
	st = target_state(t);
	if (!st)
		return 0;
	if (s->is_data && shed >= SPSC_SHED_MOST_DATA && left_out(st))
		return 0;
	st->args[0] = first;
	st->args[1] = PT_REGS_PARM2_SYSCALL(regs);
	st->args[2] = PT_REGS_PARM3_SYSCALL(regs);
	st->args[3] = PT_REGS_PARM4_SYSCALL(regs);
	st->args[4] = PT_REGS_PARM5_SYSCALL(regs);
	st->args[5] = PT_REGS_PARM6_SYSCALL(regs);
	if (s->flags & SHAPE_SOCKET)
		st->args[1] += sizeof(u16);
	if (s->by_fd == call)
		link_descriptor(st);
	st->inode = st->ino = st->ino2 = 0;
	st->name_read = 0;
	st->pos = -1;
	st->dev = st->named_dev = 0;
	st->obj_mode = 0;
	st->certain = st->placed = 0;
	st->mounts = !!(s->flags & SHAPE_MOUNTS);
	st->view = 0;
	st->unjudged = 0;
	st->name.text[0] = 0;
	st->oncpu_ns = st->blocked_ns = st->runq_ns = st->preempted_ns = 0;
	if (!away && !wanted(t, st, s)) {
		/* Mounts that a call makes or removes are found when its namespace is looked at. */
		if (st->unjudged && !st->mounts)
			count_unjudged(st->unjudged);
		if (s->path >= 0 && s->path2 >= 0)
			count_pair_through(t, st, s);
		return 0;
	}
	if (!no_records || (s->flags & SHAPE_CHDIR))
		st->cwd_spool = cwd_on_spool(t);
	if (s->flags & SHAPE_CHDIR)
		note_cwd(t, st);
	st->out_ns = 0;
	st->n_parts = st->unnamed = 0;
	st->dir_met = st->log_commit_ns = st->commit_wait_ns = 0;
	st->forced = 0;
	st->stolen_ns = 0;
	mark_steal(t, st);
	st->start_ns = st->last_ns = bpf_ktime_get_ns();
	st->call = call;
	return 0;
}

/* Return true if the result of a call that was MAYBE at entry shows that it was on a spool. */
static __always_inline bool turned_out_on_spool(struct task_struct *t, struct task_state *st,
						const volatile struct call_shape *s, long ret)
{
	bool opened = false;
	struct file *f;

	if (s->flags & SHAPE_CHDIR) {
		/* Its path was not readable at entry, and its root may have changed since. */
		if (s->path >= 0 && !st->name_read && !sees_our_mounts(t))
			st->view = VIEW_UNKNOWN;
		if (ret == 0)
			st->unjudged = 0; /* the new directory decides */
		return process_touched(t, st) || st->cwd_spool || cwd_on_spool(t) ||
		       root_on_spool(t);
	}
	if ((s->flags & SHAPE_RETURNS_FD) && ret >= 0) {
		f = file_of_fd(t, ret);
		opened = f && file_on_spool(f, dev_of(inode_of(f)));
		st->unjudged = 0; /* the file decides */
		if (opened && st->view == VIEW_ASSUMED)
			st->view = VIEW_UNKNOWN; /* not as ours: that name leads elsewhere here */
		if (!opened || st->name_read || s->path < 0)
			return opened;
		/* The meaning of its name is not known yet. */
	}
	return paths_on_spool(t, st, s) == YES || opened;
}

SEC("tp_btf/sys_exit")
int BPF_PROG(on_exit, struct pt_regs *regs, long ret)
{
	struct task_struct *t = bpf_get_current_task_btf();
	struct task_state *st = state_of(t);
	const volatile struct call_shape *s;
	u64 now;

	if (!st || !st->call)
		return 0;
	s = &shapes[(st->call - 1) & (MAX_CALLS - 1)];
	if ((s->flags & SHAPE_SOCKET) && !is_socket_name(st->args[1] - sizeof(u16), st->args[2])) {
		st->certain = st->unjudged = 0;
	} else if (st->certain || turned_out_on_spool(t, st, s, ret)) {
		now = bpf_ktime_get_ns();
		emit_call(t, st, ret, now, 0);
		if (s->user_stack)
			emit_user_stack(ctx, regs, t, st, now);
	} else if (st->unjudged && !st->mounts) {
		count_unjudged(st->unjudged);
	}
	st->call = 0;
	return 0;
}

#endif
