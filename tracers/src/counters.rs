//! What the BPF programs counted: records lost, calls that could not be judged.

use std::collections::BTreeMap;

use anyhow::Result;
use libbpf_rs::{MapCore, MapFlags, MapMut};
use serde_json::{Value, json};

/// Counters that are no loss of a record; numbers as in state.bpf.h.
const OTHERS: [(u32, &str); 3] = [
    (48, "calls_unjudged"),
    (49, "compat_calls"),
    (50, "records_rescued"),
];

/// Adds to the meta: `lost_records` by `enum spsc_kind` (0 = no memory for a task's state), and
/// the other counters by their names.
pub fn tell(counts: &MapMut<'_>, meta: &mut Value) -> Result<()> {
    let mut lost = BTreeMap::new();
    for kind in 0..OTHERS[0].0 {
        let n = sum(counts, kind)?;
        if n > 0 {
            lost.insert(kind, n);
        }
    }
    meta["lost_records"] = json!(lost);
    for (at, name) in OTHERS {
        meta[name] = sum(counts, at)?.into();
    }
    Ok(())
}

/// Over all CPUs.
fn sum(counts: &MapMut<'_>, at: u32) -> Result<u64> {
    let per_cpu = counts.lookup_percpu(&at.to_ne_bytes(), MapFlags::ANY)?;
    Ok(per_cpu
        .unwrap_or_default()
        .iter()
        .map(|value| bytemuck::pod_read_unaligned::<u64>(value))
        .sum())
}
