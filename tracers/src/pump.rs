//! Moves records from the ring and the snapshot into the capture until the recording ends.

use std::cell::RefCell;
use std::time::{Duration, Instant};

use anyhow::{Context, Result};
use libbpf_rs::RingBuffer;
use rustc_hash::FxHashSet;
use serde_json::{Value, json};

use crate::budget::Budget;
use crate::cli::Options;
use crate::command::Command;
use crate::host::{self, Spool};
use crate::mounted::Watch;
use crate::probes::Probes;
use crate::rollup::Rollup;
use crate::rotation::Rotation;
use crate::segments::Segments;
use crate::snapshot::{self, Part, Scan};
use crate::touched::Touched;
use crate::{answer, cgroups, signals};

/// How often the ring is emptied; a full 64 MiB ring holds many such intervals.
const TICK: Duration = Duration::from_millis(5);
/// The same if calls are only summed: the rings then hold little.
const SLOW_TICK: Duration = Duration::from_millis(50);
/// Longest time that records stay in the buffer before they are written.
const FLUSH: Duration = Duration::from_secs(1);
/// Time for the snapshot to finish after the recording has ended: it may wait for the disk.
const PATIENCE: Duration = Duration::from_secs(2);
/// Time for a terminated command to end; after that the recording ends without it.
const GRACE: Duration = Duration::from_secs(5);

/// Time for the listing of directories after the end.
const LISTING: Duration = Duration::from_secs(5);

/// The reason why a recording ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum End {
    /// The time was up, or a signal came.
    Asked,
    /// The command ended.
    Command,
    /// The disk of the output is full.
    DiskFull,
}

impl End {
    /// Return the name for meta.json.
    pub fn name(self) -> &'static str {
        match self {
            End::Asked => "asked",
            End::Command => "command ended",
            End::DiskFull => "disk full",
        }
    }
}

/// Moves records from the ring and the snapshot into the capture.
pub struct Pump<'a, 'r> {
    ring: &'a RingBuffer<'a>,
    segments: &'a RefCell<Segments>,
    rollup: &'a RefCell<Option<Rollup<'r>>>,
    /// The limit of the recording's cost.
    pub budget: Budget<'a>,
    flushed: Instant,
    mounts: Watch,
    options: &'a Options,
    /// The end of `--duration`, which counts from the first recorded call.
    deadline: Option<Instant>,
    /// Names of control groups, also of those that are gone.
    pub cgroups: cgroups::Names,
}

impl<'a, 'r> Pump<'a, 'r> {
    pub fn new(
        ring: &'a RingBuffer<'a>,
        segments: &'a RefCell<Segments>,
        rollup: &'a RefCell<Option<Rollup<'r>>>,
        budget: Budget<'a>,
        mounts: Watch,
        options: &'a Options,
    ) -> Result<Pump<'a, 'r>> {
        let now = Instant::now();
        Ok(Pump {
            ring,
            segments,
            rollup,
            budget,
            flushed: now,
            mounts,
            options,
            deadline: options.duration.map(|s| now + Duration::from_secs_f64(s)),
            cgroups: cgroups::Names::now()?,
        })
    }

    /// Store the records that the rings hold now.
    pub fn drain(&mut self) -> Result<()> {
        let began_ns = host::clock(libc::CLOCK_MONOTONIC) as u64;
        self.ring.consume().context("Failed to store records")?;
        if let Some(rollup) = self.rollup.borrow_mut().as_mut() {
            if let Some(file) = rollup.tick(began_ns, &mut self.budget, &self.cgroups)? {
                answer::say(self.options, &json!({"event": "minute", "file": file}))?;
            }
        }
        for (event, spool) in self.mounts.news()? {
            answer::say(self.options, &json!({"event": event, "spool": spool}))?;
        }
        let mut segments = self.segments.borrow_mut();
        segments.follow(began_ns)?;
        self.budget.tick(segments.current())?;
        let all = self.flushed.elapsed() > FLUSH;
        if all {
            self.flushed = Instant::now();
            self.cgroups.refresh();
        }
        segments.write(began_ns, all)
    }

    /// Write the sums that are left, once the programs are detached.
    pub fn end_rollup(&mut self, end_ns: u64) -> Result<()> {
        if let Some(rollup) = self.rollup.borrow_mut().as_mut() {
            for file in rollup.end(end_ns, &mut self.budget, &self.cgroups)? {
                answer::say(self.options, &json!({"event": "minute", "file": file}))?;
            }
        }
        Ok(())
    }

    /// Return true if the recording is to end for another reason than the end of its command.
    pub fn is_over(&self) -> bool {
        let late = self.deadline.is_some_and(|at| Instant::now() >= at);
        late || signals::stop_asked() || self.segments.borrow().is_full()
    }

    /// Return the reason why the recording ends when `is_over`.
    pub fn asked(&self) -> End {
        match self.segments.borrow().is_full() {
            true => End::DiskFull,
            false => End::Asked,
        }
    }

    /// Take and store the snapshot, and meanwhile the records of the rings; return false if it is
    /// not complete, in most cases because the recording was over before.
    pub fn until_snapshot(&mut self, probes: &Probes<'_>, spools: &[Spool]) -> Result<bool> {
        self.segments.borrow_mut().forks = Some(FxHashSet::default());
        let mut whole = self.until_found(Part::processes(probes.open_files()?, spools))?;
        self.drain()?; // forks until its end
        let pids = self.segments.borrow_mut().forks.take().unwrap_or_default();
        if !pids.is_empty() {
            let open_files = probes.open_files()?;
            let spools = spools.to_vec();
            whole &= self.until_found(Part::Forked {
                open_files,
                pids,
                spools,
            })?;
        }
        Ok(self.until_found(Part::tree(self.options, spools))? && whole)
    }

    /// Take a part of it; return false if that is not complete. If the scanning thread sleeps in
    /// the kernel when the recording is over, it is not waited for.
    fn until_found(&mut self, part: Part) -> Result<bool> {
        use std::sync::mpsc::RecvTimeoutError;
        let mut scan = Scan::begin(part);
        let mut over: Option<Instant> = None;
        host::come_first();
        loop {
            match scan.found.recv_timeout(TICK) {
                Ok(item) => {
                    let mut segments = self.segments.borrow_mut();
                    for item in std::iter::once(item).chain(scan.found.try_iter().take(4096)) {
                        if let Some(touched) = &mut segments.touched {
                            touched.found(&item);
                        }
                        snapshot::store(segments.snapshot(), item)?;
                    }
                }
                Err(RecvTimeoutError::Timeout) => {}
                Err(RecvTimeoutError::Disconnected) => {
                    return Ok(scan.end()? && over.is_none());
                }
            }
            self.drain()?;
            if over.is_none() && self.is_over() {
                scan.stop();
                over = Some(Instant::now());
            }
            if over.is_some_and(|since| since.elapsed() > PATIENCE) {
                return Ok(false);
            }
        }
    }

    /// Add the facts known at the end to meta.json: costs, control groups, directories listed.
    pub fn tell(&mut self, meta: &mut Value) {
        self.budget.tell(meta);
        self.cgroups.tell(meta);
        self.mounts.tell(meta);
        meta["user_stacks"] = self.segments.borrow_mut().user_stacks.take_json();
        meta["listed"] = json!(self.segments.borrow().touched.as_ref().map(Touched::facts));
    }

    /// Continue until the directories that calls used are listed, or the time for it is over.
    pub fn until_listed(&mut self, end: End) -> Result<()> {
        let began = Instant::now();
        loop {
            self.drain()?;
            let mut segments = self.segments.borrow_mut();
            let Some(touched) = &mut segments.touched else {
                return Ok(());
            };
            if touched.ends() || end == End::DiskFull || began.elapsed() > LISTING {
                let rest = touched.end()?;
                return segments.store_names(rest);
            }
            drop(segments);
            std::thread::sleep(TICK);
        }
    }

    /// Continue until the end; return its reason, and the command's wait status if it has ended.
    pub fn until_stopped(
        &mut self,
        rotation: &mut Rotation<'_>,
        command: Option<&mut Command>,
    ) -> Result<(End, Option<i32>)> {
        let mut asked: Option<Instant> = None;
        loop {
            self.drain()?;
            if rotation.step(&mut self.cgroups)? {
                self.budget.repeat(self.segments.borrow_mut().current())?;
            }
            if self.segments.borrow().is_full() {
                return Ok((End::DiskFull, None));
            }
            if let Some(status) = command.as_ref().and_then(|c| c.ended()) {
                return Ok((End::Command, Some(status)));
            }
            let stop = self.is_over();
            match (&command, asked) {
                (None, _) if stop => return Ok((End::Asked, None)),
                (Some(command), None) if stop => {
                    command.terminate();
                    asked = Some(Instant::now());
                }
                (Some(_), Some(since)) if since.elapsed() > GRACE => return Ok((End::Asked, None)),
                _ => {}
            }
            std::thread::sleep(if self.options.only_sums() {
                SLOW_TICK
            } else {
                TICK
            });
        }
    }
}
