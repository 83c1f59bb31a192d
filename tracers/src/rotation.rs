//! Ends of segments, the choice of segments that are kept, and the events that report these.

use std::cell::RefCell;
use std::collections::VecDeque;
use std::time::{Duration, Instant};

use anyhow::Result;
use rustc_hash::FxHashSet;
use serde_json::{Value, json};
use spoolscope_traces::segment::{Capture, Kind};

use crate::cgroups::Names;
use crate::cli::{Options, Snapshot};
use crate::host::Spool;
use crate::probes::Probes;
use crate::segments::Segments;
use crate::snapshot::{self, Part, Scan};
use crate::trigger::Freeze;
use crate::{answer, signals, symbols};

/// How long both segments stay open after a border: a record that is being made at the border must
/// have come out of its ring, which is read every few milliseconds.
const SETTLE: Duration = Duration::from_millis(200);
/// Least time between two freezes by rules, for a recorder whose window is a size.
const REST: Duration = Duration::from_secs(60);
/// Number of closed segments in a window of the flight recorder; one more is being written.
const PARTS: u64 = 8;

/// A closed segment of the flight recorder.
#[derive(Debug)]
struct Closed {
    number: u32,
    bytes: u64,
    end_ns: i64,
}

/// The state of a border.
#[derive(Debug)]
enum Phase {
    Steady,
    /// The snapshot of the next segment is being taken.
    Scanning(Scan),
    /// The snapshot is taken; the rings are read once more for processes forked meanwhile.
    Scanned,
    /// These processes are being scanned.
    Rescanning(Scan),
    /// The border is drawn; records from before it may still arrive.
    Settling(Instant),
}

/// Draws the borders of a recording.
#[allow(missing_debug_implementations)] // BPF maps have none
pub struct Rotation<'a> {
    options: &'a Options,
    spools: &'a [Spool],
    segments: &'a RefCell<Segments>,
    probes: &'a Probes<'a>,
    first_meta: Value,
    phase: Phase,
    /// The reason for a freeze at the border under way.
    freezing: Option<Freeze>,
    last_freeze: Option<Instant>,
    ring: VecDeque<Closed>,
}

impl<'a> Rotation<'a> {
    pub fn new(
        options: &'a Options,
        spools: &'a [Spool],
        segments: &'a RefCell<Segments>,
        probes: &'a Probes<'a>,
        first_meta: Value,
    ) -> Rotation<'a> {
        Rotation {
            options,
            spools,
            segments,
            probes,
            first_meta,
            phase: Phase::Steady,
            freezing: None,
            last_freeze: None,
            ring: VecDeque::new(),
        }
    }

    /// Take the next step; called after every reading of the rings. True when a new segment stands
    /// alone.
    pub fn step(&mut self, cgroups: &mut Names) -> Result<bool> {
        if !self.options.rotates() && !self.options.keeps_last() {
            return Ok(false);
        }
        match self.phase {
            Phase::Steady => {
                self.freezing = self.asked_to_freeze()?;
                if self.freezing.is_some() || self.is_due() {
                    self.begin_scan()?;
                }
            }
            Phase::Scanning(_) | Phase::Rescanning(_) => self.scan()?,
            Phase::Scanned => self.rescan()?,
            Phase::Settling(since) if since.elapsed() >= SETTLE => {
                self.complete_border(cgroups)?;
                return Ok(true);
            }
            Phase::Settling(_) => {}
        }
        Ok(false)
    }

    /// Complete a border that was drawn; the rings are empty for good.
    pub fn end(&mut self, cgroups: &mut Names) -> Result<()> {
        if let Phase::Settling(_) = self.phase {
            self.complete_border(cgroups)?;
        }
        self.segments.borrow_mut().abandon_next()
    }

    fn asked_to_freeze(&mut self) -> Result<Option<Freeze>> {
        let signal = signals::freeze_asked();
        if !self.options.keeps_last() {
            return Ok(None);
        }
        // Without a rest, a rule that stays broken would freeze again and again.
        let window = self
            .options
            .last_seconds
            .map_or(REST, Duration::from_secs_f64);
        let rests = self.last_freeze.is_some_and(|at| at.elapsed() < window);
        let mut segments = self.segments.borrow_mut();
        let of_spool = |dev| self.spools.iter().any(|spool| spool.dev == dev);
        segments.trigger.look(self.probes, of_spool)?;
        let broken = segments.trigger.take(rests || signal);
        Ok(if signal {
            Some(Freeze::because("signal"))
        } else {
            broken
        })
    }

    fn is_due(&self) -> bool {
        let (bytes, age) = self.segments.borrow().size();
        let parts = if self.options.keeps_last() { PARTS } else { 1 };
        let (most_bytes, longest) = self.options.limits();
        most_bytes.is_some_and(|most| bytes >= most / parts)
            || longest.is_some_and(|most| age.as_secs_f64() >= most / parts as f64)
    }

    /// Return the meta data for the beginning of a later segment, which has no walk of the whole
    /// tree. `borders` is true once the BORDER records are written; without these the progress of
    /// its threads is unknown.
    fn later_meta(&self, borders: bool) -> Value {
        merged(
            &self.first_meta,
            &json!({"tree": self.has_tree(), "snapshot_whole": true, "borders": borders}),
        )
    }

    /// Make the meta data describe the snapshot of a later segment, not that of the first.
    fn is_later(&self, meta: &mut Value) {
        meta["tree"] = self.has_tree().into();
        meta["snapshot_whole"] = true.into();
    }

    /// Return true if a later segment has names of the tree.
    fn has_tree(&self) -> bool {
        self.options.snapshot == Snapshot::Touched
    }

    fn begin_scan(&mut self) -> Result<()> {
        let meta = self.later_meta(false).to_string();
        if self.segments.borrow_mut().prepare_next(&meta)? {
            self.segments.borrow_mut().forks = Some(FxHashSet::default());
            let part = Part::processes(self.probes.open_files()?, self.spools);
            self.phase = Phase::Scanning(Scan::begin(part));
        }
        Ok(())
    }

    /// Scan the processes that were forked during the scan; without any, draw the border.
    fn rescan(&mut self) -> Result<()> {
        let pids = self.segments.borrow_mut().forks.take().unwrap_or_default();
        if pids.is_empty() {
            return self.draw_border();
        }
        let open_files = self.probes.open_files()?;
        self.phase = Phase::Rescanning(Scan::begin(Part::Forked {
            open_files,
            pids,
            spools: self.spools.to_vec(),
        }));
        Ok(())
    }

    fn draw_border(&mut self) -> Result<()> {
        self.phase = Phase::Settling(Instant::now());
        self.segments.borrow_mut().draw_border()
    }

    /// Store what the snapshot of the next segment has found; when it is complete, go on.
    fn scan(&mut self) -> Result<()> {
        use std::sync::mpsc::TryRecvError;
        let (Phase::Scanning(scan) | Phase::Rescanning(scan)) = &self.phase else {
            return Ok(());
        };
        let mut segments = self.segments.borrow_mut();
        loop {
            match scan.found.try_recv() {
                Ok(item) => snapshot::store(segments.snapshot(), item)?,
                Err(TryRecvError::Empty) => return Ok(()),
                Err(TryRecvError::Disconnected) => break,
            }
        }
        drop(segments);
        match std::mem::replace(&mut self.phase, Phase::Scanned) {
            Phase::Scanning(scan) => scan.end().map(|_| ()),
            Phase::Rescanning(scan) => {
                let _whole = scan.end()?;
                self.draw_border()
            }
            _ => Ok(()),
        }
    }

    fn complete_border(&mut self, cgroups: &mut Names) -> Result<()> {
        let alive = self.probes.living()?;
        let tids = alive.iter().map(|task| task.tid).collect();
        let mut segments = self.segments.borrow_mut();
        self.phase = Phase::Steady;
        for task in self.probes.unreported_exits()? {
            segments.push_task(task, &[])?;
        }
        let Some(mut old) = segments.complete_border(&tids)? else {
            return Ok(());
        };
        let border = segments.current().start();
        segments.current().flush()?; // the borders before the meta data that announce them
        let begin = self.later_meta(true).to_string();
        segments.current().text(Kind::Meta, &begin)?;
        let listed = segments.touched.as_ref().map(|t| t.facts_before.clone());
        let listed = json!(listed);
        drop(segments);
        let number = old.number();
        let mut meta = merged(&self.first_meta, &self.probes.end_meta(border)?);
        cgroups.tell(&mut meta);
        meta["listed"] = listed;
        meta["user_stacks"] = self.segments.borrow_mut().user_stacks.take_json();
        if number > 1 {
            self.is_later(&mut meta);
        }
        let bytes = close(&mut old, &meta)?;
        if !self.options.keeps_last() {
            return self.say_closed(number);
        }
        self.ring.push_back(Closed {
            number,
            bytes,
            end_ns: border.0,
        });
        match self.freezing.take() {
            Some(why) => self.freeze(&why, None),
            None => self.forget(border.0),
        }
    }

    /// Close the last segment.
    pub fn finish(&mut self, meta: &Value) -> Result<()> {
        let (number, bytes) = {
            let mut segments = self.segments.borrow_mut();
            let last = segments.current();
            let mut meta = meta.clone();
            if last.number() > 1 {
                self.is_later(&mut meta);
            }
            (last.number(), close(last, &meta)?)
        };
        if self.options.keeps_last() {
            self.freeze(&Freeze::because("end"), Some(number))?;
        } else if self.options.rotates() {
            self.say_closed(number)?;
        }
        answer::say(
            self.options,
            &json!({"event": "done", "bytes": bytes, "meta": meta}),
        )
    }

    fn say_closed(&self, number: u32) -> Result<()> {
        answer::say(self.options, &json!({"event": "segment", "number": number}))
    }

    /// Report the window as frozen; the next records begin a new one.
    pub fn freeze(&mut self, freeze: &Freeze, last: Option<u32>) -> Result<()> {
        let kept = self.ring.drain(..).map(|segment| segment.number);
        let numbers: Vec<u32> = kept.chain(last).collect();
        let under_way = match last {
            Some(_) => Value::Null, // the meta data of the end has them
            None => self.probes.listed_under_way(),
        };
        self.last_freeze = Some(Instant::now());
        answer::say(
            self.options,
            &merged(
                &json!({
                    "event": "frozen", "why": freeze.why, "rule": freeze.rule, "numbers": numbers,
                    "under_way": under_way,
                }),
                &freeze.about,
            ),
        )
    }

    /// Remove the segments that lie before the window.
    fn forget(&mut self, now_ns: i64) -> Result<()> {
        let (most_bytes, longest) = self.options.limits();
        while let Some(oldest) = self.ring.front() {
            let bytes: u64 = self.ring.iter().map(|segment| segment.bytes).sum();
            let age_s = (now_ns - oldest.end_ns) as f64 / 1e9;
            if most_bytes.is_none_or(|most| bytes <= most)
                && longest.is_none_or(|most| age_s <= most)
            {
                break;
            }
            self.segments.borrow().remove(oldest.number)?;
            self.ring.pop_front();
        }
        Ok(())
    }
}

/// Write symbols and meta data of a segment that has all its records; return its size.
fn close(segment: &mut Capture, meta: &Value) -> Result<u64> {
    segment.flush()?;
    let names = symbols::resolve(segment.addresses())?;
    segment.text(Kind::Symbols, &names)?;
    let mut meta = meta.clone();
    meta["borders"] = true.into();
    for (kind, n) in segment.dropped() {
        let lost = &mut meta["lost_records"][kind.to_string()];
        *lost = (lost.as_u64().unwrap_or(0) + n).into();
    }
    segment.text(Kind::Meta, &meta.to_string())?;
    segment.finish()
}

/// Merge two objects; members of the second take precedence.
pub fn merged(first: &Value, second: &Value) -> Value {
    let mut out = first.clone();
    if let (Some(out), Some(second)) = (out.as_object_mut(), second.as_object()) {
        out.extend(second.iter().map(|(k, v)| (k.clone(), v.clone())));
    }
    out
}
