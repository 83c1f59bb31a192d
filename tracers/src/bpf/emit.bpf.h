/* SPDX-License-Identifier: GPL-2.0-only OR BSD-3-Clause */
/* Writes the record of a call that returned. */
#ifndef SPOOLSCOPE_EMIT_BPF_H
#define SPOOLSCOPE_EMIT_BPF_H

#include "absence.bpf.h"
#include "filter.bpf.h"
#include "commit_sums.bpf.h"
#include "call_sums.bpf.h"

/* `umask` and st->cwd_ino are the values before the call that makes the task known. */
static __always_inline void emit_seen(struct task_struct *t, struct task_state *st, u64 now,
				      u32 umask)
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
	r->umask = umask;
	r->cwd_ino = st->cwd_ino;
	r->cwd_dev = st->cwd_dev;
	r->mount_ns = mount_ns_of(t);
	r->exe_ino = BPF_CORE_READ(t, mm, exe_file, f_inode, i_ino);
	r->cgroup_id = bpf_get_current_cgroup_id();
	r->path = 0;
	BPF_CORE_READ_STR_INTO(&r->comm, t, comm);
	bpf_ringbuf_submit(e, 0);
}

/* Read the kernel's answer at once instead of member by member. */
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

#define ACL_MODE 0x1000 /* replaces the pointer to an access ACL, with its mode */

/* Return the mode of an access ACL, with ACL_MODE; 0 if it is none (linux/posix_acl_xattr.h:
 * first the owner, then named entries, then group or mask, then others). The value of another
 * attribute is not read. */
static __noinline u32 mode_of_acl(u64 name, u64 value, u64 size)
{
	u64 given[3], first, last[2];
	u16 second = size == 28 ? ACL_GROUP_OBJ : ACL_MASK;

	if (size < 28 || size > 65536 || size % 8 != 4)
		return 0;
	/* "system.posix_acl_access" and its NUL */
	if (bpf_probe_read_user(given, sizeof(given), (void *)name) ||
	    given[0] != 0x702e6d6574737973 || given[1] != 0x6c63615f7869736f ||
	    given[2] != 0x007373656363615f)
		return 0;
	if (bpf_probe_read_user(&first, sizeof(first), (void *)(value + 4)) ||
	    bpf_probe_read_user(last, sizeof(last), (void *)(value + size - 16)))
		return 0;
	if ((u16)first != ACL_USER_OBJ || (u16)last[0] != second || (u16)last[1] != ACL_OTHER)
		return 0;
	return ACL_MODE | (first >> 16 & 7) << 6 | (last[0] >> 16 & 7) << 3 | (last[1] >> 16 & 7);
}

#define SEEK_SET 0
#define SEEK_CUR 1

static __always_inline void fill_extra(struct spsc_syscall *r, const struct task_state *st,
				       const volatile struct call_shape *s, const void *user)
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
		/* lockf() counts from the position, which another process may move at any time. */
		if (type[1] == SEEK_CUR && r->pos >= 0) {
			if (!st->placed)
				pair[0] += r->pos;
			else
				pair[0] = (s64)pair[1] < 0 ? r->pos - pair[1] : r->pos;
			type[1] = SEEK_SET;
		}
		r->lock_type = type[0] | type[1] << 8;
		r->pos = pair[0];
		r->size = pair[1];
	} else if (s->extra == EXTRA_IOV) {
		struct vector vector = {.at = (u64)user, .n = r->args[2]};

		bad = add_up(&vector);
		r->count = vector.bytes;
	} else if (s->extra == EXTRA_HOW) {
		bad |= bpf_probe_read_user(&pair, 16, user);
		r->args[2] = pair[0];
		r->args[3] = pair[1];
	} else if (s->extra == EXTRA_CLONE && (u32)r->args[1] == FICLONERANGE) {
		/* struct file_clone_range: source, its offset, length, our offset */
		bad |= bpf_probe_read_user(&r->args[2], 32, user);
	} else if (s->extra == EXTRA_ACL) {
		r->args[2] = mode_of_acl(r->args[1], r->args[2], r->args[3]);
	}
	if (bad)
		r->flags |= SPSC_CALL_EXTRA_FAULT;
}

/* Note the offset before the call; the kernel has moved it by the result. */
static __always_inline void fill_place(struct spsc_syscall *r, s8 arg)
{
	u32 n = arg;
	s64 offset;

	if (n >= 6)
		return;
	if (!r->args[n]) {
		r->args[n] = -1;
		return;
	}
	if (bpf_probe_read_user(&offset, sizeof(offset), (void *)r->args[n])) {
		r->flags |= SPSC_CALL_EXTRA_FAULT;
		offset = -1;
	} else if (r->ret > 0) {
		offset -= r->ret;
	}
	r->args[n] = offset;
}

/* Note the size after the call. The call itself held the file open, so the inode noted at entry
 * is still there, except after a close. */
static __always_inline void fill_object(struct task_struct *t, struct task_state *st,
					struct spsc_syscall *r, const volatile struct call_shape *s)
{
	struct inode *inode = (struct inode *)st->inode;
	struct dentry *there;
	struct file *f;

	if ((s->flags & SHAPE_CHDIR) && r->ret == 0) {
		there = s->flags & SHAPE_ROOT ? untrusted(t)->fs->root.dentry
					      : untrusted(t)->fs->pwd.dentry;
		if (dentry_on_spool(there, there->d_sb->s_dev))
			note_object(st, there->d_inode, there->d_sb->s_dev);
		return;
	}
	if ((s->flags & SHAPE_RETURNS_FD) && r->ret >= 0 && s->fd < 0) {
		f = file_of_fd(t, r->ret);
		if (!f)
			return;
		inode = inode_of(f);
		note_object(st, inode, dev_of(inode));
	}
	if (inode && !(s->flags & SHAPE_CLOSES))
		r->size = MEMBER(struct inode, inode, i_size);
}

/* Return true if a thread does not share its working directory or descriptors with its process,
 * to which the calls of all its threads are attributed. A leader that has ended has neither. */
static __always_inline bool is_apart(struct task_struct *t)
{
	struct task_struct *leader = MEMBER(struct task_struct, t, group_leader);
	struct fs_struct *fs;
	struct files_struct *files;

	if (leader == t)
		return false;
	fs = MEMBER(struct task_struct, leader, fs);
	files = MEMBER(struct task_struct, leader, files);
	return (fs && fs != MEMBER(struct task_struct, t, fs)) ||
	       (files && files != MEMBER(struct task_struct, t, files));
}

static __always_inline void fill_record(struct task_struct *t, struct task_state *st,
					struct spsc_syscall *r, long ret, u64 now, u32 flags)
{
	const volatile struct call_shape *s = &shapes[(st->call - 1) & (MAX_CALLS - 1)];

	r->start_ns = st->start_ns;
	r->end_ns = now;
	if (is_apart(t))
		count(COUNT_APART);
	r->oncpu_ns = st->oncpu_ns;
	r->blocked_ns = st->blocked_ns;
	r->runq_ns = st->runq_ns;
	r->preempted_ns = st->preempted_ns;
	r->stolen_ns = steal_is_counted() ? st->stolen_ns : SPSC_STEAL_UNKNOWN;
	r->seq = st->n_calls - 1;
	r->ret = ret;
	r->size = -1;
	fill_object(t, st, r, s);
	__builtin_memcpy(r->args, st->args, sizeof(r->args));
	if (s->flags & SHAPE_MOUNTS)
		r->args[5] = mount_ns_of(t);
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
	r->skipped = st->skipped;
	r->longer = r->longer2 = 0;
	r->flags = flags | (st->cwd_spool ? SPSC_CALL_CWD_SPOOL : 0);
	if (s->extra_arg >= 0)
		fill_extra(r, st, s, (void *)arg_of(st, s->extra_arg));
	fill_place(r, s->at);
	fill_place(r, s->at2);
}

/* The same for the current task's seldom calls: the verifier checks a global function once, and not
 * on each way to it, but a call of one takes 10 to 20 ns. */
__noinline int fill_seldom(struct task_state *st, struct spsc_syscall *r, long ret, u64 now,
			   u32 flags)
{
	if (st && r)
		fill_record(bpf_get_current_task_btf(), st, r, ret, now, flags);
	return 0;
}

static __always_inline void fill_call(struct task_struct *t, struct task_state *st,
				      struct spsc_syscall *r, long ret, u64 now, u32 flags)
{
	if (flags & SPSC_CALL_IN_FLIGHT)
		fill_seldom(st, r, ret, now, flags);
	else
		fill_record(t, st, r, ret, now, flags);
}

/* Read one string to the end of a record; return its length without NUL. */
static __always_inline u32 read_text(struct spsc_syscall *r, char *to, u32 room, u64 user)
{
	long n = bpf_probe_read_user_str(to, room, (void *)user);

	if (n > 0)
		return n - 1;
	/* 0 is an empty string in kernels before "maccess: fix strncpy_from_user_nofault() empty
	 * string handling", such as 6.1 and 6.12 */
	if (n < 0 && user)
		r->flags |= SPSC_CALL_PATH_FAULT;
	return 0;
}

static __always_inline u32 recorded_view(const struct task_state *st)
{
	return st->view == VIEW_ASSUMED ? 0 : st->view;
}

/* The name of a socket need not end with a NUL: its length is given, with that of the family. */
static __always_inline u32 cut_socket(const struct task_state *st,
				      const volatile struct call_shape *s, u32 len)
{
	u64 most = st->args[2] - sizeof(u16);

	return (s->flags & SHAPE_SOCKET) && most < len ? most : len;
}

static __always_inline void fill_texts(struct task_state *st, struct ring_call *e, char *text,
				       u32 room)
{
	const volatile struct call_shape *s = &shapes[(st->call - 1) & (MAX_CALLS - 1)];

	e->head.stride = room;
	e->head.view = recorded_view(st);
	if (s->flags & SHAPE_EXEC) {
		bpf_probe_read_kernel(text, PATH_SHORT, st->name.text);
		e->head.len1 = PATH_SHORT - 1; /* the reader stops at the NUL */
		return;
	}
	if (s->path >= 0 && st->name_read && st->name_read < PATH_SHORT) {
		/* already read completely at entry */
		bpf_probe_read_kernel(text, PATH_SHORT, st->name.text);
		e->head.len1 = cut_socket(st, s, st->name_read - 1);
	} else if (s->path >= 0) {
		e->head.len1 =
			cut_socket(st, s, read_text(&e->rec, text, room, arg_of(st, s->path)));
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

/* The first record that gets through holds the number of calls skipped before it. */
static __always_inline void submit_call(struct task_state *st, void *record)
{
	st->skipped = 0;
	bpf_ringbuf_submit(record, BPF_RB_NO_WAKEUP);
}

#define ENAMETOOLONG 36

/* Paths longer than PATH_SHORT are rare; they get a record of their own size. */
__noinline int emit_long(struct task_state *st, long ret, u64 now, u32 flags)
{
	struct ring_call_long *e;

	if (!st)
		return 0;
	e = reserve(SPSC_KIND_SYSCALL, sizeof(*e));
	if (!e)
		return 0;
	fill_seldom(st, &e->c.rec, ret, now, flags);
	fill_texts(st, &e->c, e->text, PATH_LONG);
	/* A path of PATH_LONG - 1 bytes is complete if the kernel took it: it takes no longer
	 * one. */
	if (ret == -ENAMETOOLONG &&
	    (e->c.head.len1 >= PATH_LONG - 1 || e->c.head.len2 >= PATH_LONG - 1))
		e->c.rec.flags |= SPSC_CALL_PATH_CUT;
	submit_call(st, e);
	return 0;
}

/* The path was already read completely at entry; there is no other text. */
static __always_inline void emit_one(struct task_struct *t, struct task_state *st, long ret,
				     u64 now, u32 flags)
{
	const volatile struct call_shape *s = &shapes[(st->call - 1) & (MAX_CALLS - 1)];
	struct ring_call_one *e = reserve(SPSC_KIND_SYSCALL, sizeof(*e));

	if (!e)
		return;
	fill_call(t, st, &e->c.rec, ret, now, flags);
	e->c.head.len1 = cut_socket(st, s, st->name_read - 1);
	e->c.head.stride = sizeof(e->text);
	e->c.head.view = recorded_view(st);
	__builtin_memcpy(e->text, st->name.text, sizeof(e->text));
	submit_call(st, e);
}

/* Let the time on the CPU end now, so that the sum and the record of a call have the same parts. */
static __always_inline void settle(struct task_struct *t, struct task_state *st, u64 now)
{
	st->stolen_ns += stolen_lately(t, st, now);
	st->oncpu_ns += now - st->last_ns;
	st->last_ns = now;
}

/* End an absence whose end was not reported. */
__noinline int end_unseen(u64 now)
{
	struct task_struct *t = bpf_get_current_task_btf();
	struct task_state *st = state_of(t);

	if (st)
		switched_in(t, st, now);
	return 0;
}

static __always_inline void emit_call(struct task_struct *t, struct task_state *st, long ret,
				      u64 now, u32 flags)
{
	const volatile struct call_shape *s = &shapes[(st->call - 1) & (MAX_CALLS - 1)];
	struct ring_call_short *e;
	struct ring_call *plain;

	if (st->out_ns) {
		end_unseen(now);
		flags |= SPSC_CALL_SWITCH_UNSEEN;
	}
	settle(t, st, now);
	if (sum_calls) {
		sum_call(t, st, ret, now);
		end_asking(st, now);
	}
	if (no_records) {
		touch(st);
		return;
	}
	if (!st->seen && !(s->flags & SHAPE_CHDIR))
		note_cwd(t, st);
	if (!st->seen)
		emit_seen(t, st, now, s->flags & SHAPE_UMASK ? ret : untrusted(t)->fs->umask);
	touch(st);
	st->n_calls++; /* before reserving: a lost record leaves a hole in seq */
	if (s->path < 0 && s->text < 0) {
		plain = reserve(SPSC_KIND_SYSCALL, sizeof(*plain));
		if (!plain)
			return;
		fill_call(t, st, &plain->rec, ret, now, flags);
		submit_call(st, plain);
		return;
	}
	if (s->path2 < 0 && s->text < 0 && st->name_read && st->name_read <= PATH_ONE) {
		emit_one(t, st, ret, now, flags);
		return;
	}
	e = reserve(SPSC_KIND_SYSCALL, sizeof(*e));
	if (!e)
		return;
	fill_call(t, st, &e->c.rec, ret, now, flags);
	fill_texts(st, &e->c, e->text, PATH_SHORT);
	if (truncated(&e->c) && !(s->flags & SHAPE_EXEC)) {
		bpf_ringbuf_discard(e, BPF_RB_NO_WAKEUP);
		emit_long(st, ret, now, flags);
		return;
	}
	submit_call(st, e);
}

#endif
