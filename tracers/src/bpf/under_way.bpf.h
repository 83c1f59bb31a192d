/* SPDX-License-Identifier: GPL-2.0-only OR BSD-3-Clause */
/*
 * Calls that have not returned, read through an iterator: a flight recorder may be frozen by them.
 *
 * Optional: without it only calls that have returned freeze it.
 */
#ifndef SPOOLSCOPE_UNDER_WAY_BPF_H
#define SPOOLSCOPE_UNDER_WAY_BPF_H

#include "state.bpf.h"

struct seq_file;

/* under_way.rs repeats this struct. The frames of the stack on which the call sleeps follow it. */
struct call_under_way {
	u64 start_ns;
	u64 out_ns; /* begin of its sleep, 0: it does not sleep */
	u64 ino; /* its object, or the directory in which it looks up a name; 0 unknown */
	u32 dev;
	u32 pid, tid;
	u32 n_frames;
	u32 call; /* id in calls.txt */
	u32 in_directory; /* ino is a directory in which a name is looked up */
	char comm[SPSC_COMM];
};

/* A call is read while it goes on: if it returns meanwhile, parts of the next one may show. */
SEC("iter/task")
int dump_calls(struct bpf_iter__task *ctx)
{
	struct task_struct *t = ctx->task;
	struct call_under_way now = {};
	struct task_state *st;

	if (!t)
		return 0;
	st = bpf_task_storage_get(&tasks, t, 0, 0);
	if (!st || !st->call || !st->certain || t->exit_state)
		return 0;
	now.start_ns = st->start_ns;
	now.ino = st->ino;
	now.dev = st->dev;
	now.pid = t->tgid;
	now.tid = t->pid;
	now.call = st->call - 1;
	if (st->out_state == SPSC_SWITCH_BLOCKED && !st->wake_ns) {
		now.out_ns = st->out_ns;
		now.n_frames = st->n_frames;
		if (st->dir_ino && now.out_ns) {
			now.ino = st->dir_ino;
			now.dev = st->dir_dev;
			now.in_directory = 1;
		}
	}
	BPF_CORE_READ_STR_INTO(&now.comm, t, comm);
	bpf_seq_write(ctx->meta->seq, &now, sizeof(now));
	bpf_seq_write(ctx->meta->seq, st->stack, sizeof(st->stack));
	return 0;
}

#endif
