/* SPDX-License-Identifier: GPL-2.0-only OR BSD-3-Clause */
/*
 * The parts of a call's time asleep, by cause, while the call goes on: call_sums.bpf.h sums them when it
 * returns. The cause follows from the kernel stack. Rules are of user space, which is asked once
 * for each stack, and enters the answer.
 *
 * A sleep in a look-up is summed by directory, too.
 */
#ifndef SPOOLSCOPE_CALL_PARTS_BPF_H
#define SPOOLSCOPE_CALL_PARTS_BPF_H

#include "epochs.bpf.h"
#include "kernel_mounts.h"

#define STACK_HASH (1ULL << 63) /* set in hashes of stacks, so that none is a cause */
#define CAUSE_LOOKUP 256 /* the wait is one for a directory */
#define CAUSE_COMMIT 512 /* the wait is one for a commit */
#define DEPTH 16 /* directories of a name that is noted */
#define NAME_NOTED 128 /* bytes of each */

/* key: hash of a stack; value: enum cause with the flags above, entered by user space; 0: it was
 * asked. Full: the least used is forgotten, and asked again. */
struct {
	__uint(type, BPF_MAP_TYPE_LRU_HASH);
	__uint(max_entries, 1); /* set by the recorder */
	__type(key, u64);
	__type(value, u32);
} stack_causes SEC(".maps");

/* rollup/asked_causes.rs repeats these. */
struct ring_stack {
	struct ring_head head;
	u64 hash;
	u32 n_frames, pad;
	u64 stack[SPSC_STACK_FRAMES];
};

struct ring_directory {
	struct ring_head head;
	u64 ino;
	u32 dev;
	u32 n; /* names, from the directory up to the root of the filesystem; 0: too many */
	char names[DEPTH][NAME_NOTED];
};

struct directory_key {
	u64 ino;
	u64 what; /* 0: a look-up; else the hash of a stack whose cause is not known yet */
	u32 dev, pad;
};

/* key: directory; value: sleeps in look-ups in it. Two, as in call_sums.bpf.h. Full: those of further
 * directories are left out, which are in the sums of calls nevertheless. */
struct directory_sums {
	__uint(type, BPF_MAP_TYPE_PERCPU_HASH);
	__uint(max_entries, 1); /* set by the recorder */
	__type(key, struct directory_key);
	__type(value, struct sum);
};

struct directory_sums directories0 SEC(".maps"), directories1 SEC(".maps");

/* key: inode and device of directories whose names were reported to user space. */
struct {
	__uint(type, BPF_MAP_TYPE_LRU_HASH);
	__uint(max_entries, 1); /* set by the recorder */
	__type(key, struct directory_key);
	__type(value, u8);
} directories_reported SEC(".maps");

/* Note the hash of the stack on which a call falls asleep. */
static __always_inline void hash_stack(struct task_state *st)
{
	u64 hash = 0;

	for (u32 i = 0; i < SPSC_STACK_FRAMES && i < st->n_frames; i++) {
		hash = (hash ^ st->stack[i]) * 0x9e3779b97f4a7c15;
		hash ^= hash >> 32;
	}
	st->stack_hash = st->n_frames ? hash | STACK_HASH : 0;
}

static __always_inline void ask_for_cause(struct task_state *st)
{
	u32 asked = 0;
	struct ring_stack *e = reserve(RING_STACK, sizeof(*e));

	if (!e)
		return; /* the next sleep on it asks again */
	e->hash = st->stack_hash;
	e->n_frames = st->n_frames;
	e->pad = 0;
	__builtin_memcpy(e->stack, st->stack, sizeof(e->stack));
	bpf_map_update_elem(&stack_causes, &st->stack_hash, &asked, BPF_ANY);
	bpf_ringbuf_submit(e, BPF_RB_NO_WAKEUP);
}

/* Return the cause of the sleep with its flags; 0 if it is not known yet. */
static __always_inline u32 cause_of(struct task_state *st)
{
	u32 *known;

	if (!st->stack_hash)
		return CAUSE_UNEXPLAINED;
	known = bpf_map_lookup_elem(&stack_causes, &st->stack_hash);
	if (!known)
		ask_for_cause(st);
	return known ? *known : 0;
}

static __always_inline void tell_directory(struct task_state *st, struct directory_key *key)
{
	u64 name = st->dir, parent;
	struct ring_directory *e;
	u8 reported = 1;
	u32 n = 0;

	if (bpf_map_lookup_elem(&directories_reported, key))
		return;
	e = reserve(RING_DIRECTORY, sizeof(*e));
	if (!e)
		return;
	e->ino = key->ino;
	e->dev = key->dev;
	for (u32 i = 0; i < DEPTH; i++) {
		parent = (u64)BPF_CORE_READ((struct dentry *)name, d_parent);
		if (parent == name || !parent) {
			n = i + 1;
			break;
		}
		bpf_probe_read_kernel_str(e->names[i], NAME_NOTED,
					  BPF_CORE_READ((struct dentry *)name, d_name.name));
		name = parent;
	}
	e->n = n;
	bpf_ringbuf_submit(e, BPF_RB_NO_WAKEUP);
	bpf_map_update_elem(&directories_reported, key, &reported, BPF_ANY);
}

/* Sum a sleep by the directory in which a name was looked up. */
static __always_inline void sum_directory(struct task_state *st, u32 cause, u64 ns, u64 now)
{
	struct directory_key key = {.ino = st->dir_ino, .dev = st->dir_dev};
	struct sum add = {.n = st->dir_met != st->dir_ino, .ns = ns};

	st->dir_met = st->dir_ino;
	tell_directory(st, &key);
	key.what = cause ? 0 : st->stack_hash;
	if (table_at(now))
		add_to(&directories1, &key, &add);
	else
		add_to(&directories0, &key, &add);
}

/* Return the part of the call with this cause or stack; if there is none, the next free one, or the
 * last one. The search has no branches, each of which the verifier would follow. */
static __always_inline u64 part_of(const struct task_state *st, u64 what)
{
	u64 n = st->n_parts, at = n;

	for (u64 i = 0; i < MOST_PARTS; i++) {
		u64 differs = st->parts[i].what ^ what;
		u64 is_used = i - n;

		differs |= -differs;
		/* The compiler would see a comparison, and make it a branch. */
		asm volatile("" : "+r"(differs), "+r"(is_used));
		at ^= (at ^ i) & -(is_used >> 63 & ~(differs >> 63));
	}
	return at < MOST_PARTS ? at : MOST_PARTS - 1;
}

static __always_inline void add_part(struct task_state *st, u64 what, u64 ns)
{
	u64 at = part_of(st, what) & (MOST_PARTS - 1);
	struct part *part = &st->parts[at];

	if (at < st->n_parts) {
		part->ns += ns;
		return;
	}
	st->n_parts = at + 1;
	part->what = at == MOST_PARTS - 1 ? CAUSE_UNEXPLAINED : what;
	part->ns = ns;
}

/* Add the sleep that ends now to the parts of the call. */
static __always_inline void slept(struct task_state *st, u64 now)
{
	u64 ns = st->wake_ns - st->out_ns;
	u32 cause;

	if (!ns)
		return;
	cause = cause_of(st);
	if (!cause)
		st->unnamed = 1;
	add_part(st, cause ? cause & (CAUSE_LOOKUP - 1) : st->stack_hash, ns);
	if (st->dir_ino && is_spool(st->dir_dev) && (!cause || cause & CAUSE_LOOKUP))
		sum_directory(st, cause, ns, now);
}

#endif
