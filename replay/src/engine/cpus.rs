//! Use of the machine's CPUs during the replay: without a free one nothing can be on time.

use std::fs::File;
use std::os::unix::fs::FileExt;

/// Time of all CPUs together, in ticks, since the machine started.
#[derive(Clone, Copy, Debug, Default)]
struct Ticks {
    all: u64,
    idle: u64,
    steal: u64,
}

impl Ticks {
    fn since(self, before: Self, least: u64) -> Option<Shares> {
        let all = self.all.checked_sub(before.all)?;
        let share = |now: u64, then: u64| now.saturating_sub(then) as f64 / all as f64;
        (all >= least).then(|| Shares {
            idle: share(self.idle, before.idle),
            steal: share(self.steal, before.steal),
        })
    }
}

/// Ticks that are enough to judge the machine by.
const TELLING: u64 = 20;

/// Reads /proc/stat, opened before the root directory changed.
#[derive(Debug)]
pub struct Meter {
    file: Option<File>,
    began: Ticks,
    lately: Ticks,
}

/// Shares of the CPUs' time in some period.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Shares {
    pub idle: f64,
    /// Taken by other machines of the same host.
    pub steal: f64,
}

impl Meter {
    pub fn open() -> Self {
        let mut meter = Self {
            file: File::open("/proc/stat").ok(),
            began: Ticks::default(),
            lately: Ticks::default(),
        };
        meter.lately = meter.read().unwrap_or_default();
        meter
    }

    pub fn start(&mut self) {
        self.began = self.read().unwrap_or_default();
    }

    /// Returns the shares since the start; `None` if they cannot be read, or no tick has passed.
    pub fn shares(&self) -> Option<Shares> {
        self.read()?.since(self.began, 1)
    }

    /// Returns the shares since the last answer; `None` if that is too short a time to judge.
    pub fn lately(&mut self) -> Option<Shares> {
        let now = self.read()?;
        let shares = now.since(self.lately, TELLING)?;
        self.lately = now;
        Some(shares)
    }

    fn read(&self) -> Option<Ticks> {
        let mut text = [0; 256];
        let n = self.file.as_ref()?.read_at(&mut text, 0).ok()?;
        parse(&text[..n])
    }
}

/// Parses the line of all CPUs: user, nice, system, idle, iowait, irq, softirq, steal, and guests'
/// time, which user and nice contain.
fn parse(text: &[u8]) -> Option<Ticks> {
    let line = std::str::from_utf8(text).ok()?.lines().next()?;
    let numbers: Option<Vec<u64>> = line
        .strip_prefix("cpu ")?
        .split_whitespace()
        .take(8)
        .map(|word| word.parse().ok())
        .collect();
    let numbers = numbers.filter(|numbers| numbers.len() == 8)?;
    Some(Ticks {
        all: numbers.iter().sum(),
        // A CPU that waits for a disk is free for other tasks.
        idle: numbers[3] + numbers[4],
        steal: numbers[7],
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn guests_are_not_counted_twice_and_iowait_is_free() {
        let ticks = parse(b"cpu  10 1 20 60 4 2 1 2 7 7\ncpu0 5").expect("a line");
        assert_eq!((ticks.all, ticks.idle, ticks.steal), (100, 64, 2));
        assert!(parse(b"intr 5").is_none());
        assert!(parse(b"cpu  10 1 20").is_none());
    }
}
