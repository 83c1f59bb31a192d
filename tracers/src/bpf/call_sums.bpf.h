/* SPDX-License-Identifier: GPL-2.0-only OR BSD-3-Clause */
/*
 * Sums of calls that are alike, in the place of a record of each: number and time of the calls, and
 * of the parts of their time by cause, in log-linear buckets.
 *
 * A call that was on the CPU all the time, as most are, takes one look-up.
 */
#ifndef SPOOLSCOPE_CALL_SUMS_BPF_H
#define SPOOLSCOPE_CALL_SUMS_BPF_H

#include "filter.bpf.h"
#include "call_parts.bpf.h"

#define SUB_BITS 5 /* buckets.py */
#define NO_SIZE (-1)
#define SPARE_SUMS 1024 /* room for the rows of the calls that return at once on all CPUs */

/* rollup/sum_rows.rs repeats these. */
struct sum_key {
	char comm[SPSC_COMM];
	u64 cgroup_id;
	u32 dev; /* 0: not known */
	u16 bucket;
	u8 call; /* id in calls.txt */
	s8 size_class;
	u8 failed;
	u8 cause;
	u16 pad;
	u32 pad2;
};

/* Full: the calls count as COUNT_UNSUMMED. */
struct call_sums {
	__uint(type, BPF_MAP_TYPE_PERCPU_HASH);
	__uint(max_entries, 1); /* set by the recorder */
	__type(key, struct sum_key);
	__type(value, struct sum);
};

struct call_sums sums0 SEC(".maps"), sums1 SEC(".maps");

/* Rows in each table; set to 0 by user space when the table is empty. */
u64 n_sums[2];

const volatile u64 most_sums;

/* A call with a cause that was not known in time: user space sums it. */
struct ring_unnamed {
	struct ring_head head;
	struct sum_key key; /* without bucket and cause */
	u64 end_ns, call_ns, cpu_ns, steal_ns, runq_ns, preempt_ns;
	u32 n_parts, pad;
	struct part parts[MOST_PARTS];
};

static __always_inline u32 log2_of(u64 value)
{
	u32 n = 0;

	if (value >> 32) {
		n += 32;
		value >>= 32;
	}
	if (value >> 16) {
		n += 16;
		value >>= 16;
	}
	if (value >> 8) {
		n += 8;
		value >>= 8;
	}
	if (value >> 4) {
		n += 4;
		value >>= 4;
	}
	if (value >> 2) {
		n += 2;
		value >>= 2;
	}
	return n + (value >> 1);
}

static __always_inline u16 bucket_of(u64 ns)
{
	u32 log = log2_of(ns), shift = log > SUB_BITS ? log - SUB_BITS : 0;

	return (shift << SUB_BITS) + (ns >> shift);
}

static __always_inline s8 size_class_of(struct task_state *st, const volatile struct call_shape *s)
{
	struct vector vector = {};
	u64 bytes = 0;

	if (s->size >= 0) {
		bytes = arg_of(st, s->size);
	} else if (s->extra == EXTRA_IOV) {
		vector.at = arg_of(st, s->extra_arg);
		vector.n = st->args[2];
		add_up(&vector);
		bytes = vector.bytes;
	}
	return bytes ? log2_of(bytes) : NO_SIZE;
}

/* Return the filesystem of the call's object, or that of the spool to which its name leads. */
static __always_inline u32 dev_of_call(struct task_struct *t, struct task_state *st,
				       const volatile struct call_shape *s, long ret)
{
	struct file *f;
	u32 dev;

	if (n_spools == 1)
		return spools[0].dev;
	if (is_spool(st->dev))
		return st->dev;
	if (is_spool(st->named_dev))
		return st->named_dev;
	if (!(s->flags & SHAPE_RETURNS_FD) || ret < 0)
		return 0;
	f = file_of_fd(t, ret);
	dev = f ? dev_of(inode_of(f)) : 0;
	return is_spool(dev) ? dev : 0;
}

static __always_inline void sum_row(struct sum_key *key, u32 table, u8 cause, u64 ns)
{
	struct sum add = {.n = 1, .ns = ns};
	int added;

	if (!ns && cause > CAUSE_ONLY_CPU)
		return;
	key->cause = cause;
	key->bucket = bucket_of(ns);
	added = table ? add_to(&sums1, key, &add) : add_to(&sums0, key, &add);
	if (added > 0)
		__sync_fetch_and_add(&n_sums[table & 1], 1);
}

static __noinline void sum_unnamed(struct task_state *st, struct sum_key *key, u64 now, u64 call_ns)
{
	struct ring_unnamed *e = reserve(RING_UNNAMED, sizeof(*e));

	if (!e) {
		count(COUNT_UNSUMMED);
		return;
	}
	e->key = *key;
	e->end_ns = now;
	e->call_ns = call_ns;
	e->steal_ns = steal_is_counted() ? st->stolen_ns : 0;
	e->cpu_ns = st->oncpu_ns - e->steal_ns;
	e->runq_ns = st->runq_ns;
	e->preempt_ns = st->preempted_ns;
	e->n_parts = st->n_parts;
	e->pad = 0;
	__builtin_memcpy(e->parts, st->parts, sizeof(e->parts));
	bpf_ringbuf_submit(e, BPF_RB_NO_WAKEUP);
}

struct parts_of_call {
	struct task_state *st;
	struct sum_key *key;
	u32 table;
};

static long sum_part(u64 i, struct parts_of_call *of)
{
	if (i >= MOST_PARTS || i >= of->st->n_parts)
		return 1;
	sum_row(of->key, of->table, of->st->parts[i].what, of->st->parts[i].ns);
	return 0;
}

static __noinline void sum_parts(struct task_state *st, struct sum_key *key, u32 table, u64 call_ns)
{
	struct parts_of_call of = {.st = st, .key = key, .table = table};
	u64 steal_ns = steal_is_counted() ? st->stolen_ns : 0;

	sum_row(key, table, CAUSE_CALL, call_ns);
	sum_row(key, table, CAUSE_CPU, st->oncpu_ns - steal_ns);
	sum_row(key, table, CAUSE_STEAL, steal_ns);
	sum_row(key, table, CAUSE_RUNQ, st->runq_ns);
	sum_row(key, table, CAUSE_PREEMPT, st->preempted_ns);
	/* The verifier would follow each turn of a loop with all its branches. */
	bpf_loop(MOST_PARTS, sum_part, &of, 0);
}

/* Sum a call that returns now; the parts of its time have been settled. */
static __always_inline void sum_call(struct task_struct *t, struct task_state *st, long ret,
				     u64 now)
{
	const volatile struct call_shape *s = &shapes[(st->call - 1) & (MAX_CALLS - 1)];
	const u64 *comm = (const u64 *)t->comm;
	u64 call_ns = now - st->start_ns;
	struct sum_key key = {};
	u32 table = table_at(now);

	((u64 *)key.comm)[0] = comm[0];
	((u64 *)key.comm)[1] = comm[1];
	key.cgroup_id = bpf_get_current_cgroup_id();
	key.dev = dev_of_call(t, st, s, ret);
	key.call = st->call - 1;
	key.size_class = size_class_of(st, s);
	key.failed = ret < 0 && ret >= -4095;
	if (n_sums[table & 1] + SPARE_SUMS > most_sums) {
		count(COUNT_UNSUMMED);
	} else if (st->unnamed) {
		sum_unnamed(st, &key, now, call_ns);
	} else if (st->oncpu_ns == call_ns && (!steal_is_counted() || !st->stolen_ns)) {
		sum_row(&key, table, CAUSE_ONLY_CPU, call_ns);
	} else {
		sum_parts(st, &key, table, call_ns);
	}
}

#endif
