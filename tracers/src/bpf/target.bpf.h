/* SPDX-License-Identifier: GPL-2.0-only OR BSD-3-Clause */
/* Decides if a task is recorded: once per task, and children inherit the decision. */
#ifndef SPOOLSCOPE_TARGET_BPF_H
#define SPOOLSCOPE_TARGET_BPF_H

#include "exe.bpf.h"

static __always_inline bool in_named_cgroup(struct task_struct *t)
{
	if (!n_cgroups)
		return false;
	for (int level = 0; level < 8; level++) {
		u64 id = bpf_get_current_ancestor_cgroup_id(level);

		if (!id)
			break;
		for (u32 i = 0; i < 8 && i < n_cgroups; i++)
			if (cgroup_ids[i] == id)
				return true;
	}
	return false;
}

static __always_inline bool has_named_comm(struct task_struct *t)
{
	char comm[SPSC_COMM];

	if (!n_comms)
		return false;
	BPF_CORE_READ_STR_INTO(&comm, t, comm);
	for (u32 i = 0; i < 8 && i < n_comms; i++) {
		bool same = true;

		for (int c = 0; c < SPSC_COMM; c++) {
			if (comm[c] != comms[i][c])
				same = false;
			if (!comm[c])
				break;
		}
		if (same)
			return true;
	}
	return false;
}

static __always_inline void decide(struct task_struct *t, struct task_state *st)
{
	u32 tgid = t->tgid;

	if (tgid == self_pid)
		st->target = 0;
	else if (!filter_tasks || st->target)
		st->target = 1;
	else
		st->target = bpf_map_lookup_elem(&target_pids, &tgid) || in_named_cgroup(t) ||
			     has_named_comm(t) || runs_named_exe(t);
	/* While attaching, the processes below --pid are still being listed. */
	st->decided = armed || st->target;
}

static __always_inline struct task_state *target_state(struct task_struct *t)
{
	struct task_state *st;

	st = bpf_task_storage_get(&tasks, t, 0, BPF_LOCAL_STORAGE_GET_F_CREATE);
	if (!st) {
		count(COUNT_NO_STATE);
		return NULL;
	}
	if (!st->decided)
		decide(t, st);
	return st->target ? st : NULL;
}

/* Return true if any thread of the process reached a spool: a process is recorded from that call
 * on, and the leader's state passes it on to all its threads. Children begin anew, as most have
 * nothing to do with a spool. */
static __always_inline bool process_touched(struct task_struct *t, const struct task_state *st)
{
	struct task_state *leader;

	if (st->touched)
		return true;
	leader = state_of(t->group_leader);
	return leader && leader->touched;
}

__noinline int touch_leader(void)
{
	struct task_struct *t = bpf_get_current_task_btf();
	struct task_state *leader;

	leader = bpf_task_storage_get(&tasks, t->group_leader, 0, BPF_LOCAL_STORAGE_GET_F_CREATE);
	if (leader)
		leader->touched = 1;
	return 0;
}

/* Note that the current task reached a spool. */
static __always_inline void touch(struct task_state *st)
{
	if (st->touched)
		return;
	st->touched = 1;
	touch_leader();
}

#endif
