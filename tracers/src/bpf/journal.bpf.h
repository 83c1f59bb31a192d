/* SPDX-License-Identifier: GPL-2.0-only OR BSD-3-Clause */
/*
 * Events of journals, with their times and the calls that caused them; here the commits of jbd2.
 * Times are our own: the kernel's jbd2_run_stats are jiffies (4 ms at HZ=250).
 *
 * Tier T2: without these a wait for a commit cannot be broken down. Each program is optional; a
 * kernel without the filesystem simply lacks the tracepoint.
 *
 * The verifier assumes that every pointer of a tracepoint in a module may be NULL (838a10bd2ebf
 * "bpf: Augment raw_tp arguments with PTR_MAYBE_NULL", v6.13 and 6.12.y): so each program checks
 * first, though none of them ever is.
 */
#ifndef SPOOLSCOPE_JOURNAL_BPF_H
#define SPOOLSCOPE_JOURNAL_BPF_H

#include "commit_sums.bpf.h"
#include "watch.bpf.h"

static __always_inline void fill_journal(struct spsc_journal *r, u16 event, u32 dev, u64 id)
{
	struct task_struct *t = bpf_get_current_task_btf();

	r->ts_ns = bpf_ktime_get_ns();
	r->id = id;
	r->a = r->b = 0;
	r->call_ns = call_of(t);
	r->dev = dev;
	r->pid = t->tgid;
	r->tid = t->pid;
	r->stack = 0;
	r->event = event;
	r->cpu = bpf_get_smp_processor_id();
	r->pad = 0;
	bpf_get_current_comm(r->comm, sizeof(r->comm));
}

static __always_inline void journal_event(u16 event, u32 dev, u64 id, u64 a, u64 b)
{
	struct ring_journal *e;

	if (dev && !is_spool(dev))
		return;
	e = reserve(SPSC_KIND_JOURNAL, sizeof(*e));
	if (!e)
		return;
	fill_journal(&e->rec, event, dev, id);
	e->rec.a = a;
	e->rec.b = b;
	e->n_frames = 0;
	e->pad = 0;
	bpf_ringbuf_submit(e, BPF_RB_NO_WAKEUP);
}

/* Record the caller as a stack of one frame: it is named and stored like other stacks. */
static __always_inline void journal_event_of(u64 caller, u16 event, u32 dev, u64 id, u64 a)
{
	struct ring_journal *e;

	if (!is_spool(dev))
		return;
	e = reserve(SPSC_KIND_JOURNAL, sizeof(*e));
	if (!e)
		return;
	fill_journal(&e->rec, event, dev, id);
	e->rec.a = a;
	e->stack[0] = caller;
	e->n_frames = 1;
	e->pad = 0;
	bpf_ringbuf_submit(e, BPF_RB_NO_WAKEUP);
}

static __always_inline u32 journal_dev(journal_t *j)
{
	return BPF_CORE_READ(j, j_fs_dev, bd_dev);
}

static __always_inline void jbd2_event(u16 event, journal_t *j, transaction_t *t)
{
	journal_event(event, journal_dev(j), BPF_CORE_READ(t, t_tid), 0, 0);
}

static __always_inline void set_committing(journal_t *j, u8 on)
{
	struct task_struct *t = bpf_get_current_task_btf();
	struct task_state *st = state_of(t);

	/* Its name did not show it: the journal is on a device of its own. */
	if ((!st || !st->watched) && is_spool(journal_dev(j)))
		st = watch_thread(t, WATCH_JBD2);
	if (st)
		st->committing = on;
}

/* index: spool; value: transaction that waits for its handles to end, 0 if none. */
u64 locking[MAX_SPOOLS];

static __always_inline void set_locking(journal_t *j, u64 txn_id)
{
	s32 i = spool_index(journal_dev(j));

	if (i >= 0)
		locking[i & (MAX_SPOOLS - 1)] = txn_id;
}

SEC("tp_btf/jbd2_start_commit")
int BPF_PROG(on_jbd2_start, journal_t *j, transaction_t *t)
{
	if (!j || !t)
		return 0;
	set_committing(j, 1);
	if (sum_calls)
		sum_jbd2_start(journal_dev(j));
	jbd2_event(SPSC_JBD2_START, j, t);
	return 0;
}

SEC("tp_btf/jbd2_commit_locking")
int BPF_PROG(on_jbd2_locking, journal_t *j, transaction_t *t)
{
	if (!j || !t)
		return 0;
	jbd2_event(SPSC_JBD2_LOCKING, j, t);
	set_locking(j, BPF_CORE_READ(t, t_tid));
	return 0;
}

SEC("tp_btf/jbd2_commit_flushing")
int BPF_PROG(on_jbd2_flushing, journal_t *j, transaction_t *t)
{
	if (!j || !t)
		return 0;
	jbd2_event(SPSC_JBD2_FLUSHING, j, t);
	set_locking(j, 0);
	return 0;
}

SEC("tp_btf/jbd2_commit_logging")
int BPF_PROG(on_jbd2_logging, journal_t *j, transaction_t *t)
{
	if (!j || !t)
		return 0;
	jbd2_event(SPSC_JBD2_LOGGING, j, t);
	return 0;
}

SEC("tp_btf/jbd2_end_commit")
int BPF_PROG(on_jbd2_end, journal_t *j, transaction_t *t)
{
	if (!j || !t)
		return 0;
	jbd2_event(SPSC_JBD2_END, j, t);
	set_committing(j, 0);
	if (sum_calls)
		sum_jbd2_end(journal_dev(j));
	return 0;
}

SEC("tp_btf/jbd2_run_stats")
int BPF_PROG(on_jbd2_stats, dev_t dev, unsigned long txn_id, struct transaction_run_stats_s *s)
{
	if (!s)
		return 0;
	journal_event(SPSC_JBD2_RUN_STATS, dev, (u32)txn_id, BPF_CORE_READ(s, rs_blocks_logged),
		      BPF_CORE_READ(s, rs_handle_count));
	return 0;
}

SEC("tp_btf/jbd2_checkpoint")
int BPF_PROG(on_jbd2_checkpoint, journal_t *j, int result)
{
	if (!j)
		return 0;
	journal_event(SPSC_JBD2_CHECKPOINT, journal_dev(j), 0, result, 0);
	return 0;
}

/* A task that wakes an idle jbd2 thread asks for the commit that follows. Called from the one
 * sched_waking program: a second one would double the cost of every waking. */
static __always_inline void jbd2_woken(void *ctx, struct task_struct *t, u8 waker)
{
	struct ring_journal *e;
	long n;

	if (sum_calls)
		sum_wake(t->pid, waker);
	e = reserve(SPSC_KIND_JOURNAL, sizeof(*e));
	if (!e)
		return;
	fill_journal(&e->rec, SPSC_JBD2_WAKE, 0, 0);
	e->rec.a = t->pid;
	e->rec.b = waker;
	e->pad = 0;
	n = bpf_get_stack(ctx, e->stack, sizeof(e->stack), SKIP_BPF_FRAMES);
	e->n_frames = n > 0 ? (u64)n >> 3 : 0;
	bpf_ringbuf_submit(e, BPF_RB_NO_WAKEUP);
}

#endif
