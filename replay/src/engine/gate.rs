//! Waiting for other threads and for the recorded time.

use std::sync::atomic::Ordering::{Relaxed, SeqCst};

use crate::engine::shared::{Gate, futex_wait, futex_wake, now_ns, state};
use crate::engine::spin::Spinning;

/// How often the counter is looked at before sleeping: about a microsecond.
const SPINS: u32 = 40;
const NAP_NS: i64 = 1_000_000_000;

impl Gate {
    /// Notes that one more operation of this thread is done, and wakes who waits for it.
    pub fn advance(&self, finished: u32) {
        self.progress.store(finished, SeqCst);
        let wake_at = self.wake_at.load(SeqCst);
        if wake_at != 0 && finished >= wake_at {
            self.wake();
        }
    }

    /// Wakes every sleeper; each looks again and, if need be, registers again.
    pub fn wake(&self) {
        self.wake_at.store(0, SeqCst);
        self.epoch.fetch_add(1, SeqCst);
        futex_wake(&self.epoch);
    }

    fn reached(&self, target: u32) -> bool {
        self.progress.load(SeqCst) >= target
    }

    /// Registers for a wake at `target`, keeping an earlier wish of somebody else.
    fn register(&self, target: u32) {
        let earlier = |now: u32| (now == 0 || now > target).then_some(target);
        let _ = self.wake_at.fetch_update(SeqCst, SeqCst, earlier);
    }

    pub fn enter(&self, new: u32) {
        self.state.store(new, Relaxed);
    }

    /// Waits until `other` has finished `target` operations; `false` if told to give up.
    pub fn wait_for(&self, other: &Gate, thread: u32, target: u32) -> bool {
        for _ in 0..SPINS {
            if other.reached(target) {
                return true;
            }
            std::hint::spin_loop();
        }
        self.waits_for
            .store(u64::from(thread) << 32 | u64::from(target), Relaxed);
        self.since_ns.store(now_ns(), Relaxed);
        self.enter(state::WAITING);
        let reached = loop {
            let epoch = other.epoch.load(SeqCst);
            other.register(target);
            if other.reached(target) {
                break true;
            }
            if self.give_up.swap(0, SeqCst) != 0 {
                break false;
            }
            futex_wait(&other.epoch, epoch, NAP_NS);
        };
        self.enter(state::RUNNING);
        reached
    }

    /// Waits until a moment of CLOCK_MONOTONIC.
    pub fn sleep_until(&self, deadline_ns: i64, spinning: &Spinning) {
        self.enter(state::PACING);
        spinning.sleep_until(deadline_ns);
        self.enter(state::RUNNING);
    }
}
