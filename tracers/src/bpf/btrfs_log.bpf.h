/* SPDX-License-Identifier: GPL-2.0-only OR BSD-3-Clause */
/*
 * btrfs: fsyncs with their log trees, transactions, data that must precede its metadata.
 *
 * The tracepoint of a commit fires at its end, that of an fsync at its start; in between,
 * btrfs_convert_extent_bit marks the dirty tree blocks range by range as they are written. Only the
 * first range of each tree is recorded. Locks of tree blocks are recorded by waits.bpf.h:
 * btrfs_tree_lock fires for every lock, 28 times a mail, contended or not.
 *
 * Tier T2, every program optional.
 */
#ifndef SPOOLSCOPE_BTRFS_LOG_BPF_H
#define SPOOLSCOPE_BTRFS_LOG_BPF_H

#include "journal.bpf.h"

/* key: tid; value: the tree of blocks that it is writing. Full: the oldest is forgotten, and its
 * next range is recorded again. */
struct {
	__uint(type, BPF_MAP_TYPE_LRU_HASH);
	__uint(max_entries, 1024);
	__type(key, u32);
	__type(value, u64);
} writing SEC(".maps");

static __always_inline void nothing_written_yet(void)
{
	u32 tid = bpf_get_current_pid_tgid();

	bpf_map_delete_elem(&writing, &tid);
}

SEC("tp_btf/btrfs_sync_file")
int BPF_PROG(on_btrfs_sync_file, const struct file *f, int datasync)
{
	if (!f)
		return 0;
	nothing_written_yet();
	if (sum_calls)
		sum_btrfs_sync(BPF_CORE_READ(f, f_inode, i_sb, s_dev));
	journal_event(SPSC_BTRFS_SYNC_FILE, BPF_CORE_READ(f, f_inode, i_sb, s_dev),
		      BPF_CORE_READ(f, f_inode, i_ino), datasync, 0);
	return 0;
}

SEC("tp_btf/btrfs_sync_fs")
int BPF_PROG(on_btrfs_sync_fs, const struct btrfs_fs_info *info, int wait)
{
	if (info)
		journal_event(SPSC_BTRFS_SYNC_FS, BPF_CORE_READ(info, sb, s_dev), 0, wait, 0);
	return 0;
}

SEC("tp_btf/btrfs_convert_extent_bit")
int BPF_PROG(on_btrfs_write, const struct extent_io_tree *blocks)
{
	u32 tid = bpf_get_current_pid_tgid();
	const struct btrfs_fs_info *info;
	u64 *old, tree = (u64)blocks;

	if (!blocks)
		return 0;
	old = bpf_map_lookup_elem(&writing, &tid);
	if (old && *old == tree)
		return 0;
	info = BPF_CORE_READ(blocks, fs_info);
	if (sum_calls && is_spool(BPF_CORE_READ(info, sb, s_dev)))
		sum_btrfs_write();
	bpf_map_update_elem(&writing, &tid, &tree, BPF_ANY);
	journal_event(SPSC_BTRFS_WRITE, BPF_CORE_READ(info, sb, s_dev),
		      BPF_CORE_READ(info, generation), 0, 0);
	return 0;
}

SEC("tp_btf/btrfs_transaction_commit")
int BPF_PROG(on_btrfs_commit, const struct btrfs_fs_info *info)
{
	if (!info)
		return 0;
	nothing_written_yet();
	if (sum_calls)
		sum_btrfs_commit(BPF_CORE_READ(info, sb, s_dev));
	journal_event(SPSC_BTRFS_COMMIT, BPF_CORE_READ(info, sb, s_dev),
		      BPF_CORE_READ(info, generation), 0, 0);
	return 0;
}

static __always_inline void ordered(u16 event, const struct btrfs_inode *inode, u64 id, u64 bytes)
{
	journal_event(event, BPF_CORE_READ(inode, vfs_inode.i_sb, s_dev), id,
		      BPF_CORE_READ(inode, vfs_inode.i_ino), bytes);
}

SEC("tp_btf/btrfs_ordered_extent_add")
int BPF_PROG(on_btrfs_ordered, const struct btrfs_inode *inode,
	     const struct btrfs_ordered_extent *extent)
{
	if (inode && extent)
		ordered(SPSC_BTRFS_ORDERED_ADD, inode, (u64)extent,
			BPF_CORE_READ(extent, num_bytes));
	return 0;
}

SEC("tp_btf/btrfs_ordered_extent_remove")
int BPF_PROG(on_btrfs_ordered_done, const struct btrfs_inode *inode,
	     const struct btrfs_ordered_extent *extent)
{
	if (inode && extent)
		ordered(SPSC_BTRFS_ORDERED_DONE, inode, (u64)extent, 0);
	return 0;
}

#endif
