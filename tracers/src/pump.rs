//! Moves records from the ring and the snapshot into the capture until the recording ends.

use std::cell::RefCell;
use std::time::{Duration, Instant};

use anyhow::{Context, Result};
use libbpf_rs::RingBuffer;
use rustc_hash::FxHashSet;
use serde_json::{Value, json};

use crate::budget::Budget;
use crate::cgroups;
use crate::cli::Options;
use crate::command::Command;
use crate::host::{self, Spool};
use crate::probes::Probes;
use crate::rotation::Rotation;
use crate::segments::Segments;
use crate::signals;
use crate::snapshot::{self, Part, Scan};
use crate::touched::Touched;

/// How often the ring is emptied; a full 64 MiB ring holds many such intervals.
const TICK: Duration = Duration::from_millis(5);
/// How old buffered records get before they are written.
const FLUSH: Duration = Duration::from_secs(1);
/// Time a terminated command gets before the recording ends without it.
const GRACE: Duration = Duration::from_secs(5);

/// Time that the listing of directories gets after the end.
const LISTING: Duration = Duration::from_secs(5);

/// Why a recording ended.
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
    /// As meta.json has it.
    pub fn name(self) -> &'static str {
        match self {
            End::Asked => "asked",
            End::Command => "command ended",
            End::DiskFull => "disk full",
        }
    }
}

/// Moves records from the ring and the snapshot into the capture.
pub struct Pump<'a> {
    ring: &'a RingBuffer<'a>,
    segments: &'a RefCell<Segments>,
    /// What recording may cost.
    pub budget: Budget<'a>,
    flushed: Instant,
    /// Names of control groups, also of those that are gone.
    pub cgroups: cgroups::Names,
}

impl<'a> Pump<'a> {
    pub fn new(
        ring: &'a RingBuffer<'a>,
        segments: &'a RefCell<Segments>,
        budget: Budget<'a>,
    ) -> Result<Pump<'a>> {
        Ok(Pump {
            ring,
            segments,
            budget,
            flushed: Instant::now(),
            cgroups: cgroups::Names::now()?,
        })
    }

    /// Stores what the rings hold now.
    pub fn drain(&mut self) -> Result<()> {
        let began_ns = host::clock(libc::CLOCK_MONOTONIC) as u64;
        self.ring.consume().context("Failed to store records")?;
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

    /// Takes the snapshot and stores it, and the ring meanwhile.
    pub fn until_snapshot(
        &mut self,
        probes: &Probes<'_>,
        options: &Options,
        spools: &[Spool],
    ) -> Result<()> {
        self.segments.borrow_mut().forks = Some(FxHashSet::default());
        self.until_found(Part::processes(probes.open_files()?, spools))?;
        self.drain()?; // forks until its end
        let pids = self.segments.borrow_mut().forks.take().unwrap_or_default();
        if !pids.is_empty() {
            let open_files = probes.open_files()?;
            let spools = spools.to_vec();
            self.until_found(Part::Forked {
                open_files,
                pids,
                spools,
            })?;
        }
        self.until_found(Part::tree(options, spools))
    }

    fn until_found(&mut self, part: Part) -> Result<()> {
        use std::sync::mpsc::RecvTimeoutError;
        let scan = Scan::begin(part);
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
                Err(RecvTimeoutError::Disconnected) => return scan.end(),
            }
            self.drain()?;
        }
    }

    /// Adds to meta.json what is known at the end: costs, control groups, directories listed.
    pub fn tell(&mut self, meta: &mut Value) {
        self.budget.tell(meta);
        self.cgroups.tell(meta);
        meta["listed"] = json!(self.segments.borrow().touched.as_ref().map(Touched::facts));
    }

    /// Goes on until the directories that calls used are listed, or the time for it is over.
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

    /// Why the recording ends, and the wait status of the command if it has ended.
    pub fn until_stopped(
        &mut self,
        options: &Options,
        rotation: &mut Rotation<'_>,
        command: Option<&mut Command>,
    ) -> Result<(End, Option<i32>)> {
        let began = Instant::now();
        let deadline = options.duration.map(|s| began + Duration::from_secs_f64(s));
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
            let stop = signals::stop_asked() || deadline.is_some_and(|d| Instant::now() >= d);
            match (&command, asked) {
                (None, _) if stop => return Ok((End::Asked, None)),
                (Some(command), None) if stop => {
                    command.terminate();
                    asked = Some(Instant::now());
                }
                (Some(_), Some(since)) if since.elapsed() > GRACE => return Ok((End::Asked, None)),
                _ => {}
            }
            std::thread::sleep(TICK);
        }
    }
}
