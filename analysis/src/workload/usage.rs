//! Resource usage of processes, by `wait4`.

use serde::Serialize;
use std::io;

/// Usage of processes of one name, including children that they waited for.
#[derive(Clone, Debug, Default, Serialize)]
pub struct Usage {
    /// Number of processes.
    pub n: u64,
    /// CPU time in user mode, ns.
    pub user_ns: u64,
    /// CPU time in the kernel, ns.
    pub system_ns: u64,
    /// Page faults that waited for a disk.
    pub major_faults: u64,
    /// Page faults that did not wait for a disk.
    pub minor_faults: u64,
    /// Voluntary context switches.
    pub waits: u64,
    /// Involuntary context switches.
    pub preemptions: u64,
}

impl Usage {
    /// Add the usage of another.
    pub fn add(&mut self, other: &Self) {
        self.n += other.n;
        self.user_ns += other.user_ns;
        self.system_ns += other.system_ns;
        self.major_faults += other.major_faults;
        self.minor_faults += other.minor_faults;
        self.waits += other.waits;
        self.preemptions += other.preemptions;
    }

    fn of(used: &libc::rusage) -> Self {
        let ns =
            |time: libc::timeval| time.tv_sec as u64 * 1_000_000_000 + time.tv_usec as u64 * 1000;
        Self {
            n: 1,
            user_ns: ns(used.ru_utime),
            system_ns: ns(used.ru_stime),
            major_faults: used.ru_majflt as u64,
            minor_faults: used.ru_minflt as u64,
            waits: used.ru_nvcsw as u64,
            preemptions: used.ru_nivcsw as u64,
        }
    }
}

/// Wait for a child; return its status from `wait4`, and its usage.
pub fn wait_for(pid: libc::pid_t) -> io::Result<(i32, Usage)> {
    let mut status = 0;
    // SAFETY: a rusage of zeros is one.
    let mut used: libc::rusage = unsafe { std::mem::zeroed() };
    loop {
        // SAFETY: both pointers are to locals.
        if unsafe { libc::wait4(pid, &raw mut status, 0, &raw mut used) } >= 0 {
            return Ok((status, Usage::of(&used)));
        }
        let error = io::Error::last_os_error();
        if error.kind() != io::ErrorKind::Interrupted {
            return Err(error);
        }
    }
}

/// Nanoseconds of the monotonic clock, the same in all processes.
pub fn now_ns() -> u64 {
    let mut time = libc::timespec {
        tv_sec: 0,
        tv_nsec: 0,
    };
    // SAFETY: the pointer is to a local.
    unsafe { libc::clock_gettime(libc::CLOCK_MONOTONIC, &raw mut time) };
    time.tv_sec as u64 * 1_000_000_000 + time.tv_nsec as u64
}

/// Let this process end with its parent.
pub fn end_with_parent() {
    // SAFETY: takes numbers only.
    unsafe { libc::prctl(libc::PR_SET_PDEATHSIG, libc::SIGKILL) };
}
