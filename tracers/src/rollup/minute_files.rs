//! The borders between minutes, aligned to the wall clock, and the file of each minute.

use std::collections::BTreeMap;
use std::fs::{self, OpenOptions};
use std::io::Write;
use std::os::unix::fs::OpenOptionsExt;
use std::path::Path;

use anyhow::{Context, Result};
use serde_json::{Value, json};
use spoolscope_traces::calls;

use super::sum_rows::{CommitKey, CommitSum, Key, Sum};
use crate::cgroups;

/// A minute that begins so shortly before a border of the wall clock belongs to the one after it:
/// the two clocks do not run at the same speed.
const TOLERANCE_NS: i64 = 50_000_000;

/// A stretch of time whose sums make one file: a minute, or an interval of a live view.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Minute {
    /// Counter from 0.
    pub seq: u64,
    /// Begin of the minute of the wall clock that it lies in, in ns.
    pub slot_ns: i64,
    /// Begin and end, CLOCK_MONOTONIC.
    pub start_ns: u64,
    pub end_ns: u64,
    /// CLOCK_REALTIME minus CLOCK_MONOTONIC at its begin.
    shift_ns: i64,
}

impl Minute {
    /// Return the minute that begins at `start_ns`. Its end is the next border of the wall clock
    /// that is not before `earliest_ns`.
    pub fn at(seq: u64, start_ns: u64, earliest_ns: u64, shift_ns: i64, period_ns: i64) -> Minute {
        let tolerance_ns = TOLERANCE_NS.min(period_ns / 8);
        let slot = |mono_ns: u64| (mono_ns as i64 + shift_ns + tolerance_ns).div_euclid(period_ns);
        let border_ns = (slot(start_ns.max(earliest_ns)) + 1) * period_ns - shift_ns;
        Minute {
            seq,
            slot_ns: slot(start_ns) * period_ns,
            start_ns,
            end_ns: border_ns as u64 & !1,
            shift_ns,
        }
    }

    /// Return the fields of its file that are about its time, given the clocks' distance now.
    pub fn times(&self, shift_ns: i64) -> Value {
        json!({
            "seq": self.seq,
            "minute_s": self.slot_ns.div_euclid(1_000_000_000),
            "start_ns": self.start_ns as i64 + self.shift_ns,
            "covered_ns": self.end_ns - self.start_ns,
            "clock_step_ns": shift_ns - self.shift_ns,
        })
    }
}

/// Numbers programs, that is, pairs of a thread's name and its control group.
#[derive(Debug, Default)]
pub struct Programs {
    numbers: BTreeMap<([u8; 16], u64), usize>,
    names: Vec<Value>,
}

impl Programs {
    fn number(&mut self, comm: [u8; 16], cgroup_id: u64, groups: &cgroups::Names) -> usize {
        let names = &mut self.names;
        *self.numbers.entry((comm, cgroup_id)).or_insert_with(|| {
            let end = comm.iter().position(|byte| *byte == 0).unwrap_or(16);
            names.push(json!([
                String::from_utf8_lossy(&comm[..end]),
                groups.name(cgroup_id).unwrap_or_default(),
            ]));
            names.len() - 1
        })
    }

    /// Return the sums of calls by column.
    pub fn calls<'k>(
        &mut self,
        sums: impl Iterator<Item = (&'k Key, &'k Sum)>,
        cause: impl Fn(u8) -> usize,
        groups: &cgroups::Names,
    ) -> Value {
        let mut columns: [Vec<i64>; 9] = Default::default();
        for (key, sum) in sums {
            let row = [
                key.dev.into(),
                self.number(key.comm, key.cgroup_id, groups) as i64,
                key.call.into(),
                cause(key.cause) as i64,
                key.size_class.into(),
                key.failed.into(),
                key.bucket.into(),
                sum.n as i64,
                sum.ns as i64,
            ];
            for (column, value) in columns.iter_mut().zip(row) {
                column.push(value);
            }
        }
        let [
            dev,
            program,
            call,
            cause,
            size_class,
            failed,
            bucket,
            n,
            sum_ns,
        ] = columns;
        json!({
            "dev": dev, "program": program, "call": call, "cause": cause,
            "size_class": size_class, "failed": failed, "bucket": bucket, "n": n, "sum_ns": sum_ns,
        })
    }

    /// Return the sums of commits, a list each.
    pub fn commits<'k>(
        &mut self,
        sums: impl Iterator<Item = (&'k CommitKey, &'k CommitSum)>,
        groups: &cgroups::Names,
    ) -> Value {
        let rows = sums.map(|(key, sum)| {
            let program = self.number(key.comm, key.cgroup_id, groups);
            json!([key.dev, program, sum.n, sum.ns, sum.max_ns])
        });
        rows.collect()
    }

    /// Return the pairs in the order of their numbers: name, control group.
    pub fn into_json(self) -> Value {
        self.names.into()
    }
}

/// Return the names of all calls by id.
pub fn call_names() -> Value {
    let mut names = BTreeMap::new();
    for call in calls::all() {
        names.insert(call.id, call.name);
    }
    let last = names.keys().last().copied().unwrap_or(0);
    let name = |id| names.get(&id).copied().unwrap_or_default();
    (0..=last).map(name).collect()
}

/// Write the file of a minute; it is there only when it is whole.
pub fn write(path: &Path, content: &Value) -> Result<()> {
    let unfinished = path.with_extension("part");
    let mut file = OpenOptions::new()
        .write(true)
        .create_new(true)
        .mode(0o600)
        .custom_flags(libc::O_NOFOLLOW)
        .open(&unfinished)
        .context("Failed to write the sums of a minute")?;
    file.write_all(content.to_string().as_bytes())?;
    file.sync_data()?;
    fs::rename(&unfinished, path).context("Failed to write the sums of a minute")
}

#[cfg(test)]
mod tests {
    use super::*;

    const S: i64 = 1_000_000_000;
    const MINUTE: i64 = 60 * S;

    fn minute(start_s: f64, earliest_s: f64, shift_s: i64) -> (i64, f64) {
        let ns = |s: f64| (s * 1e9) as u64;
        let found = Minute::at(0, ns(start_s), ns(earliest_s), shift_s * S, MINUTE);
        (found.slot_ns / S, found.end_ns as f64 / 1e9)
    }

    #[test]
    fn minutes_end_with_those_of_the_wall_clock() {
        assert_eq!(minute(10.0, 0.0, 1000), (960, 20.0));
        assert_eq!(minute(20.0, 0.0, 1000), (1020, 80.0));
        assert_eq!(
            minute(19.96, 0.0, 1000),
            (1020, 80.0),
            "the clocks differ a little"
        );
    }

    #[test]
    fn a_recorder_that_was_stopped_says_so_by_a_long_minute() {
        assert_eq!(minute(20.0, 150.0, 1000), (1020, 200.0));
    }

    #[test]
    fn a_clock_step_is_told() {
        let before = Minute::at(3, 0, 0, 100 * S, MINUTE);
        let times = before.times(97 * S);
        assert_eq!(times["clock_step_ns"], -3 * S);
        assert_eq!(times["covered_ns"], 20 * S);
        assert_eq!(times["minute_s"], 60);
    }
}
