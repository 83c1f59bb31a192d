//! A counter in shared memory, with which processes keep step.

use anyhow::{Result, bail};
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

const LOOK_EVERY: Duration = Duration::from_micros(200);

/// A counter in memory that is shared with processes forked later.
#[derive(Debug)]
pub struct Counter(*mut AtomicU64);

impl Counter {
    /// Make a counter of 0.
    pub fn new() -> Result<Self> {
        let (size, rights) = (size_of::<AtomicU64>(), libc::PROT_READ | libc::PROT_WRITE);
        let flags = libc::MAP_SHARED | libc::MAP_ANONYMOUS;
        // SAFETY: a new mapping, of no file; zeros are a counter.
        let at = unsafe { libc::mmap(std::ptr::null_mut(), size, rights, flags, -1, 0) };
        if at == libc::MAP_FAILED {
            bail!("map memory: {}", std::io::Error::last_os_error());
        }
        Ok(Self(at.cast()))
    }

    fn count(&self) -> &AtomicU64 {
        // SAFETY: mapped, aligned to a page, and never unmapped.
        unsafe { &*self.0 }
    }

    /// Count one more.
    pub fn add(&self) {
        self.count().fetch_add(1, Ordering::Relaxed);
    }

    /// Wait until the count is `n`; fail if the parent has ended.
    pub fn wait_for(&self, n: u64) -> Result<()> {
        // SAFETY: takes nothing.
        let parent = unsafe { libc::getppid() };
        while self.count().load(Ordering::Relaxed) < n {
            std::thread::sleep(LOOK_EVERY);
            // SAFETY: takes nothing.
            if unsafe { libc::getppid() } != parent {
                bail!("the load has ended");
            }
        }
        Ok(())
    }
}
