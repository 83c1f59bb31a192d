/* SPDX-License-Identifier: GPL-2.0-only OR BSD-3-Clause */
/*
 * Workers of the kernel while they work for a spool: writeback, ends of I/O, pushes of the xfs log,
 * loop devices. A worker serves all filesystems, so it is watched from the begin of such a work
 * item to its end. The functions that count are data: workers.rs.
 *
 * Tier T2, optional: any other work item costs one look at a small hash.
 */
#ifndef SPOOLSCOPE_WORKERS_BPF_H
#define SPOOLSCOPE_WORKERS_BPF_H

#include "absence.bpf.h"
#include "block.bpf.h"
#include "xfs_log.bpf.h"

#define BDI_NAME 16
#define BTRFS_DASH 0x2d7366727462 /* "btrfs-", little-endian */

/* Ways to find out if a work item is a spool's; workers.rs repeats them. */
enum work {
	WORK_ANY = 1, /* the item does not show it; the function is of the spool's filesystem */
	WORK_WRITEBACK = 2,
	WORK_LOOP = 3,
	WORK_LOOP_CGROUP = 4,
	WORK_EXT4_INODE = 5,
	WORK_XFS_INODE = 6,
	WORK_XFS_CIL = 7,
	WORK_BTRFS = 8,
	WORK_THROTTLE = 9,
};

/* key: address of a work function; value: enum work. Filled before attaching. */
struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(max_entries, 64);
	__type(key, u64);
	__type(value, u32);
} work_functions SEC(".maps");

/* Names of the own disks' backing_dev_info, "8:0"; zero-padded. */
const volatile u64 bdi_names[MAX_DISKS][BDI_NAME / 8];

#define HOLDER(work, type, member)                                                                 \
	((struct type *)((u64)(work)-bpf_core_field_offset(struct type, member)))

static __always_inline bool writes_back(struct work_struct *work)
{
	struct bdi_writeback *wb = HOLDER(work, bdi_writeback, dwork);
	struct backing_dev_info *bdi = BPF_CORE_READ(wb, bdi);
	u64 name[BDI_NAME / 8] = {};

	BPF_CORE_READ_STR_INTO(&name, bdi, dev_name);
	for (u32 i = 0; i < MAX_DISKS && i < n_own_disks; i++)
		if (bdi_names[i][0] == name[0] && bdi_names[i][1] == name[1])
			return true;
	/* A btrfs has one of its own, over all its disks: "btrfs-1". */
	return (name[0] & 0xffffffffffff) == BTRFS_DASH;
}

static __always_inline u32 cil_dev(struct xfs_cil_ctx *ctx)
{
	return log_dev(BPF_CORE_READ(ctx, cil, xc_log));
}

/* The types of a module that is not loaded are unknown; then none of its work occurs. */
static __always_inline struct gendisk *loop_disk(struct work_struct *work, u32 kind)
{
	if (!bpf_core_type_exists(struct loop_device) || !bpf_core_type_exists(struct loop_worker))
		return NULL;
	if (kind == WORK_LOOP)
		return BPF_CORE_READ(HOLDER(work, loop_device, rootcg_work), lo_disk);
	return BPF_CORE_READ(HOLDER(work, loop_worker, work), lo, lo_disk);
}

static __always_inline struct gendisk *limited_disk(struct work_struct *work)
{
	if (!bpf_core_type_exists(struct throtl_data))
		return NULL;
	return BPF_CORE_READ(HOLDER(work, throtl_data, dispatch_work), queue, disk);
}

static __always_inline bool works_for_spool(struct work_struct *work, u32 kind)
{
	switch (kind) {
	case WORK_ANY:
		return true;
	case WORK_WRITEBACK:
		return writes_back(work);
	case WORK_LOOP:
	case WORK_LOOP_CGROUP:
		return disk_index(loop_disk(work, kind)) >= 0;
	case WORK_THROTTLE:
		return disk_index(limited_disk(work)) >= 0;
	case WORK_EXT4_INODE:
		return bpf_core_type_exists(struct ext4_inode_info) &&
		       is_spool(BPF_CORE_READ(HOLDER(work, ext4_inode_info, i_rsv_conversion_work),
					      vfs_inode.i_sb, s_dev));
	case WORK_XFS_INODE:
		return bpf_core_type_exists(struct xfs_inode) &&
		       is_spool(BPF_CORE_READ(HOLDER(work, xfs_inode, i_ioend_work), i_mount,
					      m_super, s_dev));
	case WORK_XFS_CIL:
		return bpf_core_type_exists(struct xfs_cil_ctx) &&
		       is_spool(cil_dev(HOLDER(work, xfs_cil_ctx, push_work)));
	case WORK_BTRFS:
		return bpf_core_type_exists(struct btrfs_work) &&
		       is_spool(BPF_CORE_READ(HOLDER(work, btrfs_work, normal_work), wq, fs_info,
					      sb, s_dev));
	}
	return false;
}

static __always_inline u8 watch_of(u32 kind)
{
	switch (kind) {
	case WORK_XFS_CIL:
		return WATCH_CIL;
	case WORK_LOOP:
	case WORK_LOOP_CGROUP:
		return WATCH_LOOP;
	case WORK_THROTTLE:
		return WATCH_THROTTLE;
	}
	return WATCH_WORKER;
}

SEC("tp_btf/workqueue_execute_start")
int BPF_PROG(on_work, struct work_struct *work)
{
	u64 function = (u64)work->func;
	struct xfs_cil_ctx *push;
	struct task_state *st;
	u32 *kind;

	kind = bpf_map_lookup_elem(&work_functions, &function);
	if (!kind || !works_for_spool(work, *kind))
		return 0;
	st = watch_thread(bpf_get_current_task_btf(), watch_of(*kind));
	if (st && st->watched == WATCH_LOOP)
		st->dev = number_of(loop_disk(work, *kind)); /* its requests' parent */
	if (*kind == WORK_XFS_CIL && bpf_core_type_exists(struct xfs_cil_ctx)) {
		push = HOLDER(work, xfs_cil_ctx, push_work);
		journal_event(SPSC_XFS_CIL_PUSH, cil_dev(push), BPF_CORE_READ(push, sequence), 0,
			      0);
	}
	return 0;
}

/* The work item may be gone by now. */
SEC("tp_btf/workqueue_execute_end")
int BPF_PROG(on_work_done)
{
	struct task_struct *t = bpf_get_current_task_btf();
	struct task_state *st = state_of(t);

	if (!st || st->watched < WATCH_WORKER)
		return 0;
	if (st->out_ns) /* its switch-in was not reported: see absence.bpf.h */
		switched_in(t, st, bpf_ktime_get_ns());
	if (st->watched == WATCH_CIL)
		journal_event(SPSC_XFS_CIL_PUSHED, 0, 0, 0, 0);
	st->watched = WATCH_NOT;
	return 0;
}

#endif
