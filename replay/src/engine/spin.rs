//! Punctual sleep: a timer wakes late, so tasks spin for the last moments, if a CPU is free.

use std::sync::atomic::AtomicU32;
use std::sync::atomic::Ordering::Relaxed;

use crate::engine::clock::now_ns;
use crate::engine::cpus::Shares;
use crate::memory::shared::Atomic;

/// Most timers of a sleeping CPU fire at most this late.
const EARLY_NS: i64 = 60_000;
/// Share of the CPUs' time that must have been free lately.
const LEAST_IDLE: f64 = 0.25;

/// Limits how many tasks spin: a timer wakes late, but a CPU that spins is lost to other tasks.
#[repr(C, align(64))]
#[derive(Debug, Default)]
pub struct Spinning {
    /// Most tasks that may spin at a time; 0 while the machine is busy.
    most: AtomicU32,
    now: AtomicU32,
}

// SAFETY: atomics only; zero means that no task spins and none may.
unsafe impl Atomic for Spinning {}

impl Spinning {
    /// Lets so many tasks spin that one CPU stays free; none if the CPUs have been busy.
    pub fn adapt(&self, recently: Option<Shares>, n_cpus: usize) {
        let busy = recently.is_some_and(|shares| shares.idle < LEAST_IDLE);
        self.most
            .store(if busy { 0 } else { n_cpus as u32 - 1 }, Relaxed);
    }

    /// Returns whether CPUs are free.
    pub fn is_allowed(&self) -> bool {
        self.most.load(Relaxed) > 0
    }

    /// Sleeps until a moment of CLOCK_MONOTONIC; spins at the end if that is allowed.
    pub fn sleep_until(&self, deadline_ns: i64) {
        if !self.is_allowed() {
            return nap_until(deadline_ns);
        }
        // Even a timer in the past would be set and fire.
        if now_ns() < deadline_ns - EARLY_NS {
            nap_until(deadline_ns - EARLY_NS);
        }
        if !self.spin_until(deadline_ns) {
            nap_until(deadline_ns);
        }
    }

    /// Spins until the deadline; returns `false`, at once, if too many tasks spin already.
    fn spin_until(&self, deadline_ns: i64) -> bool {
        let others = self.now.fetch_add(1, Relaxed);
        let free = others < self.most.load(Relaxed);
        while free && now_ns() < deadline_ns {
            std::hint::spin_loop();
        }
        self.now.fetch_sub(1, Relaxed);
        free
    }
}

fn nap_until(deadline_ns: i64) {
    let time = libc::timespec {
        tv_sec: deadline_ns.div_euclid(1_000_000_000),
        tv_nsec: deadline_ns.rem_euclid(1_000_000_000),
    };
    // SAFETY: `time` is valid; EINTR only means to look at the clock again.
    let sleep = || unsafe {
        libc::clock_nanosleep(
            libc::CLOCK_MONOTONIC,
            libc::TIMER_ABSTIME,
            &raw const time,
            std::ptr::null_mut(),
        )
    };
    while sleep() == libc::EINTR {}
}

#[cfg(test)]
mod tests {
    use super::*;

    fn idle(idle: f64) -> Option<Shares> {
        Some(Shares { idle, steal: 0.0 })
    }

    #[test]
    fn one_cpu_stays_free_and_a_busy_machine_is_left_alone() {
        let spinning = Spinning::default();
        for (shares, n_cpus, most) in [
            (idle(0.9), 4, 3),
            (idle(0.9), 1, 0),
            (idle(0.1), 4, 0),
            (None, 2, 1),
        ] {
            spinning.adapt(shares, n_cpus);
            assert_eq!(spinning.most.load(Relaxed), most);
        }
    }

    #[test]
    fn nobody_wakes_early_whether_allowed_to_spin_or_not() {
        let spinning = Spinning::default();
        for n_cpus in [1, 2] {
            spinning.adapt(None, n_cpus);
            let deadline = now_ns() + 1_000_000;
            spinning.sleep_until(deadline);
            assert!(now_ns() >= deadline);
        }
        // All places are taken: the task sleeps to the end.
        spinning.now.store(1, Relaxed);
        let deadline = now_ns() + 1_000_000;
        assert!(!spinning.spin_until(deadline));
        spinning.sleep_until(deadline);
        assert!(now_ns() >= deadline);
    }
}
