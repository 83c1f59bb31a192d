//! Finds threads that wait for something that cannot happen, and lets them go on.

use anyhow::{Result, ensure};
use spoolscope_traces::records::{NONE, PlanOp};
use spoolscope_traces::text::complain;
use std::sync::atomic::Ordering::{Relaxed, SeqCst};

use crate::engine::clock::now_ns;
use crate::engine::descendants::Descendants;
use crate::engine::gate::{Gate, state};
use crate::engine::schedule::Schedule;
use crate::semantics::{self, Kind};

const INTERVAL_NS: i64 = 200_000_000;
/// A replay in which nothing moves ends after this many times `stall_ns`.
const HUNG: i64 = 30;
/// Most calls that a diagnosis names.
const NAMED: usize = 5;

#[derive(Debug)]
pub struct Watchdog {
    stall_ns: i64,
    last_ns: i64,
    /// (progress, when it last changed) per thread.
    seen: Vec<(u32, i64)>,
    /// The calls that do not return were reported.
    reported: bool,
}

impl Watchdog {
    pub fn new(stall_ns: i64) -> Self {
        Self {
            stall_ns,
            last_ns: 0,
            seen: Vec::new(),
            reported: false,
        }
    }

    /// Reports calls that do not return, if nothing else moves; fails once there is no hope left.
    pub fn require_life(&mut self, schedule: &Schedule) -> Result<()> {
        let now = now_ns();
        let late =
            |gate: &Gate, thread| now - gate.since_ns.load(Relaxed) - recorded_ns(schedule, thread);
        let calls = schedule.gates.iter().enumerate();
        let calls = calls.filter(|(_, gate)| gate.state.load(Relaxed) == state::CALLING);
        let mut overdue: Vec<(i64, usize)> = calls
            .map(|(thread, gate)| (late(gate, thread), thread))
            .filter(|(late_ns, _)| *late_ns > self.stall_ns)
            .collect();
        if overdue.is_empty() || !self.none_moves(schedule, now) {
            self.reported = false;
            return Ok(());
        }
        overdue.sort_unstable_by_key(|(late_ns, _)| -late_ns);
        if !std::mem::replace(&mut self.reported, true) {
            complain(&format!(
                "spoolscope-replay: nothing moves: {}",
                hung(schedule, &overdue, now)
            ));
        }
        let hopeless = overdue[0].0 > self.stall_ns.saturating_mul(HUNG);
        ensure!(
            !hopeless,
            "nothing moves any more: {}",
            hung(schedule, &overdue, now)
        );
        Ok(())
    }

    /// Makes one thread that waits in vain give up; returns how many did.
    pub fn look(&mut self, schedule: &Schedule, tasks: &Descendants) -> u64 {
        let now = now_ns();
        if now - self.last_ns < INTERVAL_NS {
            return 0;
        }
        self.last_ns = now;
        self.seen.resize(schedule.gates.len(), (u32::MAX, now));
        for (gate, seen) in schedule.gates.iter().zip(&mut self.seen) {
            let progress = gate.progress.load(Relaxed);
            if progress != seen.0 {
                *seen = (progress, now);
            }
        }
        // One at a time, the earliest: the rest may then resolve by itself.
        let stuck = (0..schedule.gates.len()).filter(|at| self.is_stuck(schedule, *at, now));
        let Some(first) = stuck.min_by_key(|at| current_start(schedule, *at)) else {
            return 0;
        };
        let gate = &schedule.gates[first];
        report(schedule, first);
        gate.give_up.store(1, SeqCst);
        if gate.state.load(Relaxed) == state::CALLING {
            tasks.interrupt(gate.pid.load(SeqCst), gate.tid.load(SeqCst));
        } else {
            gate.wake();
        }
        self.seen[first].1 = now;
        1
    }

    fn is_stuck(&self, schedule: &Schedule, thread: usize, now: i64) -> bool {
        let gate = &schedule.gates[thread];
        if now - self.seen[thread].1 < self.stall_ns {
            return false;
        }
        match gate.state.load(Relaxed) {
            state::WAITING => {
                let long = now - gate.since_ns.load(Relaxed) > self.stall_ns;
                long && self.is_hopeless(schedule, thread, now)
            }
            // A lock is no reason either while its holder may only wait for its time.
            state::CALLING => {
                self.is_locked(schedule, thread, now) && self.none_moves(schedule, now)
            }
            _ => false,
        }
    }

    fn none_moves(&self, schedule: &Schedule, now: i64) -> bool {
        schedule.gates.iter().zip(&self.seen).all(|(gate, seen)| {
            let still = now - seen.1 >= self.stall_ns;
            let state = gate.state.load(Relaxed);
            matches!(state, state::UNBORN | state::DONE) || still && state != state::PACING
        })
    }

    /// Follows what a thread waits for; hopeless if that ends in a circle, a dead thread or a held
    /// lock. An unborn thread waits for its parent's fork, or for the engine, which starts it in
    /// time.
    fn is_hopeless(&self, schedule: &Schedule, thread: usize, now: i64) -> bool {
        let threads = schedule.plan.threads();
        let mut at = thread;
        for _ in 0..schedule.gates.len() {
            let gate = &schedule.gates[at];
            at = match gate.state.load(Relaxed) {
                state::WAITING => {
                    let (other, target) = waited_for(gate);
                    if schedule.gates[other].progress.load(SeqCst) >= target {
                        return false;
                    }
                    other
                }
                state::UNBORN if threads[at].parent != NONE => threads[at].parent as usize,
                state::UNBORN => {
                    let by_time = schedule.pace.recorded_ns(0).is_some();
                    return !by_time && self.none_moves(schedule, now);
                }
                state::CALLING => return self.is_locked(schedule, at, now),
                state::DONE => return now - self.seen[at].1 > self.stall_ns,
                _ => return false,
            };
        }
        true
    }

    /// Returns whether a thread is stuck at a lock. A slow disk is no reason to give up, nor is a
    /// lock that was waited for as long in the recording; a lock that is never released is.
    fn is_locked(&self, schedule: &Schedule, thread: usize, now: i64) -> bool {
        let gate = &schedule.gates[thread];
        let kind = semantics::kind(current(schedule, thread));
        let locks = matches!(kind, Kind::Fcntl | Kind::Flock);
        let patience_ns = self.stall_ns.saturating_add(recorded_ns(schedule, thread));
        locks && now - gate.since_ns.load(Relaxed) > patience_ns
    }
}

fn waited_for(gate: &Gate) -> (usize, u32) {
    let both = gate.waits_for.load(Relaxed);
    ((both >> 32) as usize, both as u32)
}

/// Returns the present operation of a thread; its last one at the end.
fn current(schedule: &Schedule, thread: usize) -> &'static PlanOp {
    let last = schedule.n_ops(thread as u32).saturating_sub(1);
    let position = schedule.gates[thread].progress.load(Relaxed).min(last);
    let slot = schedule.slot(thread as u32, position);
    &schedule.plan.ops()[schedule.op_at(slot) as usize]
}

fn current_start(schedule: &Schedule, thread: usize) -> i64 {
    current(schedule, thread).start_ns
}

/// Returns how long the present operation of a thread lasted in the recording, in ns.
fn recorded_ns(schedule: &Schedule, thread: usize) -> i64 {
    let op = current(schedule, thread);
    op.end_ns - op.start_ns
}

/// Describes the calls that do not return, and counts the threads that wait for others.
fn hung(schedule: &Schedule, overdue: &[(i64, usize)], now: i64) -> String {
    let one = |(_, thread): &(i64, usize)| {
        let (gate, op) = (&schedule.gates[*thread], current(schedule, *thread));
        let path = String::from_utf8_lossy(schedule.plan.string(op.path));
        format!(
            "thread {} has been in {}({path}) for {} s (process {})",
            schedule.plan.threads()[*thread].tid,
            semantics::name(op),
            (now - gate.since_ns.load(Relaxed)) / 1_000_000_000,
            gate.pid.load(Relaxed),
        )
    };
    let named: Vec<String> = overdue.iter().take(NAMED).map(one).collect();
    let waits = |gate: &&Gate| gate.state.load(Relaxed) == state::WAITING;
    let waiting = schedule.gates.iter().filter(waits).count();
    format!("{}; {waiting} threads wait for others", named.join("; "))
}

fn report(schedule: &Schedule, thread: usize) {
    let describe = |at: usize, position: u32| {
        let last = schedule.n_ops(at as u32).saturating_sub(1);
        let op = schedule.op_at(schedule.slot(at as u32, position.min(last)));
        let op = &schedule.plan.ops()[op as usize];
        let tid = schedule.plan.threads()[at].tid;
        let path = String::from_utf8_lossy(schedule.plan.string(op.path)).into_owned();
        format!(
            "thread {tid} {}({path}) at {} ns",
            semantics::name(op),
            op.start_ns
        )
    };
    let gate = &schedule.gates[thread];
    if gate.state.load(Relaxed) == state::CALLING {
        let waiter = describe(thread, gate.progress.load(Relaxed));
        complain(&format!(
            "spoolscope-replay: lock given up: {waiter} is never granted it"
        ));
        return;
    }
    let (other, target) = waited_for(gate);
    let waiter = describe(thread, gate.progress.load(Relaxed));
    let awaited = describe(other, target.saturating_sub(1));
    let now = describe(other, schedule.gates[other].progress.load(Relaxed));
    complain(&format!(
        "spoolscope-replay: order given up: {waiter} waited for {awaited}, which is still at {now}"
    ));
}
