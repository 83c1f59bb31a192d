//! State of a whole replay: its begin and its end.

use std::sync::atomic::{AtomicI64, AtomicU32, Ordering::SeqCst};

use crate::engine::futex::futex_wake;
use crate::engine::spin::Spinning;
use crate::memory::shared::Atomic;

/// One per replay.
#[repr(C, align(64))]
#[derive(Debug)]
pub struct Control {
    pub start_ns: AtomicI64,
    /// Tasks that have what they need to begin.
    pub ready: AtomicU32,
    /// Futex word: `start_ns` is fixed.
    pub begun: AtomicU32,
    /// Threads that ran to the end of their stream.
    pub finished: AtomicU32,
    /// Futex word: the replay is over, tasks that outlived their stream may go.
    pub over: AtomicU32,
    /// Locks that were granted before their turn, and given back.
    pub given_back: AtomicU32,
    /// Not 0 once O_APPEND of an open file was changed: what descriptors had is then no guide.
    pub append_changed: AtomicU32,
    pub spinning: Spinning,
}

// SAFETY: atomics only.
unsafe impl Atomic for Control {}

impl Control {
    /// Lets the tasks begin.
    pub fn begin(&self, start_ns: i64) {
        self.start_ns.store(start_ns, SeqCst);
        self.begun.store(1, SeqCst);
        futex_wake(&self.begun);
    }
}
