/* SPDX-License-Identifier: GPL-2.0-only OR BSD-3-Clause */
/* Which file is behind a descriptor, an address or a path, and is it on a spool? */
#ifndef SPOOLSCOPE_FILES_BPF_H
#define SPOOLSCOPE_FILES_BPF_H

#include "views.bpf.h"

/* Plain loads cost no helper call. A slot of the descriptor array is one pointer, which
 * has no type to be told; hlist_head is a struct of one pointer. */
static __always_inline struct file *file_of_fd(struct task_struct *t, s64 fd)
{
	struct fdtable *fdt = t->files->fdt;

	if (fd < 0 || fd >= fdt->max_fds)
		return NULL;
	return (struct file *)MEMBER(struct hlist_head, fdt->fd + fd, first);
}

static __always_inline struct inode *inode_of(struct file *f)
{
	return MEMBER(struct file, f, f_inode);
}

static __always_inline u32 dev_of(struct inode *inode)
{
	return MEMBER(struct super_block, MEMBER(struct inode, inode, i_sb), s_dev);
}

static __always_inline bool cwd_on_spool(struct task_struct *t)
{
	return is_spool(t->fs->pwd.dentry->d_sb->s_dev);
}

static __always_inline void note_cwd(struct task_struct *t, struct task_state *st)
{
	st->cwd_ino = t->fs->pwd.dentry->d_inode->i_ino;
	st->cwd_dev = t->fs->pwd.dentry->d_sb->s_dev;
}

struct descriptors {
	struct file **first;
	bool on_spool;
};

static long look_behind(u32 i, struct descriptors *d)
{
	struct file *f = (struct file *)MEMBER(struct hlist_head, d->first + i, first);

	d->on_spool = f && is_spool(dev_of(inode_of(f)));
	return d->on_spool;
}

/* Is one of these descriptors, both ends included, on a spool? */
static __always_inline bool any_on_spool(struct task_struct *t, u32 first, u32 last)
{
	struct fdtable *fdt = t->files->fdt;
	struct descriptors d = {.first = fdt->fd + first};
	u32 max = fdt->max_fds;

	if (last >= max)
		last = max - 1;
	if (first <= last)
		bpf_loop(last - first + 1, look_behind, &d, 0);
	return d.on_spool;
}

static __always_inline void note_object(struct task_state *st, struct inode *inode, u32 dev)
{
	st->inode = (u64)inode;
	st->dev = dev;
	st->ino = MEMBER(struct inode, inode, i_ino);
	st->obj_mode = MEMBER(struct inode, inode, i_mode);
}

/* No way to a spool leads through this directory. */
__noinline bool no_way_from(u64 ino, u32 dev)
{
	if (is_spool(dev))
		return false;
	for (u32 i = 0; i < MAX_WAYS && i < n_ways; i++)
		if (ways_in[i].ino == ino && (!ways_in[i].dev || ways_in[i].dev == dev))
			return false;
	return true;
}

/* A first look at a path: enough for most that have nothing to do with a spool, and right
 * where it says so; path_on_spool() decides the rest. */
static __always_inline bool elsewhere(struct task_struct *t, s32 dirfd, u64 user)
{
	struct dentry *cwd;
	struct inode *inode;
	struct file *dir;
	u64 first;

	if (bpf_probe_read_user(&first, sizeof(first), (void *)user))
		return false;
	if (*(const char *)&first == '/') {
		if (root_on_spool(t))
			return false;
		return sees_our_mounts(t) ? no_spool_begins_with(first) : no_spool_in_view(first);
	}
	if (dirfd == AT_FDCWD) {
		cwd = t->fs->pwd.dentry;
		return no_way_from(cwd->d_inode->i_ino, cwd->d_sb->s_dev);
	}
	dir = file_of_fd(t, dirfd);
	if (!dir)
		return true;
	inode = inode_of(dir);
	return no_way_from(MEMBER(struct inode, inode, i_ino), dev_of(inode));
}

enum answer { NO, YES, MAYBE };

/* Relative names: the directory is on a spool, or above a mount point. */
static __always_inline enum answer from_directory(struct task_state *st, u64 ino, u32 dev)
{
	return is_spool(dev) || head_on_spool(tidied(st), ino, dev) ? YES : NO;
}

static __always_inline enum answer absolute_on_spool(struct task_struct *t, struct task_state *st)
{
	if (root_on_spool(t))
		return YES;
	if (sees_our_mounts(t))
		return head_on_spool(tidied(st), 0, 0) ? YES : NO;
	return named_in_view(tidied(st)) ? YES : NO;
}

/*
 * Is the path at `user`, relative to dirfd, on a spool? Paths are read again at
 * exit: here the page may not be mapped yet, then the answer is MAYBE.
 */
static __always_inline enum answer path_on_spool(struct task_struct *t, struct task_state *st,
						 s64 dirfd, u64 user)
{
	long n = bpf_probe_read_user_str(st->head, sizeof(st->head), (void *)user);
	struct dentry *cwd;
	struct inode *inode;
	struct file *dir;

	st->head_bytes = n > 0 ? n : 0;
	if (n < 0 && user)
		return MAYBE;
	if (n < 0) /* futimens(fd) is utimensat(fd, NULL) */
		st->head[0] = 0;
	if (st->head[0] == '/')
		return absolute_on_spool(t, st);
	if ((s32)dirfd == AT_FDCWD) {
		cwd = t->fs->pwd.dentry;
		return from_directory(st, cwd->d_inode->i_ino, cwd->d_sb->s_dev);
	}
	dir = file_of_fd(t, (s32)dirfd);
	if (!dir)
		return NO;
	inode = inode_of(dir);
	return from_directory(st, MEMBER(struct inode, inode, i_ino), dev_of(inode));
}

/* bpf_find_vma() hands its callback stack memory only. */
struct mapped {
	struct file *file;
};

static long note_mapped(struct task_struct *t, struct vm_area_struct *vma, struct mapped *m)
{
	m->file = BPF_CORE_READ(vma, vm_file);
	return 0;
}

static __always_inline bool mapped_on_spool(struct task_struct *t, struct task_state *st,
					    u64 address)
{
	struct mapped m = {};
	struct inode *inode;
	u32 dev;

	if (bpf_find_vma(t, address, note_mapped, &m, 0) || !m.file)
		return false;
	inode = inode_of(m.file);
	dev = dev_of(inode);
	if (!is_spool(dev))
		return false;
	note_object(st, inode, dev);
	return true;
}

#endif
