//! Waiting for other threads and for the recorded time.

use std::sync::atomic::Ordering::{Acquire, Relaxed, Release, SeqCst};
use std::sync::atomic::{AtomicI64, AtomicU32, AtomicU64};

use crate::engine::clock::now_ns;
use crate::engine::futex::{futex_wait, futex_wake};
use crate::engine::spin::Spinning;
use crate::memory::shared::Atomic;

/// Checks of the counter before sleeping: they take about a microsecond.
const SPINS: u32 = 40;
const NAP_NS: i64 = 1_000_000_000;
/// A call that has lasted this long is taken to sleep; it may only have lost its CPU (`turn.rs`).
const ASLEEP_NS: i64 = 50_000;
/// Longest time between two checks whether the other call sleeps.
const LOOK_NS: i64 = 5_000_000;

/// Present state of a task, for the watchdog.
pub mod state {
    pub const UNBORN: u32 = 0;
    pub const RUNNING: u32 = 1;
    /// Waits for its time.
    pub const PACING: u32 = 2;
    /// Waits for another thread.
    pub const WAITING: u32 = 3;
    pub const CALLING: u32 = 4;
    pub const DONE: u32 = 5;
}

/// Progress of one recorded thread. One cache line, so that threads do not disturb each other.
#[repr(C, align(64))]
#[derive(Debug)]
pub struct Gate {
    /// Operations finished.
    pub progress: AtomicU32,
    /// Futex word that this thread sleeps on while it waits for another.
    pub epoch: AtomicU32,
    pub state: AtomicU32,
    /// Thread waited for << 32 | operations it must have finished.
    pub waits_for: AtomicU64,
    /// When the present state began.
    pub since_ns: AtomicI64,
    /// Real process id.
    pub pid: AtomicU32,
    /// Real thread id.
    pub tid: AtomicU32,
    /// Set by the watchdog: stop waiting.
    pub give_up: AtomicU32,
}

// SAFETY: atomics only; zero means "not begun".
unsafe impl Atomic for Gate {}

/// Returns the value of `waits_for` of a thread that waits for another.
fn waiting(thread: u32, target: u32) -> u64 {
    u64::from(thread) << 32 | u64::from(target)
}

impl Gate {
    /// Makes this thread look again at what it waits for.
    pub fn wake(&self) {
        self.epoch.fetch_add(1, SeqCst);
        futex_wake(&self.epoch);
    }

    /// Wakes this thread if it waits until `thread` has finished so many operations.
    pub fn wake_from(&self, thread: u32, finished: u32) {
        if self.waits_for.load(SeqCst) == waiting(thread, finished) {
            self.wake();
        }
    }

    pub fn reached(&self, target: u32) -> bool {
        self.progress.load(SeqCst) >= target
    }

    pub fn enter(&self, new: u32) {
        self.state.store(new, Release);
    }

    /// Marks the beginning of a call.
    pub fn enter_call(&self, now_ns: i64) {
        self.since_ns.store(now_ns, Relaxed);
        self.enter(state::CALLING);
    }

    /// Returns whether the thread sleeps in the operation at a position, judged by its time there.
    fn sleeps_in(&self, position: u32) -> bool {
        let calls = self.state.load(Acquire) == state::CALLING;
        let asleep = || now_ns() - self.since_ns.load(Relaxed) >= ASLEEP_NS;
        calls && asleep() && self.progress.load(SeqCst) == position
    }

    /// Waits until `other` has finished `target` operations; `false` if the watchdog ends the wait.
    pub fn wait_for(&self, other: &Gate, thread: u32, target: u32) -> bool {
        for _ in 0..SPINS {
            if other.reached(target) {
                return true;
            }
            std::hint::spin_loop();
        }
        self.wait(other, thread, target, || NAP_NS, || false)
    }

    /// Waits until `other` has finished `target` operations or sleeps in the last of them; `false`
    /// if the watchdog ends the wait.
    pub fn line_up_behind(&self, other: &Gate, thread: u32, target: u32) -> bool {
        let asleep = || other.sleeps_in(target - 1);
        if other.reached(target) || asleep() {
            return true;
        }
        let mut nap_ns = ASLEEP_NS / 2;
        let nap = || {
            nap_ns = (2 * nap_ns).min(LOOK_NS);
            nap_ns
        };
        self.wait(other, thread, target, nap, asleep)
    }

    fn wait(
        &self,
        other: &Gate,
        thread: u32,
        target: u32,
        mut nap_ns: impl FnMut() -> i64,
        enough: impl Fn() -> bool,
    ) -> bool {
        self.waits_for.store(waiting(thread, target), SeqCst);
        self.since_ns.store(now_ns(), Relaxed);
        self.enter(state::WAITING);
        let met = loop {
            let epoch = self.epoch.load(SeqCst);
            if other.reached(target) || enough() {
                break true;
            }
            if self.give_up.swap(0, SeqCst) != 0 {
                break false;
            }
            futex_wait(&self.epoch, epoch, nap_ns());
        };
        self.enter(state::RUNNING);
        self.waits_for.store(0, SeqCst);
        met
    }

    /// Waits until a moment of CLOCK_MONOTONIC.
    pub fn sleep_until(&self, deadline_ns: i64, spinning: &Spinning) {
        self.enter(state::PACING);
        spinning.sleep_until(deadline_ns);
        self.enter(state::RUNNING);
    }
}
