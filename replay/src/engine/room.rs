//! Whether the disk of the target has room left: what a replay needs is reckoned before it begins,
//! but files that lost their names while they were open, or that others fill meanwhile, take more.

use anyhow::{Result, ensure};
use std::ffi::{CStr, CString};

use crate::sandbox::Confinement;

/// Left to others: a hundredth of the filesystem, but no more than this many bytes.
const MOST_LEFT: u64 = 1 << 30;
const SHARE: u64 = 100;

/// The filesystem of a target.
#[derive(Debug)]
pub struct Room {
    root: CString,
    left: u64,
}

impl Room {
    pub fn of(confinement: &Confinement) -> Self {
        let root = confinement.path(b"");
        let (free, size) = bytes(&root).unwrap_or((0, 0));
        let left = (size / SHARE).min(MOST_LEFT);
        // Where there was less from the beginning, the replay was told to do with it.
        let left = if free < left { 0 } else { left };
        Self { root, left }
    }

    /// Fails when there is so little that others would be without.
    pub fn require(&self) -> Result<()> {
        let (free, _) = bytes(&self.root).unwrap_or((u64::MAX, 0));
        ensure!(
            free >= self.left,
            "only {free} bytes of the target's filesystem are free, give a bigger one"
        );
        Ok(())
    }
}

/// Bytes that are free for everybody, and all.
fn bytes(root: &CStr) -> Option<(u64, u64)> {
    // SAFETY: zero is a valid statvfs; the path is NUL-terminated.
    unsafe {
        let mut stat: libc::statvfs = std::mem::zeroed();
        (libc::statvfs(root.as_ptr(), &raw mut stat) == 0)
            .then(|| (stat.f_bavail * stat.f_frsize, stat.f_blocks * stat.f_frsize))
    }
}
