/* SPDX-License-Identifier: GPL-2.0-only OR BSD-3-Clause */
/* Targets named by their program. Programs are compared by inode, as names and comms repeat
 * (Dovecot and Postfix both have an lmtp). Checked once per task and program. */
#ifndef SPOOLSCOPE_EXE_BPF_H
#define SPOOLSCOPE_EXE_BPF_H

#include "state.bpf.h"

#define MAX_EXES 8

struct exe {
	u64 ino;
	u32 dev; /* super_block.s_dev */
	u32 pad;
};

const volatile u32 n_exes;
const volatile struct exe exes[MAX_EXES];

static __always_inline bool runs_named_exe(struct task_struct *t)
{
	struct inode *inode;
	u64 ino;
	u32 dev;

	if (!n_exes)
		return false;
	inode = BPF_CORE_READ(t, mm, exe_file, f_inode); /* kernel threads have no mm: NULL */
	ino = BPF_CORE_READ(inode, i_ino);
	dev = BPF_CORE_READ(inode, i_sb, s_dev);
	for (u32 i = 0; i < MAX_EXES && i < n_exes; i++)
		if (exes[i].ino == ino && exes[i].dev == dev)
			return true;
	return false;
}

#endif
