/* SPDX-License-Identifier: GPL-2.0-only OR BSD-3-Clause */
/*
 * jbd2 besides its commits: handles that made a commit wait, checkpoints, stalls.
 *
 * A handle is open while a task changes metadata; a commit has to wait for all handles of its
 * transaction. A call has several, so a handle is recorded only if it ended while its transaction
 * was being locked, or was open for at least two jiffies by the kernel's count, that is for more
 * than one in truth. jbd2_handle_stats has all of this; jbd2_handle_start would double the cost.
 *
 * Tier T2, every program optional.
 */
#ifndef SPOOLSCOPE_HANDLES_BPF_H
#define SPOOLSCOPE_HANDLES_BPF_H

#include "journal.bpf.h"

#define LONG_HANDLE_JIFFIES 2

const volatile u64 jiffy_ns;

SEC("tp_btf/jbd2_handle_stats")
int BPF_PROG(on_jbd2_handle, dev_t dev, u32 txn_id, u32 type, u32 line, int interval)
{
	s32 i = spool_index(dev);
	bool held;

	if (i < 0)
		return 0;
	held = locking[i & (MAX_SPOOLS - 1)] == txn_id;
	if (held || interval >= LONG_HANDLE_JIFFIES)
		journal_event(SPSC_JBD2_HANDLE, dev, txn_id, interval * jiffy_ns, held);
	return 0;
}

/* This fires once for every transaction that leaves the log; most have nothing left to write. */
SEC("tp_btf/jbd2_checkpoint_stats")
int BPF_PROG(on_jbd2_checkpoint_done, dev_t dev, u32 txn_id, struct transaction_chp_stats_s *s)
{
	u64 written, jiffies;

	if (!s)
		return 0;
	written = BPF_CORE_READ(s, cs_written);
	jiffies = BPF_CORE_READ(s, cs_chp_time);
	if (written || jiffies)
		journal_event(SPSC_JBD2_CHECKPOINT_DONE, dev, txn_id, written, jiffies * jiffy_ns);
	return 0;
}

SEC("tp_btf/jbd2_update_log_tail")
int BPF_PROG(on_jbd2_log_tail, journal_t *j, u32 first_txn, u64 block, u64 freed)
{
	if (j)
		journal_event(SPSC_JBD2_LOG_TAIL, journal_dev(j), first_txn, freed, block);
	return 0;
}

/* The kernel reports only stalls of more than a tenth of a second. */
SEC("tp_btf/jbd2_lock_buffer_stall")
int BPF_PROG(on_jbd2_lock_stall, dev_t dev, u64 stall_ms)
{
	journal_event(SPSC_JBD2_LOCK_STALL, dev, 0, stall_ms * 1000000, 0);
	return 0;
}

#endif
