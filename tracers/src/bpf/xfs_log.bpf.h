/* SPDX-License-Identifier: GPL-2.0-only OR BSD-3-Clause */
/*
 * The log of xfs: the calls that force it, its writes, and the queues of tasks for it.
 *
 * Tier T2, every program optional: a kernel without xfs lacks the tracepoints.
 */
#ifndef SPOOLSCOPE_XFS_LOG_BPF_H
#define SPOOLSCOPE_XFS_LOG_BPF_H

#include "journal.bpf.h"
#include "waits.bpf.h"

SEC("tp_btf/xfs_log_force")
int BPF_PROG(on_xfs_log_force, struct xfs_mount *mp, s64 lsn, u64 caller)
{
	u32 dev;

	if (!mp)
		return 0;
	dev = BPF_CORE_READ(mp, m_super, s_dev);
	if (sum_calls)
		sum_log_force(dev);
	journal_event_of(caller, SPSC_XFS_LOG_FORCE, dev, lsn, 0);
	return 0;
}

static __always_inline u32 log_dev(struct xlog *log)
{
	return BPF_CORE_READ(log, l_mp, m_super, s_dev);
}

static __always_inline u32 iclog_dev(struct xlog_in_core *iclog)
{
	return log_dev(BPF_CORE_READ(iclog, ic_log));
}

SEC("tp_btf/xlog_iclog_syncing")
int BPF_PROG(on_xfs_iclog_sync, struct xlog_in_core *iclog)
{
	if (!iclog)
		return 0;
	if (sum_calls)
		sum_iclog_sync(iclog_dev(iclog), (u64)iclog);
	journal_event(SPSC_XFS_ICLOG_SYNC, iclog_dev(iclog), (u64)iclog,
		      BPF_CORE_READ(iclog, ic_offset), 0);
	return 0;
}

SEC("tp_btf/xlog_iclog_sync_done")
int BPF_PROG(on_xfs_iclog_done, struct xlog_in_core *iclog)
{
	if (!iclog)
		return 0;
	if (sum_calls)
		sum_iclog_done(iclog_dev(iclog), (u64)iclog);
	journal_event(SPSC_XFS_ICLOG_DONE, iclog_dev(iclog), (u64)iclog, 0, 0);
	return 0;
}

SEC("tp_btf/xlog_iclog_wait_on")
int BPF_PROG(on_xfs_iclog_wait, struct xlog_in_core *iclog)
{
	if (iclog)
		wait_begins(SPSC_WAIT_ICLOG, (u64)iclog, iclog_dev(iclog));
	return 0;
}

SEC("tp_btf/xfs_log_grant_sleep")
int BPF_PROG(on_xfs_grant_sleep, struct xlog *log)
{
	if (log)
		wait_begins(SPSC_WAIT_LOG_SPACE, (u64)log, log_dev(log));
	return 0;
}

SEC("tp_btf/xfs_log_cil_wait")
int BPF_PROG(on_xfs_cil_wait, struct xlog *log)
{
	if (log)
		wait_begins(SPSC_WAIT_CIL, (u64)log, log_dev(log));
	return 0;
}

enum {
	AIL_PINNED = 1,
	AIL_LOCKED = 2,
	AIL_FLUSHING = 3,
};

/* xfsaild gives up a round after a hundred of these, so they cannot flood. */
static __always_inline void ail_stuck(struct xfs_ail *ail, s64 lsn, u64 why)
{
	struct xlog *log = BPF_CORE_READ(ail, ail_log);

	journal_event(SPSC_XFS_AIL_STUCK, log_dev(log), lsn, why, 0);
}

SEC("tp_btf/xfs_ail_pinned")
int BPF_PROG(on_xfs_ail_pinned, struct xfs_ail *ail, u32 type, unsigned long flags, s64 lsn)
{
	if (ail)
		ail_stuck(ail, lsn, AIL_PINNED);
	return 0;
}

SEC("tp_btf/xfs_ail_locked")
int BPF_PROG(on_xfs_ail_locked, struct xfs_ail *ail, u32 type, unsigned long flags, s64 lsn)
{
	if (ail)
		ail_stuck(ail, lsn, AIL_LOCKED);
	return 0;
}

SEC("tp_btf/xfs_ail_flushing")
int BPF_PROG(on_xfs_ail_flushing, struct xfs_ail *ail, u32 type, unsigned long flags, s64 lsn)
{
	if (ail)
		ail_stuck(ail, lsn, AIL_FLUSHING);
	return 0;
}

#endif
