//! Room on the disk of the target: checked before a replay and watched during it, because files
//! that lost their names while open, or that other programs fill, take more.

use anyhow::{Context, Result, ensure};
use spoolscope_traces::error_code::{Code, Failure};
use std::ffi::{CStr, CString};

use crate::sandbox::Confinement;
use crate::target_files::statvfs;

/// Room left to other programs: a hundredth of the filesystem, but at most this many bytes.
const MOST_LEFT: u64 = 1 << 30;
const SHARE: u64 = 100;
/// Interval of the checks.
const LOOK_NS: i64 = 50_000_000;

/// Fails if the target cannot hold the fixture and what the replay will add to it.
pub fn check(confinement: &Confinement, needed: i64, names: usize) -> Result<()> {
    let (free, size) = bytes(&confinement.path(b"")).context("target has no statvfs")?;
    let needed = needed.max(0) as u128 + 4096 * names as u128 + u128::from(left_of(size));
    ensure!(
        needed <= u128::from(free),
        Failure::new(
            Code::TooSmall,
            format!("target has {free} bytes free, the replay needs {needed}"),
            "give a bigger target"
        )
    );
    Ok(())
}

/// The filesystem of a target.
#[derive(Debug)]
pub struct Room {
    root: CString,
    left: u64,
    looked_ns: i64,
}

impl Room {
    pub fn of(confinement: &Confinement) -> Self {
        let root = confinement.path(b"");
        let (free, size) = bytes(&root).unwrap_or((0, 0));
        // If less was free from the beginning, nothing is left to other programs.
        let left = Some(left_of(size)).filter(|left| free >= *left);
        Self {
            root,
            left: left.unwrap_or(0),
            looked_ns: 0,
        }
    }

    /// Fails when so little is free that other programs would lack room.
    pub fn require(&mut self, now_ns: i64) -> Result<()> {
        if now_ns - self.looked_ns < LOOK_NS {
            return Ok(());
        }
        self.looked_ns = now_ns;
        let (free, _) = bytes(&self.root).unwrap_or((u64::MAX, 0));
        ensure!(
            free >= self.left,
            "only {free} bytes of the target's filesystem are free, give a bigger one"
        );
        Ok(())
    }
}

fn left_of(size: u64) -> u64 {
    (size / SHARE).min(MOST_LEFT)
}

/// Returns the bytes free for all users, and the size.
fn bytes(root: &CStr) -> Option<(u64, u64)> {
    let stat = statvfs(root).ok()?;
    Some((stat.f_bavail * stat.f_frsize, stat.f_blocks * stat.f_frsize))
}
