/* SPDX-License-Identifier: GPL-2.0-only OR BSD-3-Clause */
/*
 * The end of an absence from the CPU: its split into sleep and run queue.
 *
 * About 1 of 20,000 switches is not reported (seen on 6.18 in a virtual machine; ftrace shows the
 * same gap). A task that returns from its call, or is switched out again, was switched in before:
 * then the absence ends there, its time on the CPU since its waking counts as run queue, and the
 * call is marked SWITCH_UNSEEN.
 */
#ifndef SPOOLSCOPE_ABSENCE_BPF_H
#define SPOOLSCOPE_ABSENCE_BPF_H

#include "call_parts.bpf.h"
#include "steal.bpf.h"
#include "turns.bpf.h"

static __always_inline void account(struct task_state *st, u64 now)
{
	u64 away = now - st->out_ns;

	if (st->out_state == SPSC_SWITCH_PREEMPTED) {
		st->preempted_ns += away;
	} else if (st->wake_ns >= st->out_ns) {
		st->blocked_ns += st->wake_ns - st->out_ns;
		st->runq_ns += now - st->wake_ns;
	} else { /* its waking was missed: see switched_in() */
		st->blocked_ns += away;
	}
	st->last_ns = now;
}

static __always_inline void fill_switch(struct spsc_switch *r, struct task_struct *t,
					struct task_state *st, u64 now)
{
	r->call_ns = st->call ? st->start_ns : SPSC_NO_CALL;
	r->out_ns = st->out_ns;
	r->wake_ns = st->wake_ns;
	r->in_ns = now;
	r->waker_call_ns = st->waker_call_ns;
	r->dir_ino = st->dir_ino;
	r->dir_dev = st->dir_dev;
	r->pid = t->tgid;
	r->tid = t->pid;
	r->stack = 0;
	r->waker_pid = st->waker_pid;
	r->waker_tid = st->waker_tid;
	r->cpu = st->out_cpu;
	r->state = st->out_state;
	r->waker = st->waker;
	r->name_at = st->name_at;
	r->name_bytes = st->name_bytes;
	r->name_of = st->name_of;
	__builtin_memcpy(r->waker_comm, st->waker_comm, sizeof(r->waker_comm));
	r->held_ns = st->held_ns;
	if (!st->held_ns) { /* the state still has values of an earlier wait */
		r->held_from_ns = 0;
		r->held_pid = r->held_tid = 0;
		__builtin_memset(r->held_comm, 0, sizeof(r->held_comm));
		return;
	}
	r->held_from_ns = st->held_from_ns;
	r->held_pid = st->held_pid;
	r->held_tid = st->held_tid;
	__builtin_memcpy(r->held_comm, st->held_comm, sizeof(r->held_comm));
}

static __always_inline void switched_in(struct task_struct *t, struct task_state *st, u64 now)
{
	struct ring_preempted *p;
	struct ring_switch *e;

	/* A waking on another CPU can run before our switch-out on this one; then
	 * there is no wake time and the whole absence counts as blocked. */
	if (st->wake_ns < st->out_ns)
		st->wake_ns = st->out_state == SPSC_SWITCH_BLOCKED ? now : 0;
	account(st, now);
	if (sum_calls && st->call && st->out_state == SPSC_SWITCH_BLOCKED)
		slept(st, now);
	mark_steal(t, st);
	end_waiting(st);
	if (st->out_state == SPSC_SWITCH_PREEMPTED) {
		p = reserve(SPSC_KIND_SWITCH, sizeof(*p));
		if (p) {
			__builtin_memset(&p->rec, 0, sizeof(p->rec));
			st->waker_pid = st->waker_tid = 0;
			st->waker_call_ns = 0;
			st->dir_ino = st->dir_dev = 0;
			st->name_of = st->name_bytes = st->name_at = 0;
			fill_switch(&p->rec, t, st, now);
			bpf_ringbuf_submit(p, BPF_RB_NO_WAKEUP);
		}
	} else {
		e = reserve(SPSC_KIND_SWITCH, sizeof(*e));
		if (e) {
			fill_switch(&e->rec, t, st, now);
			e->n_frames = st->n_frames;
			e->pad = 0;
			__builtin_memcpy(e->stack, st->stack, sizeof(e->stack));
			bpf_ringbuf_submit(e, BPF_RB_NO_WAKEUP);
		}
	}
	st->out_ns = 0;
}

#endif
