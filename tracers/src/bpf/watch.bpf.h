/* SPDX-License-Identifier: GPL-2.0-only OR BSD-3-Clause */
/* Kernel threads that work for a spool: their absences from the CPU are recorded, too. */
#ifndef SPOOLSCOPE_WATCH_BPF_H
#define SPOOLSCOPE_WATCH_BPF_H

#include "life.bpf.h"

#define MAX_WATCH 32

/* A thread whose name begins with `name` belongs to a spool. */
struct watch_name {
	char name[SPSC_COMM];
	u32 length; /* may include the NUL */
	u32 kind; /* enum watch */
};

const volatile struct watch_name watch_names[MAX_WATCH];
const volatile u32 n_watch;

static __always_inline u32 watch_kind(const char *comm)
{
	for (u32 i = 0; i < MAX_WATCH && i < n_watch; i++) {
		bool same = true;

		for (u32 c = 0; c < SPSC_COMM; c++)
			if (c < watch_names[i].length && comm[c] != watch_names[i].name[c])
				same = false;
		if (same)
			return watch_names[i].kind;
	}
	return WATCH_NOT;
}

/* Watch a thread from now on, and record that once. Return NULL when memory is short. */
static __always_inline struct task_state *watch_thread(struct task_struct *t, u8 kind)
{
	struct task_state *st;
	struct ring_task *e;

	st = bpf_task_storage_get(&tasks, t, 0, BPF_LOCAL_STORAGE_GET_F_CREATE);
	if (!st) {
		count(COUNT_NO_STATE);
		return NULL;
	}
	st->watched = kind;
	st->decided = 1;
	st->out_ns = 0;
	end_waiting(st);
	st->last_ns = bpf_ktime_get_ns();
	if (st->seen)
		return st;
	e = task_event(t, SPSC_TASK_WATCHED);
	if (!e)
		return st;
	st->seen = 1;
	e->rec.flags = SPSC_TASK_KTHREAD;
	bpf_ringbuf_submit(e, BPF_RB_NO_WAKEUP);
	return st;
}

#endif
