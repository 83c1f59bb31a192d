/* SPDX-License-Identifier: GPL-2.0-only OR BSD-3-Clause */
/* Decides at entry if a call is about a spool, so that other calls cost little. */
#ifndef SPOOLSCOPE_FILTER_BPF_H
#define SPOOLSCOPE_FILTER_BPF_H

#include "files.bpf.h"
#include "target.bpf.h"

static __always_inline s64 arg_of(const struct task_state *st, s8 i)
{
	u32 n = i;

	return n < 6 ? st->args[n] : 0;
}

#define LARGEST_VECTOR 64

/* An array of struct iovec. */
struct vector {
	u64 at, n;
	u64 bytes; /* of the first LARGEST_VECTOR elements, as far as they can be read */
};

/* Add up the lengths of an array of struct iovec; return 1 if an element cannot be read. */
__noinline int add_up(struct vector *vector)
{
	u64 bytes = 0, pair[2];
	int bad = 0;

	if (!vector)
		return 1;
	for (u64 i = 0; i < LARGEST_VECTOR && i < vector->n; i++) {
		if (bpf_probe_read_user(&pair, 16, (void *)(vector->at + i * 16))) {
			bad = 1;
			break;
		}
		bytes += pair[1];
	}
	vector->bytes = bytes;
	return bad;
}

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
		if (file_on_spool(f, dev)) {
			note_object(st, inode, dev);
			st->pos = MEMBER(struct file, f, f_pos);
			answer = YES;
		}
	}
	if (s->fd2 >= 0 && (f = file_of_fd(t, (s32)arg_of(st, s->fd2)))) {
		inode = inode_of(f);
		if (file_on_spool(f, dev_of(inode))) {
			st->ino2 = MEMBER(struct inode, inode, i_ino);
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

/* Note the object for AT_EMPTY_PATH: glibc makes fstat(fd) a newfstatat(fd, "", ...). */
static __always_inline void note_empty_path(struct task_struct *t, struct task_state *st,
					    const volatile struct call_shape *s)
{
	struct inode *inode;
	struct file *f;
	u32 dev;

	if (s->dirfd < 0 || s->path < 0 || st->name.text[0])
		return;
	f = file_of_fd(t, (s32)arg_of(st, s->dirfd));
	if (!f)
		return;
	inode = inode_of(f);
	dev = dev_of(inode);
	if (file_on_spool(f, dev))
		note_object(st, inode, dev);
}

static __always_inline bool wanted(struct task_struct *t, struct task_state *st,
				   const volatile struct call_shape *s)
{
	enum answer answer;

	if (s->flags & (SHAPE_TASK | SHAPE_NEVER_RETURNS)) {
		st->certain = filter_tasks || process_touched(t, st);
		if (s->flags & SHAPE_EXEC)
			bpf_probe_read_user_str(st->name.text, sizeof(st->name.text),
						(void *)arg_of(st, s->path));
		return st->certain;
	}
	if (s->flags & SHAPE_RANGE) {
		/* The verifier cannot follow each descriptor up to the directory that is the
		 * spool. */
		if (n_parts)
			st->certain = filter_tasks || process_touched(t, st);
		else
			st->certain = filter_tasks || any_on_spool(t, arg_of(st, 0), arg_of(st, 1));
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
	/* A symbolic link or another mount may lead to a spool: the opened file will show it. */
	return answer != NO || (s->flags & SHAPE_CHDIR) ||
	       (s->path >= 0 && (s->flags & SHAPE_RETURNS_FD));
}

#endif
