/* SPDX-License-Identifier: GPL-2.0-only OR BSD-3-Clause */
/*
 * Block requests of the spools' disks: accounted or inserted, issued, completed. The submitter is
 * the task that was running when the request was first seen. On the disks below a loop device, dm
 * or md a request is recorded only if it was made for that device, or by a traced call or a watched
 * thread.
 *
 * Tier T2: without these, device time and queue time cannot be distinguished.
 */
#ifndef SPOOLSCOPE_BLOCK_BPF_H
#define SPOOLSCOPE_BLOCK_BPF_H

#include "kernel_limits.h"
#include "state.bpf.h"

struct request_state {
	u64 start_ns, issue_ns, call_ns, parent_sector, cgroup_id;
	u32 pid, tid, cmd_flags, parent_dev, flags, pad;
	char comm[SPSC_COMM];
};

/* key: request address; value: its state before completion, deleted at completion. Full: the
 * request is not recorded and counted as a lost BLOCK record. */
struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(max_entries, 16384);
	__type(key, u64);
	__type(value, struct request_state);
} requests SEC(".maps");

/* The place of a bio before a partition, dm or md sent it on. */
struct remapped {
	u64 sector; /* its target, to recognise the bio: its memory is reused */
	u64 from_sector;
	u32 from_dev;
	u32 pad;
};

/* key: bio address; deleted at the first look-up. Full: the oldest is forgotten, and its request
 * has no parent. */
struct {
	__uint(type, BPF_MAP_TYPE_LRU_HASH);
	__uint(max_entries, 4096);
	__type(key, u64);
	__type(value, struct remapped);
} remaps SEC(".maps");

static __always_inline u32 number_of(struct gendisk *disk)
{
	return BPF_CORE_READ(disk, major) << 20 | BPF_CORE_READ(disk, first_minor);
}

/* Return the place among the disks, -1 if it is none of them. */
static __always_inline s32 disk_index(struct gendisk *disk)
{
	u32 dev = disk ? number_of(disk) : 0;

	for (u32 i = 0; i < MAX_DISKS && i < n_disks; i++)
		if (disks[i] == dev)
			return i;
	return -1;
}

SEC("tp_btf/block_bio_remap")
int BPF_PROG(on_remap, struct bio *bio, dev_t from_dev, u64 from_sector)
{
	struct remapped r = {.from_sector = from_sector, .from_dev = from_dev};
	u64 key = (u64)bio;

	if (!bio || disk_index(BPF_CORE_READ(bio, bi_bdev, bd_disk)) < 0)
		return 0;
	r.sector = BPF_CORE_READ(bio, bi_iter.bi_sector);
	bpf_map_update_elem(&remaps, &key, &r, BPF_ANY);
	return 0;
}

/* Fill in the parent, if it is known. */
static __always_inline void find_parent(struct request_state *fresh, struct request *rq,
					const struct task_state *st)
{
	u64 bio = (u64)BPF_CORE_READ(rq, bio);
	struct remapped *r = bpf_map_lookup_elem(&remaps, &bio);

	if (r && r->sector == rq->__sector) {
		fresh->parent_dev = r->from_dev;
		fresh->parent_sector = r->from_sector;
	} else if (st && st->watched == WATCH_LOOP) {
		fresh->parent_dev = st->dev;
	}
	if (r)
		bpf_map_delete_elem(&remaps, &bio);
}

/* A worker submits I/O that a limit of a control group held back; until then the kernel shows
 * nothing of it: block_bio_queue, too, fires only now. */
static __always_inline void find_limit(struct request_state *fresh, struct request *rq)
{
	struct blkcg_gq *group;

	fresh->flags = SPSC_BLOCK_HELD_BACK;
	if (!bpf_core_field_exists(struct bio, bi_blkg))
		return;
	group = BPF_CORE_READ(rq, bio, bi_blkg);
	fresh->cgroup_id = BPF_CORE_READ(group, blkcg, css.cgroup, kn, id);
}

/* Return true for a task that works for the spool alone, not for other users of the disk. */
static __always_inline bool works_for_us(const struct task_state *st)
{
	return st && (st->call || (st->watched && st->watched != WATCH_THROTTLE));
}

enum request_stage { STARTED, INSERTED, ISSUED };

/* This type exists if the kernel has the tracepoint: see on_io_start. */
typedef void (*btf_trace_block_io_start)(void *, struct request *);

/* Without block_io_start a request is first seen when it is inserted or issued, perhaps long
 * after it was made; then its start time in the kernel's statistics is taken. */
static __always_inline u64 made(struct request *rq, u64 now)
{
	u64 at = rq->start_time_ns;

	return !bpf_core_type_exists(btf_trace_block_io_start) && at && at < now ? at : now;
}

static __always_inline void request_begins(struct request *rq, enum request_stage stage)
{
	u64 key = (u64)rq, now = bpf_ktime_get_ns();
	struct task_struct *t = bpf_get_current_task_btf();
	struct request_state fresh = {}, *old;
	s32 disk = disk_index(untrusted(rq)->q->disk);
	struct task_state *st;

	if (disk < 0)
		return;
	old = bpf_map_lookup_elem(&requests, &key);
	/* The entry of an earlier request at this address, for whose completion no program ran. */
	if (old && (stage == STARTED || (stage == ISSUED && old->issue_ns)))
		count(COUNT_NOT_COMPLETED);
	else if (old) {
		if (stage == ISSUED)
			old->issue_ns = now;
		return;
	}
	st = state_of(t);
	find_parent(&fresh, rq, st);
	/* The disks below loop, dm and md have other users, too. The task that inserts or issues
	 * a request need not be the one that made it. */
	if (disk >= n_own_disks &&
	    ((stage != STARTED && bpf_core_type_exists(btf_trace_block_io_start)) ||
	     !(fresh.parent_dev || works_for_us(st))))
		return;
	if (st && st->watched == WATCH_THROTTLE)
		find_limit(&fresh, rq);
	fresh.start_ns = made(rq, now);
	fresh.issue_ns = stage == ISSUED ? now : 0;
	fresh.call_ns = st && st->call ? st->start_ns : SPSC_NO_CALL;
	fresh.pid = t->tgid;
	fresh.tid = t->pid;
	fresh.cmd_flags = rq->cmd_flags; /* blk-flush.c removes PREFLUSH and FUA later */
	bpf_get_current_comm(fresh.comm, sizeof(fresh.comm));
	if (bpf_map_update_elem(&requests, &key, &fresh, BPF_ANY))
		count(SPSC_KIND_BLOCK);
}

/* Since 5a80bd075f3b "block: introduce block_io_start/block_io_done tracepoints", v6.5. */
SEC("tp_btf/block_io_start")
int BPF_PROG(on_io_start, struct request *rq)
{
	request_begins(rq, STARTED);
	return 0;
}

SEC("tp_btf/block_rq_insert")
int BPF_PROG(on_rq_insert, struct request *rq)
{
	request_begins(rq, INSERTED);
	return 0;
}

SEC("tp_btf/block_rq_issue")
int BPF_PROG(on_rq_issue, struct request *rq)
{
	request_begins(rq, ISSUED);
	return 0;
}

SEC("tp_btf/block_rq_requeue")
int BPF_PROG(on_rq_requeue, struct request *rq)
{
	u64 key = (u64)rq;
	struct request_state *st = bpf_map_lookup_elem(&requests, &key);

	if (st)
		st->issue_ns = 0;
	return 0;
}

SEC("tp_btf/block_rq_complete")
int BPF_PROG(on_rq_complete, struct request *rq, int error, unsigned int bytes)
{
	u64 key = (u64)rq, now = bpf_ktime_get_ns();
	struct request_state *st;
	struct ring_block *e;

	st = bpf_map_lookup_elem(&requests, &key);
	if (!st)
		return 0;
	e = reserve(SPSC_KIND_BLOCK, sizeof(*e));
	if (e) {
		e->rec.start_ns = st->start_ns;
		e->rec.issue_ns = st->issue_ns ?: now;
		e->rec.done_ns = now;
		e->rec.sector = rq->__sector;
		e->rec.call_ns = st->call_ns;
		e->rec.bytes = rq->__data_len;
		e->rec.dev = number_of(untrusted(rq)->q->disk);
		e->rec.cmd_flags = st->cmd_flags;
		e->rec.pid = st->pid;
		e->rec.tid = st->tid;
		e->rec.error = error;
		e->rec.parent_dev = st->parent_dev;
		e->rec.parent_sector = st->parent_sector;
		e->rec.cgroup_id = st->cgroup_id;
		e->rec.flags = st->flags;
		__builtin_memcpy(e->rec.comm, st->comm, sizeof(e->rec.comm));
		bpf_ringbuf_submit(e, BPF_RB_NO_WAKEUP);
	}
	bpf_map_delete_elem(&requests, &key);
	return 0;
}

#endif
