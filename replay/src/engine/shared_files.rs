//! Files that were open when the recording began, opened once for all processes that shared them.

use foldhash::{HashMap, HashMapExt};
use spoolscope_traces::records::{NONE, PlanFd};
use std::sync::atomic::{AtomicI32, Ordering::Relaxed};

use crate::engine::fds;
use crate::plan::Plan;
use crate::sandbox::Confinement;
use crate::semantics::{self, OpenFlags};

/// Open files that several descriptors share, with one position: the engine opens each once, and
/// the processes that it starts inherit it.
#[derive(Debug, Default)]
pub struct SharedFiles {
    /// By number of the open file; -1 once the engine has closed it.
    real: HashMap<u32, AtomicI32>,
}

impl SharedFiles {
    pub fn open(plan: &Plan, confinement: &Confinement) -> Self {
        let mut count: HashMap<u32, u32> = HashMap::new();
        for fd in plan.fds().iter().filter(|fd| fd.file != NONE) {
            *count.entry(fd.file).or_default() += 1;
        }
        let mut real = HashMap::new();
        for fd in plan.fds() {
            if count.get(&fd.file).is_some_and(|count| *count > 1) && !real.contains_key(&fd.file) {
                real.insert(fd.file, AtomicI32::new(open(plan, fd, confinement)));
            }
        }
        Self { real }
    }

    /// Returns a descriptor of its own for a shared file; `None` if the file is not shared.
    pub fn take(&self, file: u32) -> Option<i32> {
        let real = self.real.get(&file)?.load(Relaxed);
        // SAFETY: plain system call; a descriptor that is closed fails.
        let copy = unsafe { libc::fcntl(real, libc::F_DUPFD_CLOEXEC, 0) };
        (copy >= 0).then_some(copy)
    }

    /// Closes the descriptors of this process: a lock on an open file lasts until all are closed.
    pub fn close(&self) {
        for real in self.real.values() {
            match real.swap(-1, Relaxed) {
                -1 => {}
                open => fds::close(open),
            }
        }
    }
}

/// Returns a descriptor at its recorded position, or a negative number.
pub fn open(plan: &Plan, fd: &PlanFd, confinement: &Confinement) -> i32 {
    let path = confinement.path(plan.string(fd.path));
    let mut flags = OpenFlags::new(fd.flags).again().bits();
    if semantics::is_special(fd.mode) {
        flags |= libc::O_PATH;
    }
    // SAFETY: the path is NUL-terminated.
    let real = unsafe { libc::open(path.as_ptr(), flags | libc::O_NONBLOCK) };
    if real >= 0 {
        // SAFETY: the descriptor was just opened.
        unsafe { libc::lseek(real, fd.pos.max(0), libc::SEEK_SET) };
    }
    real
}
