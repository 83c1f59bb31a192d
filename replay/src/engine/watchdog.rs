//! Finds threads that wait for something that cannot happen, and lets them go on.

use std::sync::atomic::Ordering::{Relaxed, SeqCst};

use crate::engine::schedule::Schedule;
use crate::engine::shared::{Gate, now_ns, state};
use crate::semantics::{self, Kind};

const INTERVAL_NS: i64 = 200_000_000;

#[derive(Debug)]
pub struct Watchdog {
    stall_ns: i64,
    last_ns: i64,
    /// (progress, when it last changed) per thread.
    seen: Vec<(u32, i64)>,
}

impl Watchdog {
    pub fn new(stall_ns: i64) -> Self {
        Self {
            stall_ns,
            last_ns: 0,
            seen: Vec::new(),
        }
    }

    /// Tells threads that wait in vain to give up; returns how many.
    pub fn look(&mut self, schedule: &Schedule) -> u64 {
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
            nudge(gate);
        } else {
            schedule.gates[waited_for(gate).0].wake();
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
            // A lock whose holder may only be waiting for its time is no reason either.
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

    /// Follows who waits for whom; hopeless if it ends in a circle, the dead, or a held lock.
    fn is_hopeless(&self, schedule: &Schedule, thread: usize, now: i64) -> bool {
        let mut at = thread;
        for _ in 0..schedule.gates.len() {
            let (other, target) = waited_for(&schedule.gates[at]);
            let gate = &schedule.gates[other];
            if gate.progress.load(SeqCst) >= target {
                return false;
            }
            match gate.state.load(Relaxed) {
                state::WAITING => at = other,
                state::CALLING => return self.is_locked(schedule, other, now),
                state::UNBORN | state::DONE => return now - self.seen[other].1 > self.stall_ns,
                _ => return false,
            }
        }
        true
    }

    /// A slow disk is no reason to give up; a lock that nobody will release is.
    fn is_locked(&self, schedule: &Schedule, thread: usize, now: i64) -> bool {
        let progress = schedule.gates[thread].progress.load(Relaxed);
        let op = schedule.op_at(schedule.slot(thread as u32, progress));
        let kind = semantics::kind(&schedule.plan.ops()[op as usize]);
        let locks = matches!(kind, Kind::Fcntl | Kind::Flock);
        locks && now - self.seen[thread].1 > self.stall_ns
    }
}

fn waited_for(gate: &Gate) -> (usize, u32) {
    let both = gate.waits_for.load(Relaxed);
    ((both >> 32) as usize, both as u32)
}

fn current_start(schedule: &Schedule, thread: usize) -> i64 {
    let progress = schedule.gates[thread].progress.load(Relaxed);
    let slot = schedule.slot(thread as u32, progress);
    schedule.plan.ops()[schedule.op_at(slot) as usize].start_ns
}

fn nudge(gate: &Gate) {
    let (pid, tid) = (gate.pid.load(SeqCst), gate.tid.load(SeqCst));
    // SAFETY: a task of this replay; the signal only interrupts its call.
    unsafe { libc::syscall(libc::SYS_tgkill, pid, tid, libc::SIGUSR1) };
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
        eprintln!("spoolscope-replay: lock given up: {waiter} is never granted it");
        return;
    }
    let (other, target) = waited_for(gate);
    let waiter = describe(thread, gate.progress.load(Relaxed));
    let awaited = describe(other, target.saturating_sub(1));
    let now = describe(other, schedule.gates[other].progress.load(Relaxed));
    eprintln!(
        "spoolscope-replay: order given up: {waiter} waited for {awaited}, which is still at {now}"
    );
}
