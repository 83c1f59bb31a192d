//! Kernel threads that work for the spools, by name.

use std::fs;

use spoolscope_traces::filesystems;

use crate::host::Spool;
use crate::skel::types;

/// `enum watch` of state.bpf.h.
const OTHER: u32 = 1;
const JBD2: u32 = 2;
/// Bytes of a thread's name, with NUL.
const COMM: usize = 16;

/// Write the names to look for; names beyond the room in the table are left out.
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
        // A name that is cut at 15 bytes, or that ends in NUL here, ends at the same place in the
        // kernel.
        slot.length = bytes.len() as u32;
        slot.kind = *kind;
    }
    rodata.n_watch = names.len() as u32;
}

/// Return the names of the kernel threads of a spool, and their kinds.
fn of(spool: &Spool) -> Vec<(String, u32)> {
    let Some(filesystem) = filesystems::by_type(&spool.fstype) else {
        return Vec::new();
    };
    let device = device_name(spool.dev);
    let number = format!("{}:{}", spool.dev >> 20, spool.dev & 0xf_ffff);
    let names = filesystem.threads.iter();
    names
        .filter_map(|name| filled(name, device.as_deref(), &number))
        .map(|name| {
            let kind = if name.starts_with("jbd2/") {
                JBD2
            } else {
                OTHER
            };
            (name, kind)
        })
        .collect()
}

/// Fill in the device as in /sys/dev/block: "jbd2/sda1-", "xfsaild/sda1\0". None if the name needs
/// a device and the filesystem has none. A name that is not just a prefix ends in NUL.
fn filled(name: &str, device: Option<&str>, number: &str) -> Option<String> {
    if name.contains("{") && device.is_none() {
        return None;
    }
    let name = name
        .replace("{device}", device.unwrap_or_default())
        .replace("{number}", number);
    let beginning = name.strip_suffix('*').map(str::to_owned);
    Some(beginning.unwrap_or_else(|| format!("{name}\0")))
}

fn device_name(dev: u32) -> Option<String> {
    let link = format!("/sys/dev/block/{}:{}", dev >> 20, dev & 0xf_ffff);
    let path = fs::canonicalize(link).ok()?;
    Some(path.file_name()?.to_str()?.to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_filled_with_the_device() {
        let name = |text| filled(text, Some("sda1"), "8:1");
        assert_eq!(name("jbd2/{device}-*").as_deref(), Some("jbd2/sda1-"));
        assert_eq!(name("xfsaild/{device}").as_deref(), Some("xfsaild/sda1\0"));
        assert_eq!(name("f2fs_gc-{number}").as_deref(), Some("f2fs_gc-8:1\0"));
        assert_eq!(filled("xfsaild/{device}", None, "0:40"), None);
        let all = filled("btrfs-transacti", None, "0:40");
        assert_eq!(all.as_deref(), Some("btrfs-transacti\0"));
    }
}
