/* SPDX-License-Identifier: GPL-2.0-only OR BSD-3-Clause */
/*
 * Steal: time in which a task was on its CPU, but the host ran another guest or process.
 *
 * The scheduler subtracts it from its clock of a run queue, at each switch and tick. So we learn of
 * it up to a tick late, and a call that begins within this tick may be charged with time that was
 * stolen before. It is never more than the call's time on the CPU.
 */
#ifndef SPOOLSCOPE_STEAL_BPF_H
#define SPOOLSCOPE_STEAL_BPF_H

#include "state.bpf.h"

#pragma clang attribute push(__attribute__((preserve_access_index)), apply_to = record)

struct rq {
	u64 prev_steal_time_rq;
};

struct cfs_rq {
	struct rq *rq;
};

struct sched_entity {
	struct cfs_rq *cfs_rq;
};

struct task_struct___scheduled {
	struct sched_entity se;
};

#pragma clang attribute pop

/* Kernels without CONFIG_PARAVIRT_TIME_ACCOUNTING, or without groups of tasks, do not report it. */
static __always_inline bool steal_is_counted(void)
{
	return bpf_core_field_exists(struct rq, prev_steal_time_rq) &&
	       bpf_core_field_exists(struct cfs_rq, rq);
}

/* Return the time stolen since boot from the CPU that a task is on. */
static __always_inline u64 steal_clock(struct task_struct *t)
{
	struct cfs_rq *cfs_rq;
	struct rq *rq;

	if (!steal_is_counted())
		return 0;
	cfs_rq = untrusted((struct task_struct___scheduled *)t)->se.cfs_rq;
	rq = cfs_rq ? cfs_rq->rq : NULL;
	return rq ? rq->prev_steal_time_rq : 0;
}

/* Note that a task is on this CPU from now on. */
static __always_inline void mark_steal(struct task_struct *t, struct task_state *st)
{
	st->steal_mark = steal_clock(t);
	st->steal_cpu = bpf_get_smp_processor_id();
}

/* Return the stolen part of the time on the CPU that ends now. Each CPU has a clock of its own:
 * after an unreported switch (absence.bpf.h) the task may be on another one, and nothing is
 * known. */
static __always_inline u64 stolen_lately(struct task_struct *t, struct task_state *st, u64 now)
{
	u64 most = now - st->last_ns;
	u64 stolen;

	if (st->steal_cpu != bpf_get_smp_processor_id())
		return 0;
	stolen = steal_clock(t) - st->steal_mark;
	return stolen < most ? stolen : most;
}

#endif
