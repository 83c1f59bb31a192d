/* SPDX-License-Identifier: GPL-2.0-only OR BSD-3-Clause */
/*
 * The work of traced calls while they run: on every CPU, some 200 times a second, the kernel stack
 * of a task that is in one. A timer interrupt that comes while interrupts are off is served when
 * they are on again: time spent with them off shows in the code that follows.
 *
 * Optional: without it the time on the CPU is one number.
 */
#ifndef SPOOLSCOPE_SAMPLES_BPF_H
#define SPOOLSCOPE_SAMPLES_BPF_H

#include "state.bpf.h"

struct ring_sample {
	struct ring_head head;
	struct spsc_sample rec;
	u32 n_frames, pad;
	u64 stack[SPSC_STACK_FRAMES];
};

SEC("perf_event")
int on_sample(void *ctx)
{
	struct task_struct *t = bpf_get_current_task_btf();
	struct task_state *st = state_of(t);
	struct ring_sample *e;
	long n;

	if (!st || !st->call || shed >= SPSC_SHED_STACKS)
		return 0;
	e = reserve(SPSC_KIND_SAMPLE, sizeof(*e));
	if (!e)
		return 0;
	e->rec.ts_ns = bpf_ktime_get_ns();
	e->rec.call_ns = st->start_ns;
	e->rec.pid = t->tgid;
	e->rec.tid = t->pid;
	e->rec.stack = 0;
	e->rec.cpu = bpf_get_smp_processor_id();
	n = bpf_get_stack(ctx, e->stack, sizeof(e->stack), 0);
	e->n_frames = n > 0 ? (u64)n >> 3 : 0;
	e->pad = 0;
	bpf_ringbuf_submit(e, BPF_RB_NO_WAKEUP);
	return 0;
}

#endif
