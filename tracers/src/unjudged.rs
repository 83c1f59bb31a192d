//! Calls by absolute names that could not be judged, with their processes.

use anyhow::Result;
use libbpf_rs::{MapCore, MapFlags, MapMut};
use serde_json::{Value, json};

/// `struct unjudged` of views.bpf.h.
#[repr(C)]
#[derive(Debug, Clone, Copy, bytemuck::Pod, bytemuck::Zeroable)]
struct Unjudged {
    calls: u64,
    cgroup_id: u64,
    pid: u32,
    why: u32,
    comm: [u8; 16],
}

/// `UNJUDGED_MANY` of views.bpf.h.
const MANY: u32 = 2;

/// Take them out of the map: one object for each root directory, with the process that called from
/// there first.
pub fn take(map: &MapMut<'_>) -> Result<Value> {
    let mut found = Vec::new();
    for key in map.keys().collect::<Vec<_>>() {
        if let Some(value) = map.lookup(&key, MapFlags::ANY)? {
            let calls: Unjudged = bytemuck::pod_read_unaligned(&value);
            let comm = calls.comm.split(|byte| *byte == 0).next();
            found.push(json!({
                "comm": String::from_utf8_lossy(comm.unwrap_or_default()),
                "pid": calls.pid,
                "cgroup_id": calls.cgroup_id,
                "calls": calls.calls,
                "why": if calls.why == MANY { "many names" } else { "not looked at" },
            }));
        }
        map.delete(&key)?;
    }
    Ok(found.into())
}
