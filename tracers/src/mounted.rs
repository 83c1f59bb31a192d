//! Notices when spools are unmounted, or when something is mounted over them. Their calls are recorded
//! by device, so nothing else would show it.

use std::fs::File;
use std::os::fd::AsRawFd;
use std::path::PathBuf;

use anyhow::{Context, Result};
use serde_json::{Value, json};

use crate::host::{self, Spool};
use crate::mounts::{Mount, Mounts, join};

/// Events that are said of a spool: its filesystem is gone, or its name leads to another one.
pub const UNMOUNTED: &str = "unmounted";
pub const HIDDEN: &str = "hidden";

/// Reads the mounts when the kernel reports that they changed.
#[derive(Debug)]
pub struct Watch {
    mountinfo: File,
    spools: Vec<Spool>,
    /// CLOCK_REALTIME when each was first found unmounted.
    gone_ns: Vec<Option<i64>>,
    hidden: Vec<bool>,
    due: bool,
}

impl Watch {
    pub fn new(spools: &[Spool]) -> Result<Watch> {
        let mountinfo = File::open("/proc/self/mountinfo").context("Failed to open mountinfo")?;
        let mounts = Mounts::own().context("Failed to read mounts")?;
        // A spool that looks hidden at the beginning was found all the same, in a way not foreseen here.
        let hidden = spools.iter().map(|s| state(&mounts, s) == Some(HIDDEN));
        Ok(Watch {
            mountinfo,
            spools: spools.to_vec(),
            gone_ns: vec![None; spools.len()],
            hidden: hidden.collect(),
            due: true,
        })
    }

    /// Return the events of spools since the last call, each once; usually this costs only one poll.
    pub fn news(&mut self) -> Result<Vec<(&'static str, PathBuf)>> {
        if !std::mem::take(&mut self.due) && !self.changed() {
            return Ok(Vec::new());
        }
        let mounts = Mounts::own().context("Failed to read mounts")?;
        let mut found = Vec::new();
        for (at, spool) in self.spools.iter().enumerate() {
            let now = state(&mounts, spool);
            let is_news = match now {
                Some(UNMOUNTED) => self.gone_ns[at].is_none(),
                Some(_) => !std::mem::replace(&mut self.hidden[at], true),
                None => false,
            };
            if now == Some(UNMOUNTED) && is_news {
                self.gone_ns[at] = Some(host::clock(libc::CLOCK_REALTIME));
            }
            found.extend(
                now.filter(|_| is_news)
                    .map(|now| (now, spool.mount.clone())),
            );
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

/// Return what is wrong with a spool, if anything.
fn state(mounts: &Mounts, spool: &Spool) -> Option<&'static str> {
    // The kernel gives the number of a mount to a later one.
    let there = |mount: &Mount| mount.id == spool.id && mount.dev == spool.dev;
    if !mounts.all.iter().any(there) {
        return Some(UNMOUNTED);
    }
    // Only the text of mountinfo: to look the name up may wait for a server that is gone.
    let leads_to_it = mounts.holding(&spool.mount).is_some_and(|mount| {
        let below = spool.mount.strip_prefix(&mount.mount);
        below.is_ok_and(|below| spool.holds(mount.dev, &join(&mount.root, below)))
            && mounts.is_reachable(mount)
    });
    (!leads_to_it).then_some(HIDDEN)
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use super::*;

    const ROOT: &str = "1 0 8:1 / / rw - ext4 /dev/sda1 rw\n";
    const MAIL: &str = "2 1 8:2 / /var/mail rw - ext4 /dev/sda2 rw\n";

    fn spool(mount: &str, dev: u32, root: &str, id: u32) -> Spool {
        Spool {
            mount: mount.into(),
            fstype: "ext4".into(),
            options: "rw".into(),
            source: "none".into(),
            dev,
            root: Path::new(root).into(),
            id,
        }
    }

    fn state_in(lines: &[&str], spool: &Spool) -> Option<&'static str> {
        state(&Mounts::parse(&lines.concat()), spool)
    }

    #[test]
    fn a_spool_is_gone_with_its_mount() {
        let of_disk = spool("/var/mail", 8 << 20 | 2, "/", 2);
        assert_eq!(state_in(&[ROOT, MAIL], &of_disk), None);
        assert_eq!(state_in(&[ROOT], &of_disk), Some(UNMOUNTED));
        let again = MAIL.replace("8:2", "8:3");
        assert_eq!(state_in(&[ROOT, &again], &of_disk), Some(UNMOUNTED));
    }

    #[test]
    fn a_late_mount_hides_the_directory_that_is_the_spool() {
        let part = spool("/var/mail", 8 << 20 | 1, "/var/mail", 1);
        assert_eq!(state_in(&[ROOT], &part), None);
        assert_eq!(state_in(&[ROOT, MAIL], &part), Some(HIDDEN));
        let below = MAIL.replace("/var/mail", "/var/mail/archive");
        assert_eq!(state_in(&[ROOT, &below], &part), None);
    }

    #[test]
    fn a_mount_above_hides_a_spool_and_one_of_the_same_directory_does_not() {
        let of_disk = spool("/var/mail", 8 << 20 | 2, "/", 2);
        let above = "3 1 8:3 / /var rw - ext4 /dev/sda3 rw\n";
        assert_eq!(state_in(&[ROOT, MAIL, above], &of_disk), Some(HIDDEN));
        let over = "3 2 8:3 / /var/mail rw - ext4 /dev/sda3 rw\n";
        assert_eq!(state_in(&[ROOT, MAIL, over], &of_disk), Some(HIDDEN));
        let itself = "3 2 8:2 / /var/mail ro - ext4 /dev/sda2 rw\n";
        assert_eq!(state_in(&[ROOT, MAIL, itself], &of_disk), None);
    }
}
