//! Tasks with real-time priority, on request.
//!
//! A task that becomes due takes a CPU from a task without such priority; of several CPUs the
//! kernel chooses one where no such task runs. Without it the kernel may leave a task waiting
//! behind another for a time slice, on some machines although a CPU is free.

use anyhow::{Result, ensure};
use std::io::Error;

/// Lowest real-time priority: the kernel's own real-time threads go first.
const PRIORITY: i32 = 1;
const IOPRIO_WHO_PROCESS: i32 = 1;
const IOPRIO_CLASS_BE: i32 = 2;
const IOPRIO_CLASS_SHIFT: i32 = 13;

/// Lets this process and its descendants take the priority, whatever user they become.
///
/// Their I/O keeps the priority that it has now: the block layer would put that of real-time
/// tasks first (`task_nice_ioclass` in linux/ioprio.h).
pub fn permit() -> Result<()> {
    let most = libc::rlimit {
        rlim_cur: PRIORITY as u64,
        rlim_max: PRIORITY as u64,
    };
    // SAFETY: plain system calls; `most` is valid for reading.
    let taken = unsafe {
        libc::syscall(libc::SYS_ioprio_set, IOPRIO_WHO_PROCESS, 0, io_priority());
        libc::setrlimit(libc::RLIMIT_RTPRIO, &raw const most);
        set(true)
    };
    let refused = Error::last_os_error();
    ensure!(
        taken,
        "cannot take real-time priority: {refused}; replay as root, or without --realtime"
    );
    set(false);
    Ok(())
}

/// Returns the I/O priority of this process: the one that was set, else that of its nice value.
fn io_priority() -> i64 {
    // SAFETY: plain system calls.
    unsafe {
        match libc::syscall(libc::SYS_ioprio_get, IOPRIO_WHO_PROCESS, 0) {
            asked if asked >> IOPRIO_CLASS_SHIFT > 0 => asked,
            _ => {
                let nice = libc::getpriority(libc::PRIO_PROCESS, 0);
                i64::from((IOPRIO_CLASS_BE << IOPRIO_CLASS_SHIFT) | ((nice + 20) / 5))
            }
        }
    }
}

/// Returns whether this thread has the priority, which is inherited.
pub fn is_on() -> bool {
    // SAFETY: plain system call.
    unsafe { libc::sched_getscheduler(0) == libc::SCHED_RR }
}

/// Takes the priority, or gives it back; `false` if that is refused.
pub fn set(on: bool) -> bool {
    let (policy, priority) = match on {
        true => (libc::SCHED_RR, PRIORITY),
        false => (libc::SCHED_OTHER, 0),
    };
    let parameters = libc::sched_param {
        sched_priority: priority,
    };
    // SAFETY: acts on this thread only; the parameters are valid for reading.
    unsafe { libc::sched_setscheduler(0, policy, &raw const parameters) == 0 }
}
