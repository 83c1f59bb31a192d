//! Counters of the BPF programs: records lost, calls that could not be judged.

use std::collections::BTreeMap;

use anyhow::Result;
use libbpf_rs::{MapCore, MapFlags, MapMut};
use serde_json::{Value, json};

/// Counters that do not count lost records; numbers as in state.bpf.h.
const OTHERS: [(u32, &str); 7] = [
    (48, "calls_unjudged"),
    (49, "compat_calls"),
    (50, "records_rescued"),
    (51, "requests_not_completed"),
    (53, "calls_apart"),
    (54, "calls_through_descriptors"),
    (55, "aio_calls"),
];

/// All counters at one moment, by their number; zeros are left out.
#[derive(Debug, Clone, Default)]
pub struct Counters(BTreeMap<u32, u64>);

impl Counters {
    /// Read all counters.
    pub fn read(counts: &MapMut<'_>) -> Result<Counters> {
        let mut found = BTreeMap::new();
        for at in (0..OTHERS[0].0).chain(OTHERS.map(|(at, _)| at)) {
            found.insert(at, sum(counts, at)?);
        }
        found.retain(|_, n| *n > 0);
        Ok(Counters(found))
    }

    /// Subtract from a counter what turned out not to be lost.
    pub fn less(&mut self, at: u32, n: u64) {
        if let Some(count) = self.0.get_mut(&at) {
            *count = count.saturating_sub(n);
        }
    }

    /// Return the growth of the counters since an earlier moment.
    pub fn since(&self, before: &Counters) -> Counters {
        let grown = |(at, n): (&u32, &u64)| (*at, n.saturating_sub(before.get(*at)));
        Counters(self.0.iter().map(grown).filter(|(_, n)| *n > 0).collect())
    }

    fn get(&self, at: u32) -> u64 {
        self.0.get(&at).copied().unwrap_or(0)
    }

    /// Return `lost_records` by `enum spsc_kind` (0 = no memory for a task's state), and the other
    /// counters by their names.
    pub fn meta(&self) -> Value {
        let lost: BTreeMap<_, _> = self.0.range(..OTHERS[0].0).collect();
        let mut meta = json!({"lost_records": lost});
        for (at, name) in OTHERS {
            meta[name] = self.get(at).into();
        }
        meta
    }
}

/// Sum a counter over all CPUs.
pub fn sum(counts: &MapMut<'_>, at: u32) -> Result<u64> {
    let per_cpu = counts.lookup_percpu(&at.to_ne_bytes(), MapFlags::ANY)?;
    Ok(per_cpu
        .unwrap_or_default()
        .iter()
        .map(|value| bytemuck::pod_read_unaligned::<u64>(value))
        .sum())
}
