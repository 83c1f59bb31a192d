//! Work items that the kernel executes for the spools, identified by their functions.

use std::collections::BTreeSet;

use anyhow::{Context, Result};
use libbpf_rs::{MapCore, MapFlags, MapMut};
use spoolscope_traces::filesystems;

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

/// Functions that belong to no filesystem, and how to find the filesystem that they work for.
const FUNCTIONS: &[(&str, u32)] = &[
    ("wb_workfn", WRITEBACK),
    ("loop_rootcg_workfn", LOOP),
    ("loop_workfn", LOOP_CGROUP),
    ("blk_throtl_dispatch_work_fn", THROTTLE),
];
/// The words of `filesystems.toml` for these ways.
const WAYS: &[(&str, u32)] = &[
    ("any", ANY),
    ("ext4_inode", EXT4_INODE),
    ("xfs_inode", XFS_INODE),
    ("xfs_cil", XFS_CIL),
    ("btrfs", BTRFS),
];

/// Return the functions that may work for these types of filesystem.
fn functions<'a>(fstypes: impl Iterator<Item = &'a str>) -> Vec<(&'static str, u32)> {
    let types: BTreeSet<&str> = fstypes.collect();
    let workers = types.into_iter().filter_map(filesystems::by_type);
    let workers = workers.flat_map(|filesystem| &filesystem.workers);
    let of_types = workers.filter_map(|(name, way)| {
        let (_, number) = WAYS.iter().find(|(word, _)| word == way)?;
        Some((name.as_str(), *number))
    });
    FUNCTIONS.iter().copied().chain(of_types).collect()
}

/// Enter the addresses of these functions; a kernel without such a function has no such work.
pub fn name(map: &MapMut<'_>, spools: &[Spool]) -> Result<()> {
    let wanted = functions(spools.iter().map(|spool| spool.fstype.as_str()));
    let names: Vec<&str> = wanted.iter().map(|(name, _)| *name).collect();
    for (address, at) in symbols::addresses_of(&names)? {
        map.update(
            &address.to_ne_bytes(),
            &wanted[at].1.to_ne_bytes(),
            MapFlags::ANY,
        )
        .context("Failed to name a work function")?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_word_of_the_table_is_known() {
        for filesystem in filesystems::all() {
            for (name, way) in &filesystem.workers {
                assert!(WAYS.iter().any(|(word, _)| word == way), "{name}: {way}");
            }
        }
    }

    #[test]
    fn functions_of_the_spools_alone() {
        let names: Vec<_> = functions(["xfs", "xfs"].into_iter()).into_iter().collect();
        assert_eq!(names.len(), FUNCTIONS.len() + 5);
        assert!(names.contains(&("xlog_cil_push_work", XFS_CIL)));
        assert_eq!(functions(std::iter::empty()).len(), FUNCTIONS.len());
    }
}
