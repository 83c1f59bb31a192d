/* SPDX-License-Identifier: GPL-2.0-only OR BSD-3-Clause */
/*
 * The user code that made a call, for calls for which it is requested: the caller's stack in user
 * space, by frame pointers. It is the same at return as at entry, and its pages are present.
 *
 * A wrapper such as fsync() of the C library keeps no frame, so that frame pointers lead to the
 * caller of its caller: the missing return address lies close to the end of the stack.
 */
#ifndef SPOOLSCOPE_USER_STACKS_BPF_H
#define SPOOLSCOPE_USER_STACKS_BPF_H

#include "state.bpf.h"

#define NEAR_WORDS 16
/* A ring record, from which user_stacks.rs makes a struct spsc_user_call. */
struct ring_user_call {
	struct ring_head head;
	struct spsc_user_call rec;
	u64 near[NEAR_WORDS]; /* words on the stack, from its end on */
	u32 n_frames, pad;
	u64 stack[SPSC_STACK_FRAMES];
};

static __always_inline void emit_user_stack(void *ctx, struct pt_regs *regs, struct task_struct *t,
					    const struct task_state *st, u64 now)
{
	struct ring_user_call *e = reserve(SPSC_KIND_USER_CALL, sizeof(*e));
	long n;

	if (!e)
		return;
	e->rec.call_ns = st->start_ns;
	e->rec.end_ns = now;
	e->rec.pid = t->tgid;
	e->rec.tid = t->pid;
	e->rec.user_stack = e->rec.pad = 0;
	if (bpf_probe_read_user(e->near, sizeof(e->near), (void *)PT_REGS_SP(regs)))
		e->near[0] = 0;
	n = bpf_get_stack(ctx, e->stack, sizeof(e->stack), BPF_F_USER_STACK);
	e->n_frames = n > 0 ? (u64)n >> 3 : 0;
	e->pad = 0;
	bpf_ringbuf_submit(e, BPF_RB_NO_WAKEUP);
}

#endif
