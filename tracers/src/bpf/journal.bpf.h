/* SPDX-License-Identifier: GPL-2.0-only OR BSD-3-Clause */
/*
 * What journals do, when, and on whose behalf. Times are our own: the kernel's
 * jbd2_run_stats are jiffies (4 ms at HZ=250).
 *
 * Tier T2: without these a wait on a commit cannot be taken apart. Each program
 * is optional; a kernel without the filesystem simply lacks the tracepoint.
 *
 * The verifier takes every pointer of a tracepoint in a module for one that may be NULL
 * (838a10bd2ebf "bpf: Augment raw_tp arguments with PTR_MAYBE_NULL", v6.13 and 6.12.y):
 * each program begins by asking, though none of them ever is.
 */
#ifndef SPOOLSCOPE_JOURNAL_BPF_H
#define SPOOLSCOPE_JOURNAL_BPF_H

#include "state.bpf.h"

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

static __always_inline u32 journal_dev(journal_t *j)
{
	return BPF_CORE_READ(j, j_dev, bd_dev);
}

static __always_inline void jbd2_event(u16 event, journal_t *j, transaction_t *t)
{
	journal_event(event, journal_dev(j), BPF_CORE_READ(t, t_tid), 0, 0);
}

static __always_inline void set_committing(u8 on)
{
	struct task_state *st = state_of(bpf_get_current_task_btf());

	if (st)
		st->committing = on;
}

SEC("tp_btf/jbd2_start_commit")
int BPF_PROG(on_jbd2_start, journal_t *j, transaction_t *t)
{
	if (!j || !t)
		return 0;
	set_committing(1);
	jbd2_event(SPSC_JBD2_START, j, t);
	return 0;
}

SEC("tp_btf/jbd2_commit_locking")
int BPF_PROG(on_jbd2_locking, journal_t *j, transaction_t *t)
{
	if (!j || !t)
		return 0;
	jbd2_event(SPSC_JBD2_LOCKING, j, t);
	return 0;
}

SEC("tp_btf/jbd2_commit_flushing")
int BPF_PROG(on_jbd2_flushing, journal_t *j, transaction_t *t)
{
	if (!j || !t)
		return 0;
	jbd2_event(SPSC_JBD2_FLUSHING, j, t);
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
	set_committing(0);
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

/* Who wakes an idle jbd2 thread asks for the commit that follows. Called from the
 * one sched_waking program: a second one would double the cost of every waking. */
static __always_inline void jbd2_woken(void *ctx, struct task_struct *t, u8 waker)
{
	struct ring_journal *e = reserve(SPSC_KIND_JOURNAL, sizeof(*e));
	long n;

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

SEC("tp_btf/xfs_log_force")
int BPF_PROG(on_xfs_log_force, struct xfs_mount *mp, s64 lsn)
{
	if (!mp)
		return 0;
	journal_event(SPSC_XFS_LOG_FORCE, BPF_CORE_READ(mp, m_super, s_dev), lsn, 0, 0);
	return 0;
}

static __always_inline u32 iclog_dev(struct xlog_in_core *iclog)
{
	return BPF_CORE_READ(iclog, ic_log, l_mp, m_super, s_dev);
}

SEC("tp_btf/xlog_iclog_syncing")
int BPF_PROG(on_xfs_iclog_sync, struct xlog_in_core *iclog)
{
	if (!iclog)
		return 0;
	journal_event(SPSC_XFS_ICLOG_SYNC, iclog_dev(iclog), (u64)iclog,
		      BPF_CORE_READ(iclog, ic_offset), 0);
	return 0;
}

SEC("tp_btf/xlog_iclog_sync_done")
int BPF_PROG(on_xfs_iclog_done, struct xlog_in_core *iclog)
{
	if (!iclog)
		return 0;
	journal_event(SPSC_XFS_ICLOG_DONE, iclog_dev(iclog), (u64)iclog, 0, 0);
	return 0;
}

SEC("tp_btf/btrfs_sync_file")
int BPF_PROG(on_btrfs_sync_file, const struct file *f, int datasync)
{
	if (!f)
		return 0;
	journal_event(SPSC_BTRFS_SYNC_FILE, BPF_CORE_READ(f, f_inode, i_sb, s_dev),
		      BPF_CORE_READ(f, f_inode, i_ino), datasync, 0);
	return 0;
}

SEC("tp_btf/btrfs_transaction_commit")
int BPF_PROG(on_btrfs_commit, const struct btrfs_fs_info *info)
{
	if (!info)
		return 0;
	journal_event(SPSC_BTRFS_COMMIT, BPF_CORE_READ(info, sb, s_dev),
		      BPF_CORE_READ(info, generation), 0, 0);
	return 0;
}

#endif
