/* SPDX-License-Identifier: GPL-2.0-only OR BSD-3-Clause */
/* Which file is behind a descriptor, an address or a path, and is it on a spool? */
#ifndef SPOOLSCOPE_FILES_BPF_H
#define SPOOLSCOPE_FILES_BPF_H

#include "state.bpf.h"

extern void *bpf_rdonly_cast(const void *object, u32 btf_id) __ksym __weak;

/* A member of a kernel object found through an untyped pointer: a plain load where
 * the verifier can be told its type (a35b9af4ec2c "bpf: Add a kfunc for generic type
 * cast", v6.2), else a helper call, which costs ten times as much. */
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

/* The cwd lies above a mount point: names relative to it may lead there. */
static __always_inline bool cwd_above_spool(struct task_struct *t)
{
	u64 ino = t->fs->pwd.dentry->d_inode->i_ino;
	u32 dev = t->fs->pwd.dentry->d_sb->s_dev;

	for (u32 i = 0; i < MAX_WAYS && i < n_ways; i++)
		if (ways_in[i].ino == ino && (!ways_in[i].dev || ways_in[i].dev == dev))
			return true;
	return false;
}

/* Chrooted into a spool, as Postfix services are: every absolute name lies on it. */
static __always_inline bool root_on_spool(struct task_struct *t)
{
	return is_spool(t->fs->root.dentry->d_sb->s_dev);
}

static __always_inline void note_object(struct task_state *st, struct inode *inode, u32 dev)
{
	st->inode = (u64)inode;
	st->dev = dev;
	st->ino = MEMBER(struct inode, inode, i_ino);
	st->obj_mode = MEMBER(struct inode, inode, i_mode);
}

/* What of a path is compared. The two functions that read it are global: the verifier
 * looks at them once, not on every way to them. */
struct path_head {
	char text[PATH_HEAD];
};

/* Does the path in `head`, seen from directory (dev, ino), lie below a spool's
 * mount point? ino 0 stands for an absolute path. Compared word by word. */
__noinline bool head_on_spool(const struct path_head *head, u64 ino, u32 dev)
{
	const u64 *word = (const u64 *)head;

	if (!head)
		return false;
	for (u32 i = 0; i < MAX_WAYS; i++) {
		const volatile struct way_in *way = &ways_in[i];
		u64 differs = 0;
		char next;

		if (i >= n_ways)
			break;
		if (way->ino != ino || (way->dev && way->dev != dev))
			continue;
		if ((word[0] & way->mask[0]) != way->word[0])
			continue;
		for (u32 w = 0; w < MOUNT_WORDS; w++)
			differs |= (word[w] & way->mask[w]) ^ way->word[w];
		next = head->text[way->length & (PATH_HEAD - 1)];
		if (!differs && (next == '/' || next == 0))
			return true;
	}
	return false;
}

/* Not 0 if "//" or "/." is among these eight bytes; `next` is the same one byte further. */
static __always_inline u64 untidy_word(u64 word, u64 next)
{
	const u64 ones = 0x0101010101010101, tops = 0x8080808080808080;
	u64 slash = word ^ 0x2f2f2f2f2f2f2f2f;
	u64 again = next ^ 0x2f2f2f2f2f2f2f2f;
	u64 dot = next ^ 0x2e2e2e2e2e2e2e2e;

	return ((slash - ones) & ~slash & tops) &
	       (((again - ones) & ~again) | ((dot - ones) & ~dot));
}

/* "//" or "/." in the part that is compared? */
__noinline bool untidy(const struct path_head *head, u32 bytes)
{
	const u64 *word = (const u64 *)head;
	u64 found;

	if (!head)
		return false;
	found = head->text[0] == '.';
	for (u32 i = 0; i < PATH_HEAD / 8 - 1 && i * 8 < bytes; i++) {
		found |= untidy_word(word[i], word[i] >> 8 | word[i + 1] << 56);
	}
	return found;
}

struct tidying {
	struct task_state *st;
	u32 used;
	char before;
};

static long tidy_byte(u32 i, struct tidying *t)
{
	char c = t->st->head[i & (PATH_HEAD - 1)];
	char next = t->st->head[(i + 1) & (PATH_HEAD - 1)];

	if (!c)
		return 1;
	if (t->before == '/' && (c == '/' || (c == '.' && (next == '/' || !next))))
		return 0;
	t->st->tidy[t->used & (PATH_HEAD - 1)] = c;
	t->used++;
	t->before = c;
	return 0;
}

/* The path as the mount path is written; names with ".." stay as they are. */
static __always_inline const struct path_head *tidied(struct task_state *st)
{
	struct tidying t = {.st = st, .before = st->head[0] == '/' ? 0 : '/'};

	if (!untidy((const struct path_head *)st->head, st->head_bytes))
		return (const struct path_head *)st->head;
	bpf_loop(PATH_HEAD - 1, tidy_byte, &t, 0);
	st->tidy[t.used & (PATH_HEAD - 1)] = 0;
	return (const struct path_head *)st->tidy;
}

/* Absolute names of a process that sees other mounts than we do prove nothing. */
static __always_inline bool sees_our_mounts(struct task_struct *t)
{
	return t->fs->root.dentry->d_inode->i_ino == root_ino &&
	       t->nsproxy->mnt_ns->ns.inum == mount_ns;
}

/* No absolute name of a spool begins with these eight bytes. */
__noinline bool no_spool_begins_with(u64 first)
{
	if (untidy_word(first, first >> 8))
		return false;
	for (u32 i = 0; i < MAX_WAYS && i < n_ways; i++)
		if (!ways_in[i].ino && (first & ways_in[i].mask[0]) == ways_in[i].word[0])
			return false;
	return true;
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
	if (*(const char *)&first == '/')
		return sees_our_mounts(t) && !root_on_spool(t) && no_spool_begins_with(first);
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
	count(COUNT_UNJUDGED);
	return NO;
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
