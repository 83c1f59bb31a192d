"""Classes of CPU time: rules on stacks of kernel 6.18, shares and their intervals."""

import pytest

from spoolscope.analysis.cpu import CPU_CLASSES, CpuReport, _classes, cpu_rules, wilson
from spoolscope.analysis.stack_rules import classify

VFS_WRITE = " < vfs_write < ksys_write < do_syscall_64 < entry_SYSCALL_64_after_hwframe"
OPEN = " < path_openat < do_filp_open < do_sys_openat2 < __x64_sys_openat < do_syscall_64"
STACKS = [
    ("page_cache", "block_commit_write < block_write_end < ext4_da_write_end < "
     "generic_perform_write < ext4_buffered_write_iter" + VFS_WRITE),
    ("checksum", "save_fpregs_to_fpstate < kernel_fpu_begin_mask < crc32c < "
     "ext4_inode_bitmap_csum_set < __ext4_new_inode < ext4_create" + OPEN),
    ("copy", "copy_folio_from_iter_atomic < iomap_file_buffered_write < "
     "xfs_file_buffered_write" + VFS_WRITE),
    ("dir_change", "__ext4_check_dir_entry < ext4_find_dest_de < add_dirent_to_buf < "
     "ext4_dx_add_entry < ext4_add_entry < ext4_rename < vfs_rename < do_renameat2"),
    ("dir_change", "__memmove < __write_extent_buffer < memcpy_extent_buffer < "
     "setup_items_for_insert.isra.0 < btrfs_insert_empty_items < insert_with_overflow < "
     "btrfs_insert_dir_item < btrfs_add_link < btrfs_create_new_inode" + OPEN),
    ("lookup", "fscrypt_match_name < ext4_search_dir < ext4_dx_find_entry < __ext4_find_entry < "
     "ext4_lookup < lookup_one_qstr_excl < filename_create < do_linkat < __x64_sys_link"),
    ("lookup", "_raw_spin_lock < d_alloc_parallel" + OPEN),
    ("readdir", "str2hashbuf_signed < ext4fs_dirhash < htree_dirblock_to_tree < "
     "ext4_htree_fill_tree < ext4_readdir < iterate_dir < __x64_sys_getdents64"),
    ("scheduler", "_raw_spin_unlock_irqrestore < __wake_up < __jbd2_log_start_commit < "
     "jbd2_complete_transaction < ext4_sync_file < do_fsync"),
    ("scheduler", "finish_task_switch.isra.0 < __schedule < schedule < jbd2_log_wait_commit < "
     "ext4_sync_file < do_fsync"),
    ("journal", "_raw_spin_lock < xfs_inode_item_format < xlog_cil_commit < __xfs_trans_commit < "
     "xfs_trans_commit < xfs_vn_update_time < touch_atime < filemap_read < vfs_read"),
    ("alloc", "__memmove < xfs_btree_lshift < xfs_btree_make_block_unfull < xfs_btree_insrec < "
     "xfs_btree_insert < xfs_alloc_fixup_trees < xfs_alloc_cur_finish < xfs_bmap_btalloc"),
    ("page_cache", "block_invalidate_folio < truncate_inode_partial_folio < "
     "truncate_inode_pages_range < truncate_pagecache < ext4_setattr < notify_change"),
    ("block", "_raw_spin_unlock_irq < loop_queue_rq < __blk_mq_issue_directly < "
     "blk_mq_issue_direct < blk_mq_dispatch_queue_requests < blk_mq_flush_plug_list < "
     "__blk_flush_plug < blk_finish_plug < ext4_do_writepages < ext4_writepages < do_writepages"),
    ("interrupt", "dd_finish_request < __blk_mq_end_request < blk_done_softirq < "
     "handle_softirqs < __irq_exit_rcu < common_interrupt < asm_common_interrupt < __d_lookup"),
    ("path_walk", "__d_lookup_rcu < lookup_fast < walk_component < path_lookupat < "
     "filename_lookup < vfs_statx < vfs_fstatat < __do_sys_newfstatat < do_syscall_64"),
    ("tracing", "bpf_ringbuf_submit < bpf_prog_a5239e1627f54dd8_on_exit < bpf_trace_run2 < "
     "__bpf_trace_sys_exit < __traceiter_sys_exit < syscall_exit_work < do_syscall_64"),
    ("entry", "syscall_exit_work < do_syscall_64 < entry_SYSCALL_64_after_hwframe"),
]  # fmt: skip


@pytest.mark.parametrize(("name", "stack"), STACKS)
def test_a_stack_has_its_class(name, stack):
    rule = classify(stack.split(" < "), cpu_rules())
    assert rule is not None
    assert rule.cause == name


def test_every_class_but_other_has_a_rule():
    assert {rule.cause for rule in cpu_rules()} == CPU_CLASSES.keys() - {"other"}


def test_wilson_interval():
    # Newcombe, Statistics in Medicine 17 (1998), table I: 81/263 and 0/20.
    assert wilson(81, 263) == pytest.approx((0.2553, 0.3662), abs=5e-5)
    assert wilson(0, 20) == pytest.approx((0.0, 0.1611), abs=5e-5)


def test_classes_share_out_the_exact_time():
    classes = _classes({"copy": 1, "lookup": 1, "journal": 1}, 1_000_000_001)
    assert sum(c.ns for c in classes) == 1_000_000_001
    assert [c.name for c in classes] == ["copy", "journal", "lookup"]
    assert _classes({}, 5) == []


@pytest.mark.parametrize(
    ("sampled", "stolen", "agrees"),
    [(1000, 0, True), (900, 0, True), (700, 0, False), (1500, 0, False), (1500, 400, True)],
)
def test_agreement_allows_the_error_of_sampling(sampled, stolen, agrees):
    report = CpuReport(
        1000, sampled, 10**9, stolen * 10**6, sampled * 10**6, sampled**-0.5, [], {}, []
    )
    assert report.agrees is agrees
    assert report.deviation == pytest.approx(sampled / 1000 - 1)
