//! The ring buffers between kernel and recorder: one per CPU and one for all.

use std::fs;
use std::os::fd::{AsFd, AsRawFd};

use anyhow::{Context, Result};
use libbpf_rs::libbpf_sys::bpf_map_create_opts;
use libbpf_rs::{MapCore, MapFlags, MapHandle, MapMut, MapType};

/// Least size of a ring: it must hold the records that come while the recorder waits for a CPU.
const LEAST_BYTES: u32 = 256 << 10;

/// Return the number of CPU numbers; CPUs may be missing in between.
pub fn cpus() -> Result<u32> {
    let text = fs::read_to_string("/sys/devices/system/cpu/present")
        .context("Failed to read which CPUs there are")?;
    let last = text.trim().rsplit([',', '-']).next().unwrap_or_default();
    Ok(last.parse::<u32>().context("no number of CPUs")? + 1)
}

/// Make the rings, of `total_mib` MiB together, and hand them to the BPF programs.
pub fn make(rings: &MapMut<'_>, total_mib: u32) -> Result<Vec<MapHandle>> {
    let n = cpus()? + 1;
    let fair = (u64::from(total_mib) << 20) / u64::from(n);
    let bytes = (fair as u32 + 1).next_power_of_two() / 2;
    let options = bpf_map_create_opts {
        sz: size_of::<bpf_map_create_opts>() as _,
        ..Default::default()
    };
    (0..n)
        .map(|index| {
            let size = bytes.max(LEAST_BYTES);
            let ring = MapHandle::create(MapType::RingBuf, Some("ring"), 0, 0, size, &options)
                .context("Failed to make a ring buffer: give a smaller --ring-mib")?;
            let fd = ring.as_fd().as_raw_fd() as u32;
            rings.update(&index.to_ne_bytes(), &fd.to_ne_bytes(), MapFlags::ANY)?;
            Ok(ring)
        })
        .collect()
}
