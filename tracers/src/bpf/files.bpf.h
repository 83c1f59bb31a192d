/* SPDX-License-Identifier: GPL-2.0-only OR BSD-3-Clause */
/* Which file is behind a descriptor, an address or a path, and is it on a spool? */
#ifndef SPOOLSCOPE_FILES_BPF_H
#define SPOOLSCOPE_FILES_BPF_H

#include "state.bpf.h"

static __always_inline struct file *file_of_fd(struct task_struct *t, s64 fd)
{
	struct fdtable *fdt = BPF_CORE_READ(t, files, fdt);
	struct file **slots = BPF_CORE_READ(fdt, fd);
	struct file *f = NULL;

	if (fd < 0 || fd >= BPF_CORE_READ(fdt, max_fds))
		return NULL;
	bpf_probe_read_kernel(&f, sizeof(f), slots + fd);
	return f;
}

static __always_inline u32 dev_of_file(struct file *f)
{
	return BPF_CORE_READ(f, f_inode, i_sb, s_dev);
}

static __always_inline bool cwd_on_spool(struct task_struct *t)
{
	return is_spool(BPF_CORE_READ(t, fs, pwd.dentry, d_sb, s_dev));
}

static __always_inline void note_object(struct task_state *st, struct file *f, u32 dev)
{
	struct inode *inode = BPF_CORE_READ(f, f_inode);

	st->dev = dev;
	st->ino = BPF_CORE_READ(inode, i_ino);
	st->obj_mode = BPF_CORE_READ(inode, i_mode);
	st->pos = BPF_CORE_READ(f, f_pos);
}

/* Does the path in head[], seen from directory (dev, ino), lie below a spool's
 * mount point? ino 0 stands for an absolute path. Compared word by word. */
static __always_inline bool head_on_spool(const char *head, u64 ino, u32 dev)
{
	const u64 *word = (const u64 *)head;

	for (u32 i = 0; i < MAX_WAYS; i++) {
		const volatile struct way_in *way = &ways_in[i];
		u64 differs = 0;
		char next;

		if (i >= n_ways)
			break;
		if (way->ino != ino || (way->dev && way->dev != dev))
			continue;
		for (u32 w = 0; w < MOUNT_WORDS; w++)
			differs |= (word[w] & way->mask[w]) ^ way->word[w];
		next = head[way->length & 127];
		if (!differs && (next == '/' || next == 0))
			return true;
	}
	return false;
}

enum answer { NO, YES, MAYBE };

/* Relative names: the directory is on a spool, or above a mount point. */
static __always_inline enum answer from_directory(struct inode *dir, const char *head)
{
	u32 dev = BPF_CORE_READ(dir, i_sb, s_dev);

	if (is_spool(dev))
		return YES;
	return head_on_spool(head, BPF_CORE_READ(dir, i_ino), dev) ? YES : NO;
}

/*
 * Is the path at `user`, relative to dirfd, on a spool? Paths are read again at
 * exit: here the page may not be mapped yet, then the answer is MAYBE.
 */
static __always_inline enum answer path_on_spool(struct task_struct *t, struct task_state *st,
						 s64 dirfd, u64 user)
{
	long n = bpf_probe_read_user_str(st->head, sizeof(st->head), (void *)user);
	struct file *dir;

	if (n < 0)
		return user ? MAYBE : NO;
	if (st->head[0] == '/')
		return head_on_spool(st->head, 0, 0) ? YES : NO;
	if ((s32)dirfd == AT_FDCWD)
		return from_directory(BPF_CORE_READ(t, fs, pwd.dentry, d_inode), st->head);
	dir = file_of_fd(t, (s32)dirfd);
	return dir ? from_directory(BPF_CORE_READ(dir, f_inode), st->head) : NO;
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
	u32 dev;

	if (bpf_find_vma(t, address, note_mapped, &m, 0) || !m.file)
		return false;
	dev = dev_of_file(m.file);
	if (!is_spool(dev))
		return false;
	note_object(st, m.file, dev);
	st->pos = -1;
	return true;
}

#endif
