/* SPDX-License-Identifier: GPL-2.0-only OR BSD-3-Clause */
/* The kernel types of mounts and their namespaces; as in kernel.h only the members that are read. */
#ifndef SPOOLSCOPE_KERNEL_MOUNTS_H
#define SPOOLSCOPE_KERNEL_MOUNTS_H

#include "kernel.h"

#pragma clang attribute push(__attribute__((preserve_access_index)), apply_to = record)

struct vfsmount {
	int mnt_flags;
};

struct mount {
	struct vfsmount mnt;
	int mnt_id;
};

struct ns_common {
	unsigned int inum;
};

struct mnt_namespace {
	struct ns_common ns;
	u64 event;
};

struct nsproxy {
	struct mnt_namespace *mnt_ns;
};

#pragma clang attribute pop

#endif
