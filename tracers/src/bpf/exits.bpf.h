/* SPDX-License-Identifier: GPL-2.0-only OR BSD-3-Clause */
/* Exits that found no room in the ring: without them the number of lost calls of a thread that
 * has ended would be unknown. */
#ifndef SPOOLSCOPE_EXITS_BPF_H
#define SPOOLSCOPE_EXITS_BPF_H

#include "state.bpf.h"

struct exit_key {
	u64 ts_ns;
	u32 tid;
	u32 pad;
};

/* key: time and thread; value: the EXIT record. Read and emptied by the recorder. Full: the exit
 * stays counted as a lost task record. */
struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(map_flags, BPF_F_NO_PREALLOC);
	__uint(max_entries, 65536);
	__type(key, struct exit_key);
	__type(value, struct spsc_task);
} unreported_exits SEC(".maps");

static __always_inline void keep_exit(struct task_struct *t, struct task_state *st)
{
	struct exit_key key = {};
	struct spsc_task rec = {};

	if (!st || !st->n_calls)
		return;
	rec.ts_ns = key.ts_ns = bpf_ktime_get_ns();
	rec.event = SPSC_TASK_EXIT;
	rec.n_calls = st->n_calls;
	rec.skipped = st->skipped;
	rec.pid = BPF_CORE_READ(t, tgid);
	rec.tid = key.tid = BPF_CORE_READ(t, pid);
	rec.exit_code = BPF_CORE_READ(t, exit_code);
	BPF_CORE_READ_STR_INTO(&rec.comm, t, comm);
	bpf_map_update_elem(&unreported_exits, &key, &rec, BPF_ANY);
}

#endif
