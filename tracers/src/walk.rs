//! Walks a spool while it is in use: every name with its attributes, relative to directory
//! descriptors, so that the walk follows a directory that is renamed during it.
//!
//! A directory moved from a part not yet walked to a part already walked would be missed. Therefore
//! directories that changed since they were listed are listed again, and directories that were not
//! in their place are looked for until they are back, or found elsewhere.

use std::collections::{HashMap, HashSet};
use std::ffi::{CStr, CString};
use std::os::fd::OwnedFd;
use std::os::unix::ffi::OsStrExt;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::SyncSender;
use std::thread;
use std::time::Duration;

use anyhow::{Context, Result};

use crate::attributes;
use crate::directory::{self, enter, entries};
use crate::host::{Spool, clock};
use crate::mounts;
use crate::rows::Rows;
use crate::snapshot_items::Found;

/// How often changed directories are listed again; later changes are in the recorded calls.
const PASSES: usize = 4;
/// How often a directory that is not in its place is looked for; this includes removed ones.
const TRIES: usize = 20;
const PAUSE: Duration = Duration::from_millis(1);
/// Longest path from the root; places that were noted at different times may form a circle.
const DEEPEST: usize = 4096;
/// Times of files are as coarse as the timer tick.
const TICK_NS: i64 = 20_000_000;

/// A directory that was listed.
#[derive(Debug)]
struct Listed {
    parent: u32,
    name: CString,
    ino: u64,
    /// Its modification time before the listing.
    mtime_ns: i64,
    listed_ns: i64,
}

/// A directory being walked, with the directories below it that were not walked yet.
#[derive(Debug)]
struct Frame {
    fd: OwnedFd,
    row: u32,
    below: Vec<Below>,
}

/// A directory that was met: its row and inode, to recognise it when it is entered.
#[derive(Debug)]
struct Below {
    row: u32,
    ino: u64,
    name: CString,
}

/// One walk over all spools; its rows are numbered continuously, from 1.
#[derive(Debug)]
pub struct Walk<'a> {
    rows: Rows<'a, Found>,
    stop: &'a AtomicBool,
    dev: u32,
    known: HashSet<u64>,
    listed: HashMap<u32, Listed>,
    /// Rows of listed directories by inode.
    row_of: HashMap<u64, u32>,
    /// Directories that were met but gone before they were entered: row of the parent, by inode.
    escaped: HashMap<u64, u32>,
}

/// Result of looking again at listed directories.
#[derive(Debug, Default)]
struct Again {
    /// True if there was a directory that had not been walked.
    found: bool,
    changed: Vec<u32>,
    /// Directories that are not in their place.
    away: Vec<u32>,
}

impl<'a> Walk<'a> {
    /// Make a walk; `stop` ends it early.
    pub fn new(to: &'a SyncSender<Found>, rate: Option<u32>, stop: &'a AtomicBool) -> Self {
        Self {
            rows: Rows::new(to, rate, 1),
            stop,
            dev: 0,
            known: HashSet::new(),
            listed: HashMap::new(),
            row_of: HashMap::new(),
            escaped: HashMap::new(),
        }
    }

    /// Walk one spool; return false if it is no longer mounted in its place, which mounted.rs
    /// reports. The calling thread gets a working directory of its own, which changes.
    pub fn spool(&mut self, spool: &Spool) -> Result<bool> {
        if mounts::mount_id(&spool.mount).ok() != Some(spool.id) {
            return Ok(false);
        }
        directory::roam()?;
        self.dev = spool.dev;
        self.known.clear();
        self.listed.clear();
        self.row_of.clear();
        self.escaped.clear();
        let mount = CString::new(spool.mount.as_os_str().as_bytes())?;
        let failed = || format!("Failed to walk {}", spool.mount.display());
        let root = directory::open(&mount).with_context(failed)?;
        let attributes = attributes::of(&mount).with_context(failed)?;
        let row = self.rows.add(self.dev, &attributes, 0, &mount)?;
        let top = Below {
            row,
            ino: attributes.ino,
            name: c".".to_owned(),
        };
        self.below(&root, 0, &top)?;
        self.catch_up(&root)?;
        self.rows.send()?;
        Ok(true)
    }

    fn stopped(&self) -> bool {
        self.stop.load(Ordering::Relaxed)
    }

    /// Look again at directories that changed or were away during the walk.
    fn catch_up(&mut self, root: &OwnedFd) -> Result<()> {
        let mut rows: Vec<u32> = self.listed.keys().copied().collect();
        for turn in 0..TRIES {
            let mut seen = self.again(root, &rows)?;
            rows = std::mem::take(&mut seen.away);
            rows.extend(self.escaped.values());
            if turn < PASSES {
                rows.append(&mut seen.changed);
            }
            if turn < PASSES && seen.found {
                rows = self.listed.keys().copied().collect();
            }
            if rows.is_empty() || self.stopped() {
                break;
            }
            thread::sleep(PAUSE);
        }
        Ok(())
    }

    /// List a directory met in `at`, and all below it.
    fn below(&mut self, at: &OwnedFd, parent: u32, top: &Below) -> Result<()> {
        enter(at)?;
        let mut frames: Vec<Frame> = Vec::new();
        frames.extend(self.frame(parent, top)?);
        while let Some(frame) = frames.last_mut().filter(|_| !self.stopped()) {
            let Some(met) = frame.below.pop() else {
                frames.pop();
                if let Some(above) = frames.last() {
                    enter(&above.fd)?;
                }
                continue;
            };
            let parent = frame.row;
            frames.extend(self.frame(parent, &met)?);
        }
        Ok(())
    }

    /// Enter and list a directory. One that was removed or moved meanwhile has no frame; it stays
    /// unknown, so that it is walked where it reappears.
    fn frame(&mut self, parent: u32, met: &Below) -> Result<Option<Frame>> {
        let (row, name) = (met.row, &met.name);
        self.escaped.insert(met.ino, parent);
        let Ok(fd) = directory::open(name) else {
            return Ok(None);
        };
        if attributes::inode(&fd)? != met.ino {
            return Ok(None); // the name now belongs to another directory
        }
        self.escaped.remove(&met.ino);
        enter(&fd)?;
        let own = attributes::of(c".")?;
        self.known.insert(own.ino);
        self.row_of.insert(own.ino, row);
        let listed = Listed {
            parent,
            name: name.clone(),
            ino: own.ino,
            mtime_ns: own.mtime_ns,
            listed_ns: clock(libc::CLOCK_REALTIME),
        };
        self.listed.insert(row, listed);
        let mut below = Vec::new();
        for name in entries(&fd)? {
            if self.stopped() {
                return Ok(None);
            }
            below.extend(self.look(row, &name)?);
        }
        self.rows.listed(self.dev, row);
        below.reverse();
        Ok(Some(Frame { fd, row, below }))
    }

    /// Look at one name of the working directory; a directory is returned, to be walked.
    fn look(&mut self, parent: u32, name: &CStr) -> Result<Option<Below>> {
        // The name is gone, or another filesystem is mounted there.
        let Ok(found) = attributes::of(name) else {
            return Ok(None);
        };
        if found.mounted {
            return Ok(None);
        }
        let row = self.rows.add(self.dev, &found, parent, name)?;
        if !found.is_directory() {
            self.known.insert(found.ino);
            return Ok(None);
        }
        Ok(Some(Below {
            row,
            ino: found.ino,
            name: name.to_owned(),
        }))
    }

    /// List again those of some directories that changed since they were listed.
    fn again(&mut self, root: &OwnedFd, rows: &[u32]) -> Result<Again> {
        let mut seen = Again::default();
        for row in rows
            .iter()
            .copied()
            .take_while(|_| !self.stop.load(Ordering::Relaxed))
        {
            enter(root)?;
            let there = self.path(row).and_then(|path| {
                let now = attributes::of(&path).ok()?;
                Some((now, directory::open(&path).ok()?))
            });
            let listed = self.listed.get_mut(&row);
            let Some(((now, directory), listed)) = there.zip(listed) else {
                seen.away.push(row); // removed or moved
                continue;
            };
            if listed.ino != now.ino {
                seen.away.push(row);
                continue;
            }
            let settled = listed.mtime_ns < listed.listed_ns - TICK_NS;
            if settled && now.mtime_ns == listed.mtime_ns {
                continue;
            }
            (listed.mtime_ns, listed.listed_ns) = (now.mtime_ns, clock(libc::CLOCK_REALTIME));
            seen.changed.push(row);
            seen.found |= self.list_again(row, &directory)?;
        }
        Ok(seen)
    }

    /// Walk the new names in a directory; return true if a directory was among them.
    fn list_again(&mut self, row: u32, directory: &OwnedFd) -> Result<bool> {
        let mut found = false;
        for name in entries(directory)? {
            enter(directory)?;
            let known = attributes::of(&name).map(|named| named.ino);
            if let Some(ino) = known.ok().filter(|ino| self.known.contains(ino)) {
                self.note_place(ino, row, name);
            } else if let Some(met) = self.look(row, &name)? {
                found = true;
                self.below(directory, row, &met)?;
            }
        }
        Ok(found)
    }

    /// Note the place of a directory that was listed elsewhere and lies here now.
    fn note_place(&mut self, ino: u64, parent: u32, name: CString) {
        let row = self.row_of.get(&ino);
        if let Some(listed) = row.and_then(|row| self.listed.get_mut(row)) {
            (listed.parent, listed.name) = (parent, name);
        }
    }

    /// Return the path of a directory relative to the root, as far as it is known.
    fn path(&self, row: u32) -> Option<CString> {
        let mut parts = Vec::new();
        let mut at = self.listed.get(&row)?;
        loop {
            parts.push(at.name.to_bytes());
            match self.listed.get(&at.parent) {
                Some(above) if parts.len() < DEEPEST => at = above,
                Some(_) => return None,
                None => break,
            }
        }
        parts.reverse();
        CString::new(parts.join(&b"/"[..])).ok()
    }
}

#[cfg(test)]
mod tests {
    use super::{Found, Spool, Walk};
    use crate::mounts;
    use std::fs;
    use std::os::unix::fs::MetadataExt;
    use std::path::{Path, PathBuf};
    use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
    use std::sync::mpsc::sync_channel;
    use std::thread;
    use std::time::Duration;

    const BOXES: usize = 4;

    /// Move the folder of each box away, and its contents elsewhere, and all of it back.
    fn move_about(top: &Path, over: &AtomicBool) {
        let rename = |from: &str, to: &str| fs::rename(top.join(from), top.join(to)).unwrap();
        for turn in (0..).take_while(|_| !over.load(Relaxed)) {
            let (here, there) = (turn % BOXES, (turn * 7 + 1) % BOXES);
            rename(&format!("{here}/cur/deep"), &format!("{there}/cur/moved"));
            rename(
                &format!("{there}/cur/moved/deeper"),
                &format!("{there}/new/d"),
            );
            thread::sleep(Duration::from_micros(200));
            rename(
                &format!("{there}/new/d"),
                &format!("{there}/cur/moved/deeper"),
            );
            rename(&format!("{there}/cur/moved"), &format!("{here}/cur/deep"));
            thread::sleep(Duration::from_micros(turn as u64 * 97 % 300));
        }
    }

    fn walked(top: &Path, files: &[u64]) -> bool {
        let (to, found) = sync_channel::<Found>(1 << 10);
        let spool = Spool {
            mount: PathBuf::from(top),
            fstype: String::new(),
            options: String::new(),
            source: String::new(),
            dev: 0,
            root: PathBuf::from("/"),
            id: mounts::mount_id(top).unwrap(),
        };
        thread::spawn(move || found.iter().count());
        let goes_on = AtomicBool::new(false);
        let mut walk = Walk::new(&to, None, &goes_on);
        walk.spool(&spool).unwrap();
        files.iter().all(|file| walk.known.contains(file))
    }

    #[test]
    fn a_directory_that_is_moved_to_and_fro_is_walked() {
        let place = tempfile::tempdir().unwrap();
        let top = place.path();
        for name in 0..BOXES {
            fs::create_dir_all(top.join(format!("{name}/cur/deep/deeper"))).unwrap();
            fs::create_dir(top.join(format!("{name}/new"))).unwrap();
            fs::write(top.join(format!("{name}/cur/deep/deeper/file")), "").unwrap();
        }
        let files = (0..BOXES).map(|name| top.join(format!("{name}/cur/deep/deeper/file")));
        let inos: Vec<u64> = files.map(|file| file.metadata().unwrap().ino()).collect();
        let over = AtomicBool::new(false);
        thread::scope(|scope| {
            scope.spawn(|| move_about(top, &over));
            let missed = (0..500).filter(|_| !walked(top, &inos)).count();
            over.store(true, Relaxed);
            assert_eq!(missed, 0);
        });
    }
}
