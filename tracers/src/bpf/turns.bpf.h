/* SPDX-License-Identifier: GPL-2.0-only OR BSD-3-Clause */
/*
 * The processes that had each CPU lately, and so the one for which a call had to wait: the process
 * with the longest turn in that time. Not the last one: another task that was starved, a kworker
 * for example, often runs for some microseconds in between.
 *
 * Every switch of the machine comes through here. While none of our threads waits for a CPU it
 * costs a look at a variable.
 */
#ifndef SPOOLSCOPE_TURNS_BPF_H
#define SPOOLSCOPE_TURNS_BPF_H

#include "state.bpf.h"

#define MAX_TURNS 256 /* a power of two; of a longer wait only the end is searched */

struct turn {
	u64 from_ns, until_ns;
	u32 pid, tid; /* 0: the CPU was idle */
	u32 next_tid, pad;
	u64 comm[SPSC_COMM / 8];
};

struct cpu_turns {
	u64 n; /* number of turns that have ended */
	u64 clock_ns; /* our clock minus the scheduler's on this CPU */
	struct turn turn[MAX_TURNS];
};

/* index: CPU; value: its turns, written on that CPU alone. */
struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, 1); /* set by the recorder */
	__type(key, u32);
	__type(value, struct cpu_turns);
} turns SEC(".maps");

/* Number of our threads that are runnable and not on a CPU. A thread that is never seen to run
 * again stays counted: that costs time, and is rare. */
s64 waiting;

static __always_inline void begin_waiting(struct task_state *st)
{
	if (st->waits)
		return;
	st->waits = 1;
	__sync_fetch_and_add(&waiting, 1);
}

static __always_inline void end_waiting(struct task_state *st)
{
	if (!st->waits)
		return;
	st->waits = 0;
	__sync_fetch_and_add(&waiting, -1);
}

static __always_inline struct turn *turn_of(struct cpu_turns *cpu, u64 number)
{
	return &cpu->turn[number & (MAX_TURNS - 1)];
}

/* Return the begin of a turn: the end of the one before, if that is on record and no unreported
 * one followed it. Else it is the scheduler's time, converted from its own clock. */
static __always_inline u64 begin_of(struct task_struct *t, struct cpu_turns *cpu,
				    const struct turn *before)
{
	u64 arrival = 0;

	if (bpf_core_field_exists(t->sched_info.last_arrival)) /* CONFIG_SCHED_INFO */
		arrival = t->sched_info.last_arrival;
	if (!arrival || !t->pid) /* it keeps none for the idle thread */
		return before->until_ns;
	if (before->next_tid == (u32)t->pid && before->until_ns)
		cpu->clock_ns = before->until_ns - arrival;
	else if (cpu->clock_ns && arrival + cpu->clock_ns > before->until_ns)
		return arrival + cpu->clock_ns;
	return before->until_ns;
}

static __always_inline void end_turn(struct task_struct *t, struct task_struct *next, u64 now)
{
	u32 index = bpf_get_smp_processor_id();
	struct cpu_turns *cpu = bpf_map_lookup_elem(&turns, &index);
	const u64 *comm = (const u64 *)t->comm;
	struct turn *turn;

	if (!cpu)
		return;
	turn = turn_of(cpu, cpu->n);
	turn->from_ns = begin_of(t, cpu, turn_of(cpu, cpu->n - 1));
	turn->until_ns = now;
	turn->pid = t->tgid;
	turn->tid = t->pid;
	turn->next_tid = next->pid;
	turn->comm[0] = comm[0];
	turn->comm[1] = comm[1];
	cpu->n++;
}

/* The wait of thread `tid` for CPU `cpu`, and the thread with the longest turn in it. */
struct search {
	u64 since_ns, longest_ns, held_ns, held_from_ns;
	u64 comm[SPSC_COMM / 8];
	u32 cpu, tid, held_pid, held_tid;
};

/* Return turn i before now, as far as it lies in the wait; NULL if it ended before the wait. */
static __always_inline struct turn *turn_back(struct search *s, u32 i, u64 *from)
{
	struct cpu_turns *cpu = bpf_map_lookup_elem(&turns, &s->cpu);
	struct turn *turn;

	if (!cpu)
		return NULL;
	turn = turn_of(cpu, cpu->n - 1 - i);
	if (turn->until_ns <= s->since_ns)
		return NULL;
	*from = turn->from_ns > s->since_ns ? turn->from_ns : s->since_ns;
	return turn;
}

static long find_longest(u32 i, struct search *s)
{
	u64 from;
	struct turn *turn = turn_back(s, i, &from);

	if (!turn)
		return 1;
	if (!turn->tid || turn->tid == s->tid || turn->until_ns <= from + s->longest_ns)
		return 0;
	s->longest_ns = turn->until_ns - from;
	s->held_pid = turn->pid;
	s->held_tid = turn->tid;
	s->comm[0] = turn->comm[0];
	s->comm[1] = turn->comm[1];
	return 0;
}

static long add_turns(u32 i, struct search *s)
{
	u64 from;
	struct turn *turn = turn_back(s, i, &from);

	if (!turn)
		return 1;
	if (turn->pid == s->held_pid && turn->tid != s->tid && turn->until_ns > from) {
		s->held_ns += turn->until_ns - from;
		s->held_from_ns = from;
	}
	return 0;
}

/* Find the process that had this CPU while thread `tid` was runnable: the one with the longest
 * turn, with all its turns. `tid` is switched in now, and the turn before it has ended. */
static __always_inline void find_holder(struct task_state *st, u32 tid)
{
	u64 since = st->out_state == SPSC_SWITCH_PREEMPTED ? st->out_ns : st->wake_ns;
	struct search s = {
		.since_ns = since,
		.cpu = bpf_get_smp_processor_id(),
		.tid = tid,
	};

	if (since < st->out_ns)
		return;
	bpf_loop(MAX_TURNS - 1, find_longest, &s, 0);
	if (!s.longest_ns)
		return;
	bpf_loop(MAX_TURNS - 1, add_turns, &s, 0);
	st->held_from_ns = s.held_from_ns;
	st->held_ns = s.held_ns;
	st->held_pid = s.held_pid;
	st->held_tid = s.held_tid;
	st->held_comm[0] = s.comm[0];
	st->held_comm[1] = s.comm[1];
}

#endif
