//! Work items of the kernel that are done for the spools, by the function that does them.

use anyhow::{Context, Result};
use libbpf_rs::{MapCore, MapFlags, MapMut};

use crate::host::Spool;
use crate::symbols;

// `enum work` of workers.bpf.h.
const ANY: u32 = 1;
const WRITEBACK: u32 = 2;
const LOOP: u32 = 3;
const LOOP_CGROUP: u32 = 4;
const EXT4_INODE: u32 = 5;
const XFS_INODE: u32 = 6;
const XFS_CIL: u32 = 7;
const BTRFS: u32 = 8;
const THROTTLE: u32 = 9;

/// Function, filesystem ("" for all of them), how to tell whose work it is.
const FUNCTIONS: &[(&str, &str, u32)] = &[
    ("wb_workfn", "", WRITEBACK),
    ("loop_rootcg_workfn", "", LOOP),
    ("loop_workfn", "", LOOP_CGROUP),
    ("blk_throtl_dispatch_work_fn", "", THROTTLE),
    ("ext4_end_io_rsv_work", "ext4", EXT4_INODE),
    ("xfs_end_io", "xfs", XFS_INODE),
    ("xfs_inodegc_worker", "xfs", ANY),
    ("xfs_log_worker", "xfs", ANY),
    ("xlog_ioend_work", "xfs", ANY),
    ("xlog_cil_push_work", "xfs", XFS_CIL),
    ("btrfs_work_helper", "btrfs", BTRFS),
    ("btrfs_async_reclaim_metadata_space", "btrfs", ANY),
];

/// Enters the addresses of these functions; a kernel without one of them has no such work.
pub fn name(map: &MapMut<'_>, spools: &[Spool]) -> Result<()> {
    let serves =
        |fstype: &str| fstype.is_empty() || spools.iter().any(|spool| spool.fstype == fstype);
    let wanted: Vec<_> = FUNCTIONS.iter().filter(|(_, of, _)| serves(of)).collect();
    let names: Vec<&str> = wanted.iter().map(|(name, ..)| *name).collect();
    for (address, at) in symbols::addresses_of(&names)? {
        map.update(
            &address.to_ne_bytes(),
            &wanted[at].2.to_ne_bytes(),
            MapFlags::ANY,
        )
        .context("Failed to name a work function")?;
    }
    Ok(())
}
