/* SPDX-License-Identifier: GPL-2.0-only OR BSD-3-Clause */
/* Finds the file behind a descriptor, an address or a path, and decides if it is on a spool. */
#ifndef SPOOLSCOPE_FILES_BPF_H
#define SPOOLSCOPE_FILES_BPF_H

#include "views.bpf.h"

/* Return the file of a descriptor. Plain loads cost no helper call. A slot of the descriptor
 * array is one pointer, without a type for the verifier; hlist_head is a struct of one pointer. */
static __always_inline struct file *file_of_fd(struct task_struct *t, s64 fd)
{
	struct fdtable *fdt = untrusted(t)->files->fdt;

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

static __always_inline struct dentry *name_of(struct file *f)
{
	return MEMBER(struct file, f, f_path.dentry);
}

static __always_inline bool file_on_spool(struct file *f, u32 dev)
{
	if (!is_spool(dev))
		return false;
	return !n_parts || dentry_on_spool(name_of(f), dev);
}

static __always_inline bool cwd_on_spool(struct task_struct *t)
{
	struct dentry *cwd = untrusted(t)->fs->pwd.dentry;

	return dentry_on_spool(cwd, cwd->d_sb->s_dev);
}

/* Return true if the cwd lies above a spool: names relative to it may lead there. */
static __always_inline bool cwd_above_spool(struct task_struct *t)
{
	struct dentry *cwd = untrusted(t)->fs->pwd.dentry;

	return is_place(cwd->d_inode->i_ino, cwd->d_sb->s_dev);
}

static __always_inline void note_cwd(struct task_struct *t, struct task_state *st)
{
	st->cwd_ino = untrusted(t)->fs->pwd.dentry->d_inode->i_ino;
	st->cwd_dev = untrusted(t)->fs->pwd.dentry->d_sb->s_dev;
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

/* Return true if one of these descriptors, both ends included, is on a spool. */
static __always_inline bool any_on_spool(struct task_struct *t, u32 first, u32 last)
{
	struct fdtable *fdt = untrusted(t)->files->fdt;
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

#define PROC_SE 0x65732f636f72702f /* "/proc/se" */
#define LF_FD 0x2f64662f666c /* "lf/fd/" */
#define DEV_FD 0x2f64662f7665642f /* "/dev/fd/" */
#define MAX_DIGITS 9
#define AT_SYMLINK_FOLLOW 0x400
#define AT_EMPTY_PATH 0x1000

/* Return N of the name /proc/self/fd/N or /dev/fd/N and, from bit 32 on, the length of the name; -2 - N
 * if that is a directory above the name, -1 if it is another one. glibc changes modes by such names,
 * files without a name get one, and tar sets attributes below them. */
__noinline s64 descriptor_in_name(u64 user)
{
	union {
		char text[32];
		u64 word[4];
	} name = {};
	s64 at = 8;
	s64 fd = 0;

	if (bpf_probe_read_user_str(name.text, sizeof(name.text), (void *)user) <= 0)
		return -1;
	if (name.word[0] == PROC_SE && (name.word[1] & 0xffffffffffff) == LF_FD)
		at = 14;
	else if (name.word[0] != DEV_FD)
		return -1;
	for (u32 i = 0; i <= MAX_DIGITS; i++) {
		char c = name.text[(at + i) & 31];

		if (!c)
			return i ? fd | (at + i) << 32 : -1;
		if (c == '/' && i)
			return -2 - fd;
		if (c < '0' || c > '9' || (i && !fd))
			return -1;
		fd = fd * 10 + (c - '0');
	}
	return -1;
}

#define DOTS 0x2e2e /* ".." */

enum away { PERHAPS_HERE, AWAY, AWAY_PROC };

/* Return AWAY if a path certainly leads to no spool by its name, AWAY_PROC if that begins in the
 * caller's /proc. This first look is enough for most such paths; path_on_spool() decides the rest. */
static __always_inline enum away elsewhere(struct task_struct *t, s32 dirfd, u64 user)
{
	struct inode *inode;
	struct file *dir;
	u64 first;
	u32 dev;

	if (bpf_probe_read_user(&first, sizeof(first), (void *)user))
		return PERHAPS_HERE;
	if ((first & 0xffff) == DOTS)
		return PERHAPS_HERE;
	if (*(const char *)&first == '/') {
		if (sees_our_mounts(t) ? !no_spool_begins_with(first)
				       : root_on_spool(t) || !no_spool_in_view(first))
			return PERHAPS_HERE;
		return first == PROC_SE ? AWAY_PROC : AWAY;
	}
	if (dirfd == AT_FDCWD)
		return cwd_on_spool(t) || cwd_above_spool(t) ? PERHAPS_HERE : AWAY;
	dir = file_of_fd(t, dirfd);
	if (!dir)
		return AWAY;
	inode = inode_of(dir);
	dev = dev_of(inode);
	return file_on_spool(dir, dev) || is_place(MEMBER(struct inode, inode, i_ino), dev)
		       ? PERHAPS_HERE
		       : AWAY;
}

enum answer { NO, YES, MAYBE };

static __always_inline bool absolute_on_spool(struct task_struct *t, struct task_state *st,
					      bool tidy)
{
	if (sees_our_mounts(t))
		return leads_in(way_of(st, tidy, 0, 0));
	if (root_on_spool(t)) {
		st->named_dev = untrusted(t)->fs->root.dentry->d_sb->s_dev;
		return !leaves_root(tidy);
	}
	return named_in_view(tidy);
}

/* A directory, by addresses: a global function takes pointers to memory only. */
struct directory {
	u64 dentry, mnt;
};

/* A way up, by a loop of which the verifier checks one turn. */
struct rise {
	struct directory at;
	u32 levels; /* that are left */
};

static long rise_one(u32 i, struct rise *rise)
{
	struct directory *at = &rise->at;
	struct mount *mount;

	if (at->dentry != (u64)MEMBER(struct vfsmount, at->mnt, mnt_root)) {
		at->dentry = (u64)MEMBER(struct dentry, at->dentry, d_parent);
		return !--rise->levels;
	}
	mount = (void *)(at->mnt - bpf_core_field_offset(struct mount, mnt));
	at->dentry = (u64)MEMBER(struct mount, mount, mnt_mountpoint);
	mount = MEMBER(struct mount, mount, mnt_parent);
	if ((u64)mount + bpf_core_field_offset(struct mount, mnt) == at->mnt)
		return 1; /* the root directory */
	at->mnt = (u64)mount + bpf_core_field_offset(struct mount, mnt);
	return 0;
}

/* Return the directory that ".." leads to after so many levels, also from the root of a mount. */
static __always_inline struct directory above_by(const struct directory *from, u32 levels)
{
	struct rise rise = {.at = *from, .levels = levels};

	if (levels)
		bpf_loop(PATH_SHORT, rise_one, &rise, 0);
	return rise.at;
}

/* Return true if a relative path leads to a spool from the directory that is `up` levels above
 * `from`. If no name of a spool begins there, it does if that directory is on a spool. */
__noinline bool leads_from(const struct directory *from, u32 up, bool tidy)
{
	struct task_state *st;
	struct directory at;
	struct inode *inode;
	struct ascent ascent;
	u64 ino;
	int way;
	u32 dev;

	if (!from)
		return false;
	at = above_by(from, up);
	inode = MEMBER(struct dentry, at.dentry, d_inode);
	ino = MEMBER(struct inode, inode, i_ino);
	dev = dev_of(inode);
	if (is_place(ino, dev)) {
		st = state_of(bpf_get_current_task_btf());
		way = st ? way_of(st, tidy, ino, dev) : WAY_NONE;
		if (way != WAY_NONE)
			return leads_in(way);
	}
	ascent = (struct ascent){.at = at.dentry};
	return is_spool(dev) && (!n_parts || is_whole(dev) || below_top(&ascent));
}

/*
 * Decide if the path at `user`, relative to dirfd, is on a spool. Its page may not be mapped yet:
 * then the answer is MAYBE, and the path is read again at exit.
 */
static __always_inline enum answer path_on_spool(struct task_struct *t, struct task_state *st,
						 s64 dirfd, u64 user)
{
	long n = bpf_probe_read_user_str(st->name.text, sizeof(st->name.text), (void *)user);
	struct directory from = {};
	struct file *dir;
	int up;

	st->name_read = n > 0 ? n : 0;
	if (n < 0 && user)
		return MAYBE;
	if (n < 0) /* futimens(fd) is utimensat(fd, NULL) */
		st->name.text[0] = 0;
	if (st->name.text[0] == '/')
		return absolute_on_spool(t, st, tidied(st) != NOT_TIDIED) ? YES : NO;
	if ((s32)dirfd == AT_FDCWD) {
		from.dentry = (u64)untrusted(t)->fs->pwd.dentry;
		from.mnt = (u64)untrusted(t)->fs->pwd.mnt;
	} else {
		dir = file_of_fd(t, (s32)dirfd);
		if (!dir)
			return NO;
		from.dentry = (u64)MEMBER(struct file, dir, f_path.dentry);
		from.mnt = (u64)MEMBER(struct file, dir, f_path.mnt);
	}
	up = tidied(st);
	if (!leads_from(&from, up == NOT_TIDIED ? 0 : up, up != NOT_TIDIED))
		return NO;
	if (!st->named_dev)
		st->named_dev = dev_of(MEMBER(struct dentry, from.dentry, d_inode));
	return YES;
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
	if (!file_on_spool(m.file, dev))
		return false;
	note_object(st, inode, dev);
	return true;
}

#endif
