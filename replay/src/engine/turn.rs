//! Grants contended locks in the recorded order.
//!
//! A call asks for the lock when it did in the recording. Calls that asked before, and got the lock
//! before, must sleep in their calls by then. The kernel wakes waiters in the order in which they
//! came, but a newcomer may take the lock between its release and the waking of a waiter. So a call
//! that is granted the lock checks whether it is its turn. If not, it gives the lock back before
//! anything else of the replay can depend on it, and asks again after its rival. This ends: a task
//! that waits here holds nothing, and all wait for calls that come before theirs in the one order.
//!
//! A waiter that a signal interrupted is interrupted again after as long a sleep; if it is granted
//! the lock before, that is another result. A call that was refused a lock because of a deadlock
//! asks for it when all others of the circle are asleep.

use libc::c_long;
use spoolscope_traces::records::PlanOp;
use std::sync::atomic::Ordering::{Relaxed, SeqCst};

use crate::engine::alarm::Alarm;
use crate::engine::clock::now_ns;
use crate::engine::raw::last_errno;
use crate::engine::schedule::Rival;
use crate::engine::task::Task;
use crate::semantics;

/// A sleep that lasts this long closed no circle: it ends, with another result than recorded.
const NO_CIRCLE_NS: i64 = 1_000_000_000;

impl Task {
    /// Waits until the rivals that asked for the lock before this call, and got it before, sleep in
    /// their calls; returns when they do, or 0 if there was nothing to wait for.
    pub fn line_up(&mut self, slot: usize) -> i64 {
        let schedule = &self.context.schedule;
        let mut ready = 0;
        for rival in schedule.rivals(slot) {
            let other = &schedule.gates[rival.thread as usize];
            if !rival.asked_first || other.reached(rival.finished) {
                continue;
            }
            let waited = match schedule.noop {
                true => self.gate().wait_for(other, rival.thread, rival.finished),
                false => self
                    .gate()
                    .line_up_behind(other, rival.thread, rival.finished),
            };
            self.gave_up |= !waited;
            ready = now_ns() - schedule.control().start_ns.load(Relaxed);
        }
        ready
    }

    /// Returns a rival that should have had the lock before this call.
    fn overtaken(&self) -> Option<&'static Rival> {
        let schedule = &self.context.schedule;
        let missing =
            |rival: &&Rival| !schedule.gates[rival.thread as usize].reached(rival.finished);
        let rivals = (!self.gave_up).then(|| schedule.rivals(self.slot));
        rivals.into_iter().flatten().find(missing)
    }

    /// Makes a lock call; -errno on failure. If a trace is wrong or hostile, the lock may never be
    /// granted: the watchdog then ends the wait.
    pub fn lock_in_turn(&mut self, op: &PlanOp, number: c_long, r: [i64; 6]) -> i64 {
        let interrupted = semantics::was_interrupted(op);
        let deadlock = semantics::was_deadlock(op);
        let pace = self.context.schedule.pace;
        let asleep_ns = match interrupted {
            true => Some(pace.lasting_ns(op.end_ns - op.start_ns)),
            false => deadlock.then_some(NO_CIRCLE_NS),
        };
        let alarm = asleep_ns.map(|asleep_ns| Alarm::set(now_ns() + asleep_ns, self.tid));
        loop {
            let ret = self.lock(number, r, alarm.as_ref());
            let rival = self.overtaken().filter(|_| ret >= 0 && !deadlock);
            if ret >= 0 && (interrupted || deadlock || rival.is_some()) {
                give_back(number, r);
            }
            let Some(rival) = rival else {
                return ret;
            };
            let schedule = &self.context.schedule;
            schedule.control().given_back.fetch_add(1, Relaxed);
            let other = &schedule.gates[rival.thread as usize];
            let waited = self.gate().wait_for(other, rival.thread, rival.finished);
            self.gave_up |= !waited;
            self.line_up(self.slot);
            self.gate().enter_call(now_ns());
        }
    }

    fn lock(&self, number: c_long, r: [i64; 6], alarm: Option<&Alarm>) -> i64 {
        loop {
            // SAFETY: a pointer among the registers leads to the task's own `struct flock`.
            let ret = unsafe { libc::syscall(number, r[0], r[1], r[2], r[3], r[4], r[5]) };
            match ret {
                -1 if last_errno() == libc::EINTR
                    && !alarm.is_some_and(Alarm::has_rung)
                    && self.gate().give_up.swap(0, SeqCst) == 0 => {}
                -1 => return -i64::from(last_errno()),
                _ => return ret,
            }
        }
    }
}

/// Gives up a lock that was just granted; nothing was held before (`model/order/grants.rs`).
fn give_back(number: c_long, mut r: [i64; 6]) {
    if number == libc::SYS_flock {
        r[1] = i64::from(libc::LOCK_UN);
    } else {
        // SAFETY: the register leads to the task's own `struct flock`, filled for this call.
        let mut unlock = unsafe { *(r[2] as *const libc::flock) };
        unlock.l_type = libc::F_UNLCK as i16;
        // SAFETY: the struct outlives the call.
        unsafe { libc::syscall(number, r[0], r[1], &raw const unlock) };
        return;
    }
    // SAFETY: plain system call.
    unsafe { libc::syscall(number, r[0], r[1]) };
}
