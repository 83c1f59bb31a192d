//! The cost of the recording, and the parts that are left out to stay within `--max-overhead`.
//!
//! The cost is the time of our BPF programs, from the kernel's run-time statistics, and the CPU
//! time of this process, as a share of all CPUs. The statistics cost something themselves, so
//! they are on for a tenth of a second only, every 10 s, or every second if there is a budget.

use std::os::fd::{AsFd, AsRawFd, OwnedFd};
use std::time::{Duration, Instant};

use anyhow::{Result, bail};
use libbpf_rs::Program;
use libbpf_rs::libbpf_sys::{bpf_obj_get_info_by_fd, bpf_prog_info};
use serde_json::{Value, json};
use spoolscope_traces::records::Shed;
use spoolscope_traces::segment::{Capture, Kind};

use crate::host;
use crate::statistics::Switch;

/// Time between two measurements with a budget and without, and length of one. The switch rewrites
/// code of the running kernel, so it is not used more often than needed.
const PERIOD: Duration = Duration::from_secs(1);
const PERIOD_WITHOUT: Duration = Duration::from_secs(10);
const SAMPLE: Duration = Duration::from_millis(100);
/// The last of `enum spsc_shed_level`.
const MOST: u32 = 3;
/// Number of consecutive measurements below half the budget that bring one level back.
const QUIET: u32 = 10;

/// Measures, and sheds if there is a budget.
pub struct Budget<'a> {
    programs: Vec<OwnedFd>,
    statistics: Switch,
    /// `shed` of state.bpf.h.
    shed: &'a mut u32,
    limit_ppm: Option<u32>,
    cpus: f64,
    next: Instant,
    sample: Option<Sample>,
    quiet: u32,
    seen: Vec<u32>,
    /// Overhead that led to the present level.
    last_ppm: u32,
    /// Time of our programs, and time, in samples since `bpf_share` was asked.
    sampled: (u64, u64),
    share: f64,
}

struct Sample {
    began: Instant,
    bpf_ns: u64,
    own_ns: i64,
}

impl<'a> Budget<'a> {
    /// `percent`: share of all CPUs together; None only measures.
    pub fn new<'p>(
        programs: impl Iterator<Item = Program<'p>>,
        statistics: Switch,
        shed: &'a mut u32,
        percent: Option<f64>,
    ) -> Result<Self> {
        let programs = programs
            .filter_map(|program| program.as_fd().try_clone_to_owned().ok())
            .collect();
        Ok(Budget {
            programs,
            statistics,
            shed,
            limit_ppm: percent.map(|p| (p * 10_000.0) as u32),
            cpus: std::thread::available_parallelism()?.get() as f64,
            next: Instant::now() + PERIOD / 2,
            sample: None,
            quiet: 0,
            seen: Vec::new(),
            last_ppm: 0,
            sampled: (0, 0),
            share: 0.0,
        })
    }

    /// Begin or end a sample when it is due. To be called every few milliseconds.
    pub fn tick(&mut self, capture: &mut Capture) -> Result<()> {
        match &self.sample {
            None if Instant::now() >= self.next => self.begin(),
            Some(sample) if sample.began.elapsed() >= SAMPLE => self.end(capture),
            _ => Ok(()),
        }
    }

    /// Add the measured overhead to the meta data: shares of all CPUs, in millionths.
    pub fn tell(&self, meta: &mut Value) {
        let mut seen = self.seen.clone();
        seen.sort_unstable();
        let at = |share: f64| seen.get((seen.len() as f64 * share) as usize).copied();
        meta["overhead_ppm"] = json!({"median": at(0.5), "p95": at(0.95), "n": seen.len()});
        meta["max_overhead_ppm"] = json!(self.limit_ppm);
    }

    /// Return the share of one CPU that our programs took in the samples since the last question;
    /// if there was none, the answer before.
    pub fn bpf_share(&mut self) -> f64 {
        if self.sampled.1 > 0 {
            self.share = self.sampled.0 as f64 / self.sampled.1 as f64;
            self.sampled = (0, 0);
        }
        self.share
    }

    fn begin(&mut self) -> Result<()> {
        self.next = Instant::now()
            + match self.limit_ppm {
                Some(_) => PERIOD,
                None => PERIOD_WITHOUT,
            };
        self.statistics.set(true)?;
        self.sample = Some(Sample {
            began: Instant::now(),
            bpf_ns: self.bpf_ns()?,
            own_ns: host::cpu_time(),
        });
        Ok(())
    }

    fn end(&mut self, capture: &mut Capture) -> Result<()> {
        let Some(sample) = self.sample.take() else {
            return Ok(());
        };
        self.statistics.set(false)?;
        let bpf_ns = self.bpf_ns()? - sample.bpf_ns;
        let own_ns = host::cpu_time() - sample.own_ns;
        let all_ns = sample.began.elapsed().as_nanos() as f64 * self.cpus;
        let ppm = ((bpf_ns as f64 + own_ns as f64) / all_ns * 1e6) as u32;
        self.seen.push(ppm);
        self.sampled.0 += bpf_ns;
        self.sampled.1 += sample.began.elapsed().as_nanos() as u64;
        match self.limit_ppm {
            Some(limit) => self.decide(ppm, limit, capture),
            None => Ok(()),
        }
    }

    fn decide(&mut self, ppm: u32, limit: u32, capture: &mut Capture) -> Result<()> {
        let level = *self.shed;
        self.quiet = if ppm < limit / 2 { self.quiet + 1 } else { 0 };
        let next = if ppm > limit {
            (level + 1).min(MOST)
        } else if self.quiet >= QUIET {
            self.quiet = 0;
            level.saturating_sub(1)
        } else {
            level
        };
        if next == level {
            return Ok(());
        }
        *self.shed = next;
        self.last_ppm = ppm;
        self.note(capture)
    }

    /// Note in a new segment what is being left out.
    pub fn repeat(&self, capture: &mut Capture) -> Result<()> {
        if *self.shed > 0 {
            self.note(capture)?;
        }
        Ok(())
    }

    fn note(&self, capture: &mut Capture) -> Result<()> {
        let shed = Shed {
            ts_ns: host::clock(libc::CLOCK_MONOTONIC) as u64,
            level: *self.shed,
            overhead_ppm: self.last_ppm,
        };
        capture.push(Kind::Shed, &shed)
    }

    /// Return the run time of all our programs, as far as the statistics were on.
    fn bpf_ns(&self) -> Result<u64> {
        let mut sum = 0;
        for program in &self.programs {
            let mut info = bpf_prog_info::default();
            let mut size = size_of::<bpf_prog_info>() as u32;
            // SAFETY: info has the size that is given; the kernel writes no more.
            let error = unsafe {
                bpf_obj_get_info_by_fd(program.as_raw_fd(), (&raw mut info).cast(), &raw mut size)
            };
            if error != 0 {
                bail!("Failed to read the statistics of a BPF program: error {error}");
            }
            sum += info.run_time_ns;
        }
        Ok(sum)
    }
}
