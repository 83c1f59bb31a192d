/* SPDX-License-Identifier: GPL-2.0-only OR BSD-3-Clause */
/*
 * Two tables of each kind of sums: while one is filled, user space reads and empties the other.
 *
 * A call belongs to the table of the moment in which it returned. User space sets the border in
 * advance, and reads the table before it some time later, when no program still writes there.
 */
#ifndef SPOOLSCOPE_EPOCHS_BPF_H
#define SPOOLSCOPE_EPOCHS_BPF_H

#include "state.bpf.h"

/* Parts of a call's time. rollup/sum_rows.rs repeats these; from CAUSE_RULES on they are places
 * in its list of the causes that rules name. */
enum cause {
	CAUSE_CALL = 1, /* all of it */
	CAUSE_ONLY_CPU = 2, /* all of it, which was all on the CPU: a row of CALL and one of CPU */
	CAUSE_CPU = 3,
	CAUSE_STEAL = 4,
	CAUSE_RUNQ = 5,
	CAUSE_PREEMPT = 6,
	CAUSE_UNEXPLAINED = 7,
	CAUSE_RULES = 8,
};

struct sum {
	u64 n, ns;
};

/* Time of the border; its lowest bit is the number of the table before it. One word, so that both
 * change at once. */
volatile u64 border;

static __always_inline u32 table_at(u64 now)
{
	u64 at = border;

	return (now >= (at & ~1ULL)) ^ (at & 1);
}

/* Add to the sum of a key; return 1 if that is new, 0 if not, and -1 if the table is full. */
static __always_inline int add_to(void *table, void *key, const struct sum *add)
{
	struct sum *sum = bpf_map_lookup_elem(table, key);

	if (!sum) {
		if (!bpf_map_update_elem(table, key, add, BPF_NOEXIST))
			return 1;
		sum = bpf_map_lookup_elem(table, key); /* another CPU was first */
		if (!sum)
			return -1;
	}
	sum->n += add->n;
	sum->ns += add->ns;
	return 0;
}

#endif
