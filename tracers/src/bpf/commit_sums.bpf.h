/* SPDX-License-Identifier: GPL-2.0-only OR BSD-3-Clause */
/*
 * Sums of journal commits by the program whose call asked for them.
 *
 * jbd2: the call that woke the idle thread; if it went on by itself, the oldest call that slept for
 * a commit before this one began, and sleeps for one again. xfs: the call that writes the log
 * buffer, or the last that forced the log and has not returned. btrfs: the call that commits.
 */
#ifndef SPOOLSCOPE_COMMIT_SUMS_BPF_H
#define SPOOLSCOPE_COMMIT_SUMS_BPF_H

#include "call_parts.bpf.h"

/* rollup/sum_rows.rs repeats these. */
struct commit_key {
	u64 comm[SPSC_COMM / 8];
	u64 cgroup_id;
	u32 dev, pad;
};

struct commit_sum {
	u64 n, ns, max_ns;
};

/* Two, as in call_sums.bpf.h. Full: counted as COUNT_UNSUMMED. */
struct commit_sums {
	__uint(type, BPF_MAP_TYPE_PERCPU_HASH);
	__uint(max_entries, 1); /* set by the recorder */
	__type(key, struct commit_key);
	__type(value, struct commit_sum);
};

struct commit_sums commits0 SEC(".maps"), commits1 SEC(".maps");

/* A call that asked for a commit; call_ns 0: none. */
struct asker {
	u64 call_ns, cgroup_id;
	u64 comm[SPSC_COMM / 8];
};

struct commit_now {
	u64 start_ns; /* 0: none is under way */
	struct asker asker; /* of the commit under way */
	struct asker next; /* of the next one, if the thread is not woken for it */
	struct asker forced; /* call that last forced the log */
};

/* index: spool. */
struct commit_now commits_now[MAX_SPOOLS];

/* key: tid of a jbd2 thread, or address of a log buffer; value: the asker, and the begin of the
 * write. Full: the oldest is forgotten. */
struct begun {
	u64 start_ns;
	struct asker asker;
};

struct {
	__uint(type, BPF_MAP_TYPE_LRU_HASH);
	__uint(max_entries, 1024);
	__type(key, u64);
	__type(value, struct begun);
} commits_begun SEC(".maps");

static __always_inline struct commit_now *commit_now_of(u32 dev)
{
	s32 i = spool_index(dev);

	return i < 0 ? NULL : &commits_now[i & (MAX_SPOOLS - 1)];
}

/* Note the current task if it is in a recorded call. */
static __always_inline void note_asker(struct asker *asker)
{
	struct task_struct *t = bpf_get_current_task_btf();
	const u64 *comm = (const u64 *)t->comm;

	asker->call_ns = call_of(t);
	asker->cgroup_id = bpf_get_current_cgroup_id();
	asker->comm[0] = comm[0];
	asker->comm[1] = comm[1];
}

static __noinline void sum_commit(u32 dev, const struct asker *asker, u64 now, u64 ns)
{
	struct commit_key key = {.dev = dev};
	struct commit_sum first = {.n = 1, .ns = ns, .max_ns = ns}, *sum;
	bool second = table_at(now);
	long full;

	if (asker && asker->call_ns) {
		key.cgroup_id = asker->cgroup_id;
		key.comm[0] = asker->comm[0];
		key.comm[1] = asker->comm[1];
	}
	sum = second ? bpf_map_lookup_elem(&commits1, &key) : bpf_map_lookup_elem(&commits0, &key);
	if (sum) {
		sum->n++;
		sum->ns += ns;
		if (ns > sum->max_ns)
			sum->max_ns = ns;
		return;
	}
	full = second ? bpf_map_update_elem(&commits1, &key, &first, BPF_ANY)
		      : bpf_map_update_elem(&commits0, &key, &first, BPF_ANY);
	if (full)
		count(COUNT_UNSUMMED);
}

/* A task wakes an idle jbd2 thread. */
static __always_inline void sum_wake(u64 tid, u8 waker)
{
	struct begun begun = {};

	note_asker(&begun.asker);
	if (waker == SPSC_WAKER_TASK && begun.asker.call_ns)
		bpf_map_update_elem(&commits_begun, &tid, &begun, BPF_NOEXIST);
}

static __always_inline void sum_jbd2_start(u32 dev)
{
	u64 tid = (u32)bpf_get_current_pid_tgid();
	struct commit_now *now = commit_now_of(dev);
	struct begun *begun;

	if (!now)
		return;
	begun = bpf_map_lookup_elem(&commits_begun, &tid);
	now->asker = begun ? begun->asker : now->next;
	now->next.call_ns = 0;
	now->start_ns = bpf_ktime_get_ns();
	bpf_map_delete_elem(&commits_begun, &tid);
}

static __always_inline void sum_jbd2_end(u32 dev)
{
	struct commit_now *now = commit_now_of(dev);
	u64 end = bpf_ktime_get_ns();

	if (!now || !now->start_ns)
		return;
	sum_commit(dev, &now->asker, end, end - now->start_ns);
	now->start_ns = 0;
}

/* The current call falls asleep for a commit. */
static __always_inline void waits_for_commit(struct task_state *st, u64 out_ns)
{
	struct commit_now *now = commit_now_of(st->dev);
	struct asker *asker;

	if (!st->commit_wait_ns)
		st->commit_wait_ns = out_ns;
	if (!now || (now->start_ns && st->commit_wait_ns > now->start_ns))
		return;
	asker = now->start_ns ? &now->asker : &now->next;
	if (!asker->call_ns)
		note_asker(asker);
}

static __always_inline void sum_log_force(u32 dev)
{
	struct task_state *st = state_of(bpf_get_current_task_btf());
	struct commit_now *now = commit_now_of(dev);

	if (!now || !st || !st->call)
		return;
	note_asker(&now->forced);
	st->forced = 1;
}

static __always_inline void sum_iclog_sync(u32 dev, u64 iclog)
{
	struct commit_now *now = commit_now_of(dev);
	struct begun begun = {.start_ns = bpf_ktime_get_ns()};

	if (!now)
		return;
	note_asker(&begun.asker);
	if (!begun.asker.call_ns)
		begun.asker = now->forced;
	bpf_map_update_elem(&commits_begun, &iclog, &begun, BPF_ANY);
}

static __always_inline void sum_iclog_done(u32 dev, u64 iclog)
{
	struct begun *begun = bpf_map_lookup_elem(&commits_begun, &iclog);
	u64 end = bpf_ktime_get_ns();
	struct asker asker;

	if (!begun || !is_spool(dev))
		return;
	asker = begun->asker;
	sum_commit(dev, &asker, end, end - begun->start_ns);
	bpf_map_delete_elem(&commits_begun, &iclog);
}

/* The commit of a btrfs transaction began at the latest when its first block was written. */
static __always_inline void sum_btrfs_write(void)
{
	u64 tid = (u32)bpf_get_current_pid_tgid();
	struct begun begun = {.start_ns = bpf_ktime_get_ns()};

	bpf_map_update_elem(&commits_begun, &tid, &begun, BPF_NOEXIST);
}

static __always_inline void sum_btrfs_commit(u32 dev)
{
	u64 tid = (u32)bpf_get_current_pid_tgid(), end = bpf_ktime_get_ns();
	struct begun *begun = bpf_map_lookup_elem(&commits_begun, &tid);
	struct asker asker;

	if (!is_spool(dev))
		return;
	note_asker(&asker);
	sum_commit(dev, &asker, end, begun ? end - begun->start_ns : 0);
	bpf_map_delete_elem(&commits_begun, &tid);
}

static __always_inline void sum_btrfs_sync(u32 dev)
{
	struct task_state *st = state_of(bpf_get_current_task_btf());

	if (st && st->call && is_spool(dev))
		st->log_commit_ns = bpf_ktime_get_ns();
}

/* The call returns: the commit that it made itself ends, and it asks for none any more. */
static __always_inline void end_asking(struct task_state *st, u64 now)
{
	struct commit_now *commit;
	struct asker asker;

	if (st->log_commit_ns) {
		note_asker(&asker);
		sum_commit(st->dev, &asker, now, now - st->log_commit_ns);
	}
	if (!st->forced)
		return;
	commit = commit_now_of(st->dev);
	if (commit && commit->forced.call_ns == st->start_ns)
		commit->forced.call_ns = 0;
}

#endif
