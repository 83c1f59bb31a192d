/* SPDX-License-Identifier: GPL-2.0-only OR BSD-3-Clause */
/*
 * The name that a call looks up when it goes to sleep, and the directory, from the task's walk
 * along a path (struct nameidata). It has no program of its own: sched.bpf.h calls it.
 */
#ifndef SPOOLSCOPE_LOOKUP_BPF_H
#define SPOOLSCOPE_LOOKUP_BPF_H

#include "filter.bpf.h"

/* Note which name of the call's own path a walk is looking up. The walk uses a copy of the path,
 * so the place in the copy is that in the path, which is recorded anyway. */
static __always_inline void note_name(struct nameidata *walk, struct task_state *st)
{
	const volatile struct call_shape *s = &shapes[(st->call - 1) & (MAX_CALLS - 1)];
	const struct qstr *entered;
	u64 at, from;

	if (!st->call || !bpf_core_field_exists(walk->last) || !bpf_core_field_exists(walk->name) ||
	    !bpf_core_field_exists(walk->depth))
		return;
	entered = &walk->path.dentry->d_name;
	/* The name was found and entered: until the next one begins, rights are checked or the
	 * file is opened. */
	if (walk->last.hash == entered->hash && walk->last.len == entered->len)
		return;
	if (walk->depth) {
		st->name_of = SPSC_NAME_LINK;
		return;
	}
	at = (u64)walk->last.name - (u64)walk->name->name;
	if (at >= PATH_LONG || !walk->last.len || walk->last.len > NAME_LONGEST)
		return;
	from = (u64)walk->name->uptr;
	if (s->path >= 0 && from == arg_of(st, s->path))
		st->name_of = SPSC_NAME_PATH;
	else if (s->path2 >= 0 && from == arg_of(st, s->path2))
		st->name_of = SPSC_NAME_PATH2;
	else
		return;
	st->name_at = at;
	st->name_bytes = walk->last.len;
}

/* Note the directory in which a name is being looked up, and the name; NULL reads as 0. */
static __always_inline void note_lookup(struct task_struct *t, struct task_state *st)
{
	struct nameidata *walk = untrusted(t)->nameidata;
	struct inode *dir = walk ? walk->path.dentry->d_inode : NULL;

	st->dir_ino = dir ? dir->i_ino : 0;
	st->dir_dev = dir ? dir->i_sb->s_dev : 0;
	st->dir = dir ? (u64)walk->path.dentry : 0;
	st->name_of = st->name_bytes = st->name_at = 0;
	if (dir && !no_records)
		note_name(walk, st);
}

#endif
