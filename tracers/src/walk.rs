//! Walks a spool while it is in use: every name with its attributes, relative to directory
//! descriptors, so that the walk follows a directory that is renamed under it.
//!
//! A directory moved from where the walk has not been to where it has been would be missed:
//! directories that changed since they were listed are listed again, until nothing new is found.

use std::collections::{HashMap, HashSet};
use std::ffi::{CStr, CString};
use std::os::fd::OwnedFd;
use std::os::unix::ffi::OsStrExt;
use std::sync::mpsc::SyncSender;

use anyhow::{Context, Result};

use crate::attributes;
use crate::directory::{self, enter, entries};
use crate::host::{Spool, clock};
use crate::rows::Rows;
use crate::snapshot::Found;

/// How often changed directories are listed again; what is new then, the calls tell.
const PASSES: usize = 4;
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

/// A directory being walked: what lies below it and was not walked yet.
#[derive(Debug)]
struct Frame {
    fd: OwnedFd,
    row: u32,
    below: Vec<Below>,
}

/// A directory that was met: its row and inode, to know it again when it is entered.
#[derive(Debug)]
struct Below {
    row: u32,
    ino: u64,
    name: CString,
}

/// One walk over all spools; its rows are numbered through, from 1.
#[derive(Debug)]
pub struct Walk<'a> {
    rows: Rows<'a, Found>,
    dev: u32,
    known: HashSet<u64>,
    listed: HashMap<u32, Listed>,
}

impl<'a> Walk<'a> {
    pub fn new(to: &'a SyncSender<Found>, rate: Option<u32>) -> Self {
        Self {
            rows: Rows::new(to, rate, 1),
            dev: 0,
            known: HashSet::new(),
            listed: HashMap::new(),
        }
    }

    /// Walks one spool. The calling thread gets a working directory of its own and moves it.
    pub fn spool(&mut self, spool: &Spool) -> Result<()> {
        directory::roam()?;
        self.dev = spool.dev;
        self.known.clear();
        self.listed.clear();
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
        for _ in 0..PASSES {
            if !self.again(&root)? {
                break;
            }
        }
        self.rows.send()
    }

    /// Lists a directory met in `at`, and all below it.
    fn below(&mut self, at: &OwnedFd, parent: u32, top: &Below) -> Result<()> {
        enter(at)?;
        let mut frames: Vec<Frame> = Vec::new();
        frames.extend(self.frame(parent, top)?);
        while let Some(frame) = frames.last_mut() {
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

    /// Enters and lists a directory. One that was removed or moved meanwhile has no frame; it
    /// stays unknown, so that it is walked where it turns up again.
    fn frame(&mut self, parent: u32, met: &Below) -> Result<Option<Frame>> {
        let (row, name) = (met.row, &met.name);
        let Ok(fd) = directory::open(name) else {
            return Ok(None);
        };
        if attributes::inode(&fd)? != met.ino {
            return Ok(None); // another one has that name now
        }
        enter(&fd)?;
        let own = attributes::of(c".")?;
        self.known.insert(own.ino);
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
            below.extend(self.look(row, &name)?);
        }
        self.rows.listed(self.dev, row);
        below.reverse();
        Ok(Some(Frame { fd, row, below }))
    }

    /// Looks at one name of the working directory; a directory is given back, to be walked.
    fn look(&mut self, parent: u32, name: &CStr) -> Result<Option<Below>> {
        // Gone meanwhile, or another filesystem that is mounted here.
        let Ok(found) = attributes::of(name) else {
            return Ok(None);
        };
        if found.mounted || found.is_device() {
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

    /// Looks through directories that changed since they were listed; true if there was a
    /// directory in one that had not been walked.
    fn again(&mut self, root: &OwnedFd) -> Result<bool> {
        let rows: Vec<u32> = self.listed.keys().copied().collect();
        let mut found = false;
        for row in rows {
            let Some(path) = self.path(row) else { continue };
            enter(root)?;
            let Ok(now) = attributes::of(&path) else {
                continue; // removed or moved
            };
            let Some(listed) = self.listed.get_mut(&row).filter(|l| l.ino == now.ino) else {
                continue;
            };
            let settled = listed.mtime_ns < listed.listed_ns - TICK_NS;
            if settled && now.mtime_ns == listed.mtime_ns {
                continue;
            }
            (listed.mtime_ns, listed.listed_ns) = (now.mtime_ns, clock(libc::CLOCK_REALTIME));
            let Ok(directory) = directory::open(&path) else {
                continue;
            };
            for name in entries(&directory)? {
                enter(&directory)?;
                if attributes::of(&name).is_ok_and(|f| self.known.contains(&f.ino)) {
                    continue;
                }
                if let Some(met) = self.look(row, &name)? {
                    found = true;
                    self.below(&directory, row, &met)?;
                }
            }
        }
        Ok(found)
    }

    /// Where a directory was listed, relative to the root.
    fn path(&self, row: u32) -> Option<CString> {
        let mut parts = Vec::new();
        let mut at = self.listed.get(&row)?;
        loop {
            parts.push(at.name.to_bytes());
            match self.listed.get(&at.parent) {
                Some(above) => at = above,
                None => break,
            }
        }
        parts.reverse();
        CString::new(parts.join(&b"/"[..])).ok()
    }
}
