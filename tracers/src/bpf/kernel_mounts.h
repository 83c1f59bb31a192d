/* SPDX-License-Identifier: GPL-2.0-only OR BSD-3-Clause */
/* The kernel types of names, mounts and their namespaces; as in kernel.h only the members that
 * are read. */
#ifndef SPOOLSCOPE_KERNEL_MOUNTS_H
#define SPOOLSCOPE_KERNEL_MOUNTS_H

#include "kernel.h"

#pragma clang attribute push(__attribute__((preserve_access_index)), apply_to = record)

struct dentry {
	struct dentry *d_parent;
	struct qstr d_name;
	struct inode *d_inode;
	struct super_block *d_sb;
	union {
		struct hlist_node d_alias;
	} d_u;
};

struct ns_common {
	unsigned int inum;
};

struct mnt_namespace {
	struct ns_common ns;
	u64 event;
};

struct vfsmount {
	struct dentry *mnt_root;
	int mnt_flags;
};

struct mount {
	struct mount *mnt_parent;
	struct dentry *mnt_mountpoint;
	struct vfsmount mnt;
	struct mount *mnt_next_for_sb; /* the next mount of the same superblock */
	struct mnt_namespace *mnt_ns;
	int mnt_id;
};

struct super_block___mounted {
	struct mount *s_mounts;
};

/* Until "fs: use a different list for mounts of a superblock" (6.18) mounts were in a list. */
struct list_head {
	struct list_head *next;
};

struct mount___listed {
	struct list_head mnt_instance;
};

struct super_block___listed {
	struct list_head s_mounts;
};

struct nsproxy {
	struct mnt_namespace *mnt_ns;
};

#pragma clang attribute pop

#endif
