//! Reads the kernel's tables of sums and empties them.

use std::os::fd::{AsFd, AsRawFd};

use anyhow::{Result, bail};
use bytemuck::Pod;
use libbpf_rs::libbpf_sys::{bpf_map_batch_opts, bpf_map_lookup_and_delete_batch};
use libbpf_rs::{MapMut, OpenMapMut};

use super::sum_rows::Sums;

/// Most rows of calls, commits and directories in one table, and most stacks with known causes.
pub const CALLS: u32 = 32_768;
const COMMITS: u32 = 4096;
const DIRECTORIES: u32 = 8192;
const STACKS: u32 = 8192;

/// Rows that are read at once, at first: a bucket of the kernel's hash table has to fit.
const BATCH: usize = 1024;

/// The tables before and after a border.
#[allow(missing_debug_implementations)] // BPF maps have none
pub struct Tables<'a> {
    pub calls: [&'a MapMut<'a>; 2],
    pub commits: [&'a MapMut<'a>; 2],
    pub directories: [&'a MapMut<'a>; 2],
}

/// Give the tables their sizes; without, they have room for one row.
pub fn make_room<'o>(
    calls: [&mut OpenMapMut<'o>; 2],
    commits: [&mut OpenMapMut<'o>; 2],
    directories: [&mut OpenMapMut<'o>; 2],
    stacks: [&mut OpenMapMut<'o>; 2],
) -> Result<()> {
    for (maps, rows) in [
        (calls, CALLS),
        (commits, COMMITS),
        (directories, DIRECTORIES),
        (stacks, STACKS),
    ] {
        for map in maps {
            map.set_max_entries(rows)?;
        }
    }
    Ok(())
}

impl Tables<'_> {
    /// Move all rows of the tables on one side of the border into `sums`.
    pub fn take(&self, side: usize, sums: &mut Sums) -> Result<()> {
        take(self.calls[side], |key, of_cpus| sums.add(key, of_cpus))?;
        take(self.commits[side], |key, of_cpus| {
            sums.add_commits(key, of_cpus);
        })
    }

    /// Call `each` with every directory on one side of the border; remove them.
    pub fn take_directories<V: Pod>(
        &self,
        side: usize,
        each: impl FnMut(&super::sum_rows::DirectoryKey, &[V]),
    ) -> Result<()> {
        take(self.directories[side], each)
    }
}

/// Call `each` with every key of a map and its values by CPU; remove them.
fn take<K: Pod, V: Pod>(map: &MapMut<'_>, mut each: impl FnMut(&K, &[V])) -> Result<()> {
    let cpus = libbpf_rs::num_possible_cpus()?;
    let options = bpf_map_batch_opts {
        sz: size_of::<bpf_map_batch_opts>() as _,
        ..Default::default()
    };
    let mut room = BATCH;
    let (mut place, mut begun) = (0u32, false);
    loop {
        let mut keys = vec![K::zeroed(); room];
        let mut values = vec![V::zeroed(); room * cpus];
        let mut next = 0u32;
        let mut n = room as u32;
        let from: *mut u32 = if begun {
            &raw mut place
        } else {
            std::ptr::null_mut()
        };
        // SAFETY: keys and values have room for n rows of this map's types; the kernel writes no
        // more.
        let code = unsafe {
            bpf_map_lookup_and_delete_batch(
                map.as_fd().as_raw_fd(),
                from.cast(),
                (&raw mut next).cast(),
                keys.as_mut_ptr().cast(),
                values.as_mut_ptr().cast(),
                &raw mut n,
                &raw const options,
            )
        };
        if code == -libc::ENOSPC {
            room *= 2;
            continue;
        }
        if code != 0 && code != -libc::ENOENT {
            bail!("Failed to read the sums of the kernel: error {}", -code);
        }
        for (key, of_cpus) in keys.iter().zip(values.chunks_exact(cpus)).take(n as usize) {
            each(key, of_cpus);
        }
        if code != 0 {
            return Ok(());
        }
        (place, begun) = (next, true);
    }
}
