"""Rules on stacks of real kernels (6.18 unless noted), and the rule language."""

import re
from pathlib import Path

import pytest

from spoolscope.analysis import causes
from spoolscope.analysis.causes import BLOCKED_CAUSES, CAUSES
from spoolscope.analysis.commit_parts import PARTS
from spoolscope.analysis.stack_rules import (
    classify,
    compile_rule,
    load_rules,
    of_use,
    shipped_rules,
)
from spoolscope.analysis.stacks import telling
from spoolscope.traces.errors import SpoolscopeError
from spoolscope.traces.filesystems import FILESYSTEMS

SCHED = "__schedule < schedule < "
IO = (
    "__schedule < schedule < io_schedule < bit_wait_io < __wait_on_bit < out_of_line_wait_on_bit < "
)

STACKS = [
    ("journal_commit", SCHED + "jbd2_log_wait_commit < jbd2_complete_transaction < ext4_sync_file"),
    ("journal_commit", SCHED + "jbd2_log_wait_commit < ext4_fc_commit < ext4_sync_file"),
    ("writeback", "io_schedule < folio_wait_bit < folio_wait_writeback < "
     "__filemap_fdatawait_range < file_write_and_wait_range < ext4_sync_file"),
    ("writeback", "io_schedule < wait_on_page_bit_common < wait_on_page_writeback < "
     "__filemap_fdatawait_range < file_write_and_wait_range < ext4_sync_file"),  # 5.15
    ("flush", SCHED + "schedule_timeout < io_schedule_timeout < __wait_for_common < "
     "submit_bio_wait < blkdev_issue_flush < ext4_sync_file"),
    ("dir_lock", SCHED + "schedule_preempt_disabled < rwsem_down_write_slowpath < down_write < "
     "filename_create < do_linkat"),
    ("dir_lock", SCHED + "rwsem_down_write_slowpath < down_write_nested < lock_rename < "
     "do_renameat2"),
    ("dir_lock", SCHED + "rwsem_down_read_slowpath < down_read_killable < iterate_dir"),
    ("dir_lock", SCHED + "__mutex_lock.constprop.0 < lock_rename < do_renameat2"),
    ("dir_lock", SCHED + "rwsem_down_write_slowpath < down_write < path_openat < do_filp_open"),
    ("inode_lock", SCHED + "rwsem_down_write_slowpath < vfs_unlink < do_unlinkat"),
    ("inode_lock", SCHED + "rwsem_down_write_slowpath < ext4_buffered_write_iter < vfs_write"),
    ("shadow", IO + "do_get_write_access < jbd2_journal_get_write_access < "
     "__ext4_journal_get_write_access < ext4_add_entry"),
    ("writeback", SCHED + "io_schedule < bit_wait_io < __wait_on_bit_lock < "
     "out_of_line_wait_on_bit_lock < do_get_write_access < jbd2_journal_get_write_access < "
     "__ext4_journal_get_write_access < ext4_dx_add_entry < ext4_add_entry < ext4_rename"),
    ("txn_lock", SCHED + "wait_transaction_locked < add_transaction_credits < start_this_handle"),
    ("log_space", SCHED + "submit_bio_wait < blkdev_issue_flush < jbd2_log_do_checkpoint < "
     "__jbd2_log_wait_for_space < add_transaction_credits < start_this_handle < ext4_rename2"),
    ("lookup_io", IO + "__ext4_find_entry < ext4_lookup < lookup_one_qstr_excl < do_renameat2"),
    ("inode_io", IO + "__ext4_get_inode_loc.isra.0 < __ext4_iget < ext4_lookup < __lookup_slow"),
    ("readdir_io", IO + "ext4_bread < __ext4_read_dirblock < htree_dirblock_to_tree < "
     "ext4_htree_fill_tree < ext4_readdir < iterate_dir"),
    ("alloc_io", IO + "ext4_read_block_bitmap < ext4_mb_init_cache < ext4_mb_regular_allocator"),
    ("journal_commit", SCHED + "xlog_wait_on_iclog < xfs_log_force_seq < xfs_file_fsync"),
    ("journal_commit", SCHED + "xlog_force_lsn < xfs_log_force_seq < xfs_file_fsync"),
    ("journal_commit", SCHED + "__flush_workqueue < xlog_cil_push_now.isra.0 < "
     "xlog_cil_force_seq < xfs_log_force_seq < xfs_file_fsync"),
    ("shadow", SCHED + "xlog_wait_on_iclog < xfs_log_force < xfs_buf_lock < xfs_buf_find_lock"),
    ("log_space", SCHED + "xlog_grant_head_wait < xlog_grant_head_check < xfs_log_reserve"),
    ("alloc_io", "schedule_timeout < ___down_common < __down < down < xfs_buf_lock < "
     "xfs_buf_find_lock < xfs_buf_get_map < xfs_read_agf < xfs_alloc_read_agf"),
    ("inode_io", "schedule_timeout < wait_for_completion < xfs_buf_iowait < xfs_buf_read_map < "
     "xfs_trans_read_buf_map < xfs_imap_to_bp < xfs_iget < xfs_lookup < xfs_vn_lookup"),
    ("inode_io", "schedule < schedule_timeout < __down_common < down < xfs_buf_lock < "
     "xfs_buf_find_lock < xfs_buf_get_map < xfs_buf_read_map < xfs_trans_read_buf_map < "
     "xfs_btree_read_buf_block < xfs_btree_lookup_get_block < xfs_btree_visit_blocks < "
     "xfs_iread_extents < xfs_bmap_last_extent < xfs_bmap_last_offset"),
    ("lookup_io", "schedule_timeout < wait_for_completion < xfs_buf_iowait < xfs_buf_read_map < "
     "xfs_da_read_buf < xfs_dir3_leaf_read < xfs_dir2_leaf_lookup_int < xfs_lookup"),
    ("dir_lock", "rwsem_down_write_slowpath < down_write_nested < xfs_ilock < xfs_remove"),
    ("journal_commit", SCHED + "wait_log_commit < btrfs_sync_log < btrfs_sync_file < do_fsync"),
    ("journal_commit", "io_schedule < folio_wait_bit < folio_wait_writeback < "
     "__filemap_fdatawait_range < btrfs_wait_tree_log_extents < btrfs_sync_log"),
    ("journal_commit", "io_schedule < folio_wait_bit < write_all_supers < btrfs_sync_log"),
    ("flush", "schedule_timeout < wait_for_completion_io < wait_dev_flush < "
     "barrier_all_devices < write_all_supers < btrfs_sync_log"),
    ("ordered_data", SCHED + "btrfs_start_ordered_extent < btrfs_wait_ordered_range < "
     "btrfs_sync_file"),
    ("inode_lock", "rwsem_down_write_slowpath < down_write_nested < btrfs_tree_lock_nested < "
     "btrfs_search_slot < btrfs_insert_empty_items < btrfs_insert_dir_item"),
    ("txn_lock", SCHED + "wait_current_trans < start_transaction < btrfs_rename2"),
    ("alloc_io", SCHED + "__reserve_bytes < btrfs_reserve_metadata_bytes < "
     "btrfs_delalloc_reserve_metadata < btrfs_buffered_write < btrfs_do_write_iter"),
    ("alloc_io", SCHED + "__reserve_bytes < btrfs_reserve_metadata_bytes < start_transaction < "
     "btrfs_unlink < vfs_unlink"),
    ("alloc_io", SCHED + "__reserve_bytes < btrfs_reserve_data_bytes < "
     "btrfs_check_data_free_space < btrfs_buffered_write"),
    ("io_throttle", "io_schedule < rq_qos_wait < wbt_wait < __rq_qos_throttle < "
     "blk_mq_submit_bio < ext4_io_submit < ext4_do_writepages < file_write_and_wait_range"),
    ("block_queue", "io_schedule < blk_mq_get_tag < __blk_mq_alloc_requests < blk_mq_submit_bio "
     "< ext4_io_submit < ext4_writepages"),
    ("dirty_throttle", "io_schedule_timeout < balance_dirty_pages < "
     "balance_dirty_pages_ratelimited_flags < generic_perform_write"),
    ("file_lock", SCHED + "locks_lock_inode_wait < fcntl_setlk < do_fcntl < __x64_sys_fcntl"),
    ("file_lock", SCHED + "flock_lock_inode_wait < __do_sys_flock"),
    ("block_device", "io_schedule < folio_wait_bit_common < filemap_get_pages < filemap_read"),
    ("lookup_io", SCHED + "d_alloc_parallel < __lookup_slow < walk_component"),
    ("alloc_io", SCHED + "schedule_timeout < wait_for_completion < __flush_work < xfs_create < "
     "xfs_generic_create < path_openat"),
    ("alloc_io", "wait_for_completion < __flush_work < xfs_flush_inodes < xfs_create"),
    ("writeback", "wait_for_completion < __flush_workqueue < ext4_sync_fs < __iterate_supers"),
    ("inode_io", "io_schedule < bit_wait_io < __wait_on_bit < out_of_line_wait_on_bit < "
     "read_extent_buffer_pages < btrfs_read_extent_buffer < read_block_for_search < "
     "btrfs_search_slot < btrfs_lookup_csum < btrfs_lookup_bio_sums < btrfs_submit_chunk"),
    ("dir_lock", "rwsem_down_read_slowpath < down_read < xfs_ilock_data_map_shared < xfs_dir_open"),
    ("memory", SCHED + "rwsem_down_read_slowpath < down_read < lock_mm_and_find_vma < "
     "do_user_addr_fault < asm_exc_page_fault < fault_in_readable"),
]  # fmt: skip


@pytest.mark.parametrize(("cause", "frames"), STACKS)
def test_real_stacks_are_named(cause, frames):
    rule = classify([frame.strip() for frame in frames.split("<")])
    assert rule is not None, "no rule knows this stack"
    assert rule.cause == cause, f"rule {rule.stack!r}"


def test_a_stack_without_meaning_is_not_named():
    assert classify(["__schedule", "schedule", "do_nanosleep", "hrtimer_nanosleep"]) is None


def test_frames_match_in_order_with_gaps_and_suffixes():
    rule = compile_rule("dir_lock", "inner* < outer|other")
    assert rule.pattern.search("x\ninner_a\ngap\nother\ny")
    assert rule.pattern.search("inner\nouter")
    assert not rule.pattern.search("outer\ninner")
    assert not rule.pattern.search("inner\nouter_not_whole")
    assert not rule.pattern.search("not_inner\nouter")
    assert classify(["inner_a.constprop.0", "outer.isra.0.cold"], [rule]) is rule


def test_rules_that_no_frame_of_a_trace_can_match_are_left_out():
    stacks = [[frame.strip() for frame in frames.split("<")] for _, frames in STACKS]
    for frames in stacks:
        assert classify(frames, of_use(frames, shipped_rules())) is classify(frames)
    wild = compile_rule("dir_lock", "inner*_part < outer|other")
    assert of_use(["other", "inner_2_part"], [wild]) == (wild,)
    assert of_use(["middle_part", "outer"], [wild]) == ()


def test_the_first_rule_wins(tmp_path):
    extra = tmp_path / "mine.toml"
    extra.write_text('rules = [\n { cause = "memory", stack = "jbd2_log_wait_commit" },\n]\n')
    rule = classify(["jbd2_log_wait_commit"], load_rules(extra))
    assert rule is not None
    assert rule.cause == "memory"


@pytest.mark.parametrize(
    "text",
    ['rules = [{ cause = "bad", stack = "x" }]', 'rules = [{ cause = "memory" }]', "rules = ["],
)
def test_bad_rules_are_refused_with_a_remedy(tmp_path, text):
    bad = tmp_path / "bad.toml"
    bad.write_text(text)
    with pytest.raises(SpoolscopeError) as caught:
        load_rules(bad)
    assert caught.value.remedy


def test_every_blocked_cause_has_a_rule():
    assert {rule.cause for rule in load_rules()} == set(BLOCKED_CAUSES)


@pytest.mark.parametrize("fstype", FILESYSTEMS)
def test_a_filesystem_has_rules_or_is_not_explained(fstype):
    ruled = {rule.filesystem for rule in load_rules()}
    assert ruled >= set(FILESYSTEMS[fstype].rules)
    assert FILESYSTEMS[fstype].explained or fstype not in ruled


def test_telling_frames_drop_the_plumbing():
    stack = ["bpf_prog_1", "__schedule", "schedule", "foo.part.0", "bar", "do_syscall_64"]
    assert telling(stack) == ("foo", "bar")


def test_every_cause_has_all_that_is_shown_of_it():
    inks = [cause.ink for cause in CAUSES.values()]
    assert len(set(inks)) == len(inks)
    for cause in CAUSES.values():
        assert cause.meaning.endswith(".")
        assert cause.objects or (cause.state and cause.change)
        assert cause.in_commit in PARTS


LISTS = {
    "insight_stages.py": "'inode_io', 'block_device'",
    "causes.py": '"cpu", "steal", "runq", "preempt"',
    "lookups.py": "'lookup_io', 'dir_lock'",
    "cpu.py": '"cpu", "steal"',
}
"""Lists of causes that are allowed, in modules about these causes."""


def test_what_is_known_of_causes_is_nowhere_repeated():
    word = rf"[\"']({'|'.join(CAUSES)})[\"']"
    folder = Path(causes.__file__).parent
    for file in sorted([*folder.glob("*.py"), *(folder.parent / "report").rglob("*.py")]):
        found = re.search(rf"{word}(,\s*{word})+", file.read_text())
        assert not found or found[0] == LISTS.get(file.name), (file.name, found)
