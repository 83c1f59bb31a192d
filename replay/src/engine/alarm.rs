//! A signal at a given time that interrupts the call of one thread.

use std::ptr;

use crate::engine::clock::now_ns;

/// The alarm repeats: the first time the call may not have begun.
const AGAIN_NS: i64 = 200_000;

/// An alarm that is set until it is dropped.
#[derive(Debug)]
pub struct Alarm {
    /// `None` if no timer could be made: the call then ends when it can.
    timer: Option<libc::timer_t>,
    at_ns: i64,
}

impl Alarm {
    /// Sets an alarm that rings from a moment of CLOCK_MONOTONIC on, for a thread of this process.
    ///
    /// Its signal is that of the watchdog, which does nothing but interrupt.
    pub fn set(at_ns: i64, tid: u32) -> Self {
        let mut timer: libc::timer_t = ptr::null_mut();
        // SAFETY: all zero is valid; the members that count follow.
        let mut event: libc::sigevent = unsafe { std::mem::zeroed() };
        event.sigev_notify = libc::SIGEV_THREAD_ID;
        event.sigev_signo = libc::SIGUSR1;
        event.sigev_notify_thread_id = tid as libc::c_int;
        // SAFETY: all pointers are valid for the call.
        let made = unsafe {
            libc::timer_create(libc::CLOCK_MONOTONIC, &raw mut event, &raw mut timer) == 0
        };
        let timer = made.then_some(timer);
        if let Some(timer) = timer {
            let rings = libc::itimerspec {
                it_interval: timespec(AGAIN_NS),
                it_value: timespec(at_ns),
            };
            let absolute = libc::TIMER_ABSTIME;
            // SAFETY: the timer was just made.
            unsafe { libc::timer_settime(timer, absolute, &raw const rings, ptr::null_mut()) };
        }
        Self { timer, at_ns }
    }

    pub fn has_rung(&self) -> bool {
        now_ns() >= self.at_ns
    }
}

impl Drop for Alarm {
    fn drop(&mut self) {
        if let Some(timer) = self.timer {
            // SAFETY: made by `set`, and not used any more.
            unsafe { libc::timer_delete(timer) };
        }
    }
}

fn timespec(ns: i64) -> libc::timespec {
    libc::timespec {
        tv_sec: ns.div_euclid(1_000_000_000),
        tv_nsec: ns.rem_euclid(1_000_000_000),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_a_lock_would_wait_for_for_ever_is_interrupted_in_time() {
        extern "C" fn nothing(_: libc::c_int) {}
        let handler = nothing as extern "C" fn(libc::c_int) as libc::sighandler_t;
        // SAFETY: the handler does nothing; without SA_RESTART the call ends.
        let tid = unsafe {
            let mut action: libc::sigaction = std::mem::zeroed();
            action.sa_sigaction = handler;
            libc::sigaction(libc::SIGUSR1, &raw const action, ptr::null_mut());
            libc::syscall(libc::SYS_gettid) as u32
        };
        let file = tempfile::tempfile().expect("a file");
        let other = std::fs::File::open(format!("/proc/self/fd/{}", raw(&file))).expect("opened");
        let lock = |file: &std::fs::File| {
            // SAFETY: plain system call.
            unsafe { libc::flock(raw(file), libc::LOCK_EX) }
        };
        assert_eq!(lock(&file), 0);
        let began = now_ns();
        // An alarm in the past rings, too, when the call sleeps.
        for ns in [-1_000_000, 20_000_000] {
            let alarm = Alarm::set(began + ns, tid);
            assert_eq!(lock(&other), -1);
            assert_eq!(
                std::io::Error::last_os_error().raw_os_error(),
                Some(libc::EINTR)
            );
            assert!(alarm.has_rung());
        }
        assert!(now_ns() >= began + 20_000_000);
    }

    fn raw(file: &std::fs::File) -> libc::c_int {
        std::os::fd::AsRawFd::as_raw_fd(file)
    }
}
