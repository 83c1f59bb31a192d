/* SPDX-License-Identifier: GPL-2.0-only OR BSD-3-Clause */
/* The kernel types of limits on block I/O; as in kernel.h only the members that are read. */
#ifndef SPOOLSCOPE_KERNEL_LIMITS_H
#define SPOOLSCOPE_KERNEL_LIMITS_H

#include "kernel.h"

#pragma clang attribute push(__attribute__((preserve_access_index)), apply_to = record)

struct cgroup_subsys_state {
	struct cgroup *cgroup;
};

struct blkcg {
	struct cgroup_subsys_state css;
};

struct blkcg_gq {
	struct blkcg *blkcg;
};

/* blk-throttle: the I/O of a disk that limits of control groups hold back. */
struct throtl_data {
	struct request_queue *queue;
	struct work_struct dispatch_work;
};

#pragma clang attribute pop

#endif
