//! The report of a step: times, resource usage of its processes, laps, counts.

use crate::usage::{Usage, now_ns};
use anyhow::{Context, Result};
use serde::Serialize;
use std::collections::BTreeMap;
use std::fs::File;
use std::os::fd::AsRawFd;
use std::path::Path;

/// Durations of one kind of lap.
#[derive(Debug, Serialize)]
pub struct Laps {
    n: u64,
    sum_ns: u64,
    p50_ns: u64,
    p99_ns: u64,
    max_ns: u64,
}

impl Laps {
    /// Sum up some times, ns.
    pub fn of(mut times: Vec<u64>) -> Self {
        times.sort_unstable();
        let at = |share: f64| {
            let place = (share * times.len() as f64).ceil() as usize;
            times.get(place.saturating_sub(1)).copied().unwrap_or(0)
        };
        Self {
            n: times.len() as u64,
            sum_ns: times.iter().sum(),
            p50_ns: at(0.5),
            p99_ns: at(0.99),
            max_ns: times.last().copied().unwrap_or(0),
        }
    }
}

/// The results of a step.
#[derive(Debug, Default, Serialize)]
pub struct Report {
    /// Time from the begin of the first process to the end of the last.
    pub wall_ns: u64,
    /// Further time until all was on the disk.
    pub sync_ns: u64,
    /// Usage by name of the process.
    pub processes: BTreeMap<String, Usage>,
    /// Laps by kind.
    pub laps: BTreeMap<String, Laps>,
    /// Counts of bytes, files, messages.
    pub counts: BTreeMap<String, u64>,
}

impl Report {
    /// Add to a count.
    pub fn count(&mut self, what: &str, n: u64) {
        *self.counts.entry(what.to_owned()).or_default() += n;
    }

    /// Wait until all changes of a filesystem are on the disk.
    pub fn sync(&mut self, root: &Path) -> Result<()> {
        let place = File::open(root).with_context(|| format!("open {}", root.display()))?;
        let begin = now_ns();
        // SAFETY: the descriptor is open.
        if unsafe { libc::syncfs(place.as_raw_fd()) } != 0 {
            return Err(std::io::Error::last_os_error()).context("syncfs");
        }
        self.sync_ns = now_ns() - begin;
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::Laps;

    #[test]
    fn percentiles_are_times_that_were_seen() {
        let laps = Laps::of((1..=100).rev().collect());
        assert_eq!((laps.n, laps.sum_ns), (100, 5050));
        assert_eq!((laps.p50_ns, laps.p99_ns, laps.max_ns), (50, 99, 100));
        assert_eq!(Laps::of(vec![]).max_ns, 0);
    }
}
