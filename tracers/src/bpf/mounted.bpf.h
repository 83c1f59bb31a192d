/* SPDX-License-Identifier: GPL-2.0-only OR BSD-3-Clause */
/*
 * Tests if an absolute name leads to a mount of a spool below the root directory of a task. It is
 * used for processes with another root or other mounts until user space has looked at these
 * (views.bpf.h): most sandboxes and chroots have no spool, and end before that.
 */
#ifndef SPOOLSCOPE_MOUNTED_BPF_H
#define SPOOLSCOPE_MOUNTED_BPF_H

#include "kernel_mounts.h"
#include "names.bpf.h"

/* Bound on the mounts of a spool in all namespaces and the directories on their way up. */
#define MOST_STEPS 4096

/* struct super_block of each spool, noted before calls are recorded; 0 if not known. */
u64 spool_blocks[MAX_SPOOLS];

static __always_inline bool is_listed(void)
{
	return !bpf_core_field_exists(((struct mount *)0)->mnt_next_for_sb);
}

static __always_inline u64 first_mount(u64 block)
{
	if (is_listed())
		return (u64)BPF_CORE_READ((struct super_block___listed *)block, s_mounts.next);
	return (u64)BPF_CORE_READ((struct super_block___mounted *)block, s_mounts);
}

static __always_inline u64 end_of_mounts(u64 block)
{
	if (is_listed())
		return block + bpf_core_field_offset(struct super_block___listed, s_mounts);
	return 0;
}

static __always_inline struct mount *take_mount(struct climb *c)
{
	u64 at = c->next;

	if (!at || at == c->end)
		return NULL;
	if (!is_listed()) {
		c->next = (u64)BPF_CORE_READ((struct mount *)at, mnt_next_for_sb);
		return (struct mount *)at;
	}
	c->next = (u64)BPF_CORE_READ((struct list_head *)at, next);
	return (struct mount *)(at - bpf_core_field_offset(struct mount___listed, mnt_instance));
}

static __always_inline void note_last(struct climb *c, struct dentry *dentry)
{
	c->name[0] = c->name[1] = 0;
	bpf_probe_read_kernel_str(c->name, sizeof(c->name), BPF_CORE_READ(dentry, d_name.name));
}

/* Note the first component of an absolute path, as note_last() does; nothing if it is "." or "..",
 * or empty. */
static __always_inline void want_first(struct climb *c, const char *text)
{
	char *name = (char *)c->wanted;

	c->wanted[0] = c->wanted[1] = 0;
	if (text[1] == '.')
		return;
	for (u32 i = 0; i < sizeof(c->wanted) - 1; i++) {
		if (!text[i + 1] || text[i + 1] == '/')
			break;
		name[i] = text[i + 1];
	}
}

/* Arguments of a loop, which lie on the stack. */
struct climbing {
	struct climb *climb;
};

static long climb_on(u32 i, struct climbing *climbing)
{
	struct climb *c = climbing->climb;
	struct mount *mount = (struct mount *)c->mount;
	struct dentry *dentry = (struct dentry *)c->dentry;
	u64 up;

	if (!dentry) {
		mount = take_mount(c);
		if (!mount)
			return 1;
		if ((u64)BPF_CORE_READ(mount, mnt_ns) != c->ns)
			return 0;
		c->mount = (u64)mount;
		c->dentry = (u64)BPF_CORE_READ(mount, mnt.mnt_root);
		return 0;
	}
	if (c->mount == c->root_mount && c->dentry == c->root_dentry) {
		c->found =
			!c->wanted[0] || (c->name[0] == c->wanted[0] && c->name[1] == c->wanted[1]);
		c->dentry = 0;
		return c->found;
	}
	if (dentry != BPF_CORE_READ(mount, mnt.mnt_root)) {
		note_last(c, dentry);
		up = (u64)BPF_CORE_READ(dentry, d_parent);
		c->dentry = up == c->dentry ? 0 : up;
		return 0;
	}
	up = (u64)BPF_CORE_READ(mount, mnt_parent);
	c->dentry = up == c->mount ? 0 : (u64)BPF_CORE_READ(mount, mnt_mountpoint);
	c->mount = up;
	return 0;
}

/* Return true if the name may lead to a spool without symbolic links, or if that is not known. */
__noinline bool spool_below_root(bool tidy)
{
	struct task_struct *t = bpf_get_current_task_btf();
	struct task_state *st = state_of(t);
	struct climbing climbing;
	struct climb *c;
	u64 block;

	/* A spool that is a directory is not a mount. */
	if (!st || n_parts)
		return true;
	climbing.climb = c = &st->climb;
	c->ns = (u64)untrusted(t)->nsproxy->mnt_ns;
	c->root_mount = (u64)untrusted(t)->fs->root.mnt - bpf_core_field_offset(struct mount, mnt);
	c->root_dentry = (u64)untrusted(t)->fs->root.dentry;
	c->found = false;
	want_first(c, tidy ? st->tidy.text : st->name.text);
	for (u32 i = 0; i < MAX_SPOOLS && i < n_spools; i++) {
		block = spool_blocks[i];
		if (!block || BPF_CORE_READ((struct super_block *)block, s_dev) != spools[i].dev)
			return true;
		c->next = first_mount(block);
		c->end = end_of_mounts(block);
		c->dentry = 0;
		if (bpf_loop(MOST_STEPS, climb_on, &climbing, 0) >= MOST_STEPS || c->found)
			return true;
	}
	return false;
}

#endif
