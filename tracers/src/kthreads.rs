//! Kernel threads that work for the spools, by the names the kernel gives them.

use std::fs;

use crate::host::Spool;
use crate::skel::types;

/// `enum watch` of state.bpf.h.
const OTHER: u32 = 1;
const JBD2: u32 = 2;
/// Bytes of a thread's name, with NUL.
const COMM: usize = 16;

/// Writes the names to look for; more than there is room for are left out.
pub fn apply(rodata: &mut types::rodata, spools: &[Spool]) {
    let mut names: Vec<(String, u32)> = spools.iter().flat_map(of).collect();
    names.sort();
    names.dedup();
    names.truncate(rodata.watch_names.len());
    for (slot, (name, kind)) in rodata.watch_names.iter_mut().zip(&names) {
        let bytes = &name.as_bytes()[..name.len().min(COMM - 1)];
        for (to, from) in slot.name.iter_mut().zip(bytes) {
            *to = *from as _;
        }
        // A name cut at 15 bytes, or ending in NUL here, ends so there as well.
        slot.length = bytes.len() as u32;
        slot.kind = *kind;
    }
    rodata.n_watch = names.len() as u32;
}

/// "jbd2/sda1-8", "xfsaild/sda1": the device as in /sys/dev/block.
fn of(spool: &Spool) -> Vec<(String, u32)> {
    let Some(device) = device_name(spool.dev) else {
        return match spool.fstype.as_str() {
            // All of one name. Which of them is the spool's only their work tells.
            "btrfs" => vec![("btrfs-transacti".to_owned(), OTHER)],
            _ => Vec::new(),
        };
    };
    match spool.fstype.as_str() {
        "xfs" => vec![(format!("xfsaild/{device}\0"), OTHER)],
        "ext3" | "ext4" => vec![(format!("jbd2/{device}-"), JBD2)],
        _ => Vec::new(),
    }
}

fn device_name(dev: u32) -> Option<String> {
    let link = format!("/sys/dev/block/{}:{}", dev >> 20, dev & 0xf_ffff);
    let path = fs::canonicalize(link).ok()?;
    Some(path.file_name()?.to_str()?.to_owned())
}
