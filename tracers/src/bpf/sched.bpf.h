/* SPDX-License-Identifier: GPL-2.0-only OR BSD-3-Clause */
/*
 * The exact split of a call's time: only entry, switch-out, waking, switch-in and exit move time
 * from one part to the next, so the parts sum to the whole. The kernel stack at switch-out, taken
 * only when a traced call really sleeps, shows what was waited for.
 *
 * Tier T1: without these programs a call is one number.
 */
#ifndef SPOOLSCOPE_SCHED_BPF_H
#define SPOOLSCOPE_SCHED_BPF_H

#include "absence.bpf.h"
#include "journal.bpf.h"
#include "lookup.bpf.h"

static __always_inline void switched_out(void *ctx, struct task_struct *t, struct task_state *st,
					 bool runnable, u64 now)
{
	long n;

	if (st->out_ns)
		switched_in(t, st, now);
	st->oncpu_ns += now - st->last_ns;
	st->stolen_ns += stolen_lately(t, st, now);
	st->last_ns = now;
	st->out_ns = now;
	st->out_cpu = bpf_get_smp_processor_id();
	st->wake_ns = 0;
	st->waker = SPSC_WAKER_NONE;
	st->held_ns = 0;
	st->n_frames = 0;
	st->stack_hash = 0;
	if (runnable) {
		st->out_state = SPSC_SWITCH_PREEMPTED;
		if (!no_records)
			begin_waiting(st);
		return;
	}
	st->out_state = SPSC_SWITCH_BLOCKED;
	note_lookup(t, st);
	/* A loop device sleeps five times a mail: the stacks would cost 10 of 465 us. */
	if (st->watched == WATCH_LOOP || (shed >= SPSC_SHED_STACKS && !st->watched))
		return;
	if (st->watched == WATCH_JBD2 && !st->committing) /* it waits for work */
		return;
	n = bpf_get_stack(ctx, st->stack, sizeof(st->stack), SKIP_BPF_FRAMES);
	st->n_frames = n > 0 ? (u64)n >> 3 : 0;
	if (!sum_calls || !st->call)
		return;
	hash_stack(st);
	if (cause_of(st) & CAUSE_COMMIT)
		waits_for_commit(st, now);
}

/* prev_state became an argument in 9c2136be0878 "sched/tracing: Append prev_state
 * to tp args instead", v5.18. */
SEC("tp_btf/sched_switch")
int BPF_PROG(on_switch, bool preempt, struct task_struct *prev, struct task_struct *next,
	     unsigned int prev_state)
{
	struct task_state *st;

	st = state_of(prev);
	if (st && (st->call || (st->watched && !no_records)))
		switched_out(ctx, prev, st, preempt || prev_state == 0, bpf_ktime_get_ns());
	if (!no_records && waiting)
		end_turn(prev, next, bpf_ktime_get_ns());
	st = state_of(next);
	if (st && st->out_ns) {
		if (!no_records)
			find_holder(st, next->pid);
		switched_in(next, st, bpf_ktime_get_ns());
	}
	return 0;
}

static __always_inline void woken(struct task_struct *me, struct task_state *st, u8 waker)
{
	st->wake_ns = bpf_ktime_get_ns();
	if (no_records)
		return;
	begin_waiting(st);
	st->waker = waker;
	st->waker_pid = me->tgid;
	st->waker_tid = me->pid;
	st->waker_call_ns = waker == SPSC_WAKER_TASK ? call_of(me) : SPSC_NO_CALL;
	bpf_get_current_comm(st->waker_comm, sizeof(st->waker_comm));
}

SEC("tp_btf/sched_waking")
int BPF_PROG(on_waking, struct task_struct *t)
{
	struct task_state *st = state_of(t);
	struct task_struct *me;
	u8 waker;

	if (!st || !(st->out_ns || st->watched))
		return 0;
	me = bpf_get_current_task_btf();
	waker = waker_kind(me);
	if (st->out_ns && !st->wake_ns && st->out_state == SPSC_SWITCH_BLOCKED)
		woken(me, st, waker);
	/* also if it fell asleep before the recording began: out_ns is 0 then */
	if (st->watched == WATCH_JBD2 && !st->committing)
		jbd2_woken(ctx, t, waker);
	return 0;
}

static __always_inline void irq_depth_add(s64 n)
{
	u32 zero = 0;
	s64 *depth = bpf_map_lookup_elem(&irq_depth, &zero);

	if (depth && *depth + n >= 0)
		*depth += n;
}

SEC("tp_btf/irq_handler_entry")
int BPF_PROG(on_irq_in)
{
	irq_depth_add(1);
	return 0;
}

SEC("tp_btf/irq_handler_exit")
int BPF_PROG(on_irq_out)
{
	irq_depth_add(-1);
	return 0;
}

SEC("tp_btf/softirq_entry")
int BPF_PROG(on_softirq_in)
{
	irq_depth_add(1);
	return 0;
}

SEC("tp_btf/softirq_exit")
int BPF_PROG(on_softirq_out)
{
	irq_depth_add(-1);
	return 0;
}

#endif
