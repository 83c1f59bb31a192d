//! Notices when spools are unmounted. Their calls are recorded by device, so nothing else would
//! show it.

use std::fs::File;
use std::os::fd::AsRawFd;
use std::path::PathBuf;

use anyhow::{Context, Result};
use serde_json::{Value, json};

use crate::host::{self, Spool};
use crate::mounts::{Mount, Mounts};

/// Reads the mounts when the kernel reports that they changed.
#[derive(Debug)]
pub struct Watch {
    mountinfo: File,
    spools: Vec<Spool>,
    /// CLOCK_REALTIME when each was first found unmounted.
    gone_ns: Vec<Option<i64>>,
    due: bool,
}

impl Watch {
    pub fn new(spools: &[Spool]) -> Result<Watch> {
        let mountinfo = File::open("/proc/self/mountinfo").context("Failed to open mountinfo")?;
        Ok(Watch {
            mountinfo,
            spools: spools.to_vec(),
            gone_ns: vec![None; spools.len()],
            due: true,
        })
    }

    /// Return the spools found unmounted since the last call; usually this costs only one poll.
    pub fn newly_gone(&mut self) -> Result<Vec<PathBuf>> {
        if !std::mem::take(&mut self.due) && !self.changed() {
            return Ok(Vec::new());
        }
        let mounts = Mounts::own().context("Failed to read mounts")?;
        let mut found = Vec::new();
        for (spool, gone_ns) in self.spools.iter().zip(&mut self.gone_ns) {
            // The kernel gives the number of a mount to a later one.
            let there = |mount: &Mount| mount.id == spool.id && mount.dev == spool.dev;
            if gone_ns.is_none() && !mounts.all.iter().any(there) {
                *gone_ns = Some(host::clock(libc::CLOCK_REALTIME));
                found.push(spool.mount.clone());
            }
        }
        Ok(found)
    }

    /// Add to each spool of meta.json when it was found unmounted.
    pub fn tell(&self, meta: &mut Value) {
        for (at, gone_ns) in self.gone_ns.iter().enumerate() {
            meta["spools"][at]["unmounted_ns"] = json!(gone_ns);
        }
    }

    /// Return true if the mounts changed, which is an exceptional condition of the open file:
    /// proc(5).
    fn changed(&self) -> bool {
        let mut poll = libc::pollfd {
            fd: self.mountinfo.as_raw_fd(),
            events: libc::POLLPRI,
            revents: 0,
        };
        // SAFETY: one live pollfd, no waiting.
        unsafe { libc::poll(&raw mut poll, 1, 0) > 0 }
    }
}
