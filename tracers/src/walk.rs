//! Walks a spool while it is in use: every name with its attributes, relative to directory
//! descriptors, so that the walk follows a directory that is renamed under it.
//!
//! A directory moved from where the walk has not been to where it has been would be missed:
//! directories that changed since they were listed are listed again, until nothing new is found.

use std::collections::{HashMap, HashSet};
use std::ffi::{CStr, CString};
use std::io;
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};
use std::os::unix::ffi::OsStrExt;
use std::sync::mpsc::SyncSender;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use spoolscope_traces::records::{Tree, Xattr};
use spoolscope_traces::segment::{Capture, Kind};

use crate::attributes::{self, Attributes};
use crate::host::{Spool, clock};
use crate::snapshot::Found;

/// Names sent at once, at most.
const BATCH: usize = 512;
/// With a rate, no more at once than come in this part of a second.
const BURSTS: u32 = 20;
/// Bytes of directory entries read at once.
const LISTING: usize = 64 << 10;
/// How often changed directories are listed again; what is new then, the calls tell.
const PASSES: usize = 4;
/// Times of files are as coarse as the timer tick.
const TICK_NS: i64 = 20_000_000;

/// Names on their way to the capture; `path`, `target` and `name` of the records are lengths of
/// texts, which follow each other: of each row its name and target.
#[derive(Debug, Default)]
pub struct Names {
    pub rows: Vec<Tree>,
    pub texts: Vec<u8>,
    pub xattrs: Vec<Xattr>,
    pub xattr_texts: Vec<u8>,
}

impl Names {
    /// Writes all records, their texts interned.
    pub fn store(self, capture: &mut Capture) -> Result<()> {
        let mut texts = self.texts.as_slice();
        for mut row in self.rows {
            row.path = intern(capture, &mut texts, row.path);
            row.target = intern(capture, &mut texts, row.target);
            capture.push(Kind::Tree, &row)?;
        }
        let mut texts = self.xattr_texts.as_slice();
        for mut xattr in self.xattrs {
            xattr.name = intern(capture, &mut texts, xattr.name);
            capture.push(Kind::Xattr, &xattr)?;
        }
        Ok(())
    }
}

fn intern(capture: &mut Capture, texts: &mut &[u8], length: u32) -> u32 {
    let (text, rest) = texts.split_at(length as usize);
    *texts = rest;
    capture.string(text)
}

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
    to: &'a SyncSender<Found>,
    /// Names per second at most.
    rate: Option<u32>,
    /// When the next batch may begin.
    due: Instant,
    /// Names sent at once.
    batch_size: usize,
    dev: u32,
    rows: u32,
    known: HashSet<u64>,
    listed: HashMap<u32, Listed>,
    batch: Names,
}

impl<'a> Walk<'a> {
    pub fn new(to: &'a SyncSender<Found>, rate: Option<u32>) -> Self {
        Self {
            to,
            rate,
            due: Instant::now(),
            batch_size: rate.map_or(BATCH, |rate| ((rate / BURSTS) as usize).clamp(1, BATCH)),
            dev: 0,
            rows: 0,
            known: HashSet::new(),
            listed: HashMap::new(),
            batch: Names::default(),
        }
    }

    /// Walks one spool. The calling thread gets a working directory of its own and moves it.
    pub fn spool(&mut self, spool: &Spool) -> Result<()> {
        // SAFETY: a plain system call; it concerns this thread only.
        let own = unsafe { libc::unshare(libc::CLONE_FS) };
        ensure!(own == 0, "unshare: {}", io::Error::last_os_error());
        self.dev = spool.dev;
        self.known.clear();
        self.listed.clear();
        let mount = CString::new(spool.mount.as_os_str().as_bytes())?;
        let failed = || format!("Failed to walk {}", spool.mount.display());
        let root = open_directory(&mount).with_context(failed)?;
        let attributes = attributes::of(&mount).with_context(failed)?;
        let row = self.add(&attributes, 0, &mount)?;
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
        self.send()
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
        let Ok(fd) = open_directory(name) else {
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
        let row = self.add(&found, parent, name)?;
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
            let Ok(directory) = open_directory(&path) else {
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

    /// Adds a row and returns its number.
    fn add(&mut self, found: &Attributes, parent: u32, name: &CStr) -> Result<u32> {
        self.rows += 1;
        let target = found.target(name);
        self.batch.texts.extend_from_slice(name.to_bytes());
        self.batch.texts.extend_from_slice(&target);
        self.batch.rows.push(Tree {
            dev: self.dev,
            parent,
            path: name.to_bytes().len() as u32,
            target: target.len() as u32,
            extents: found.extents(name),
            ts_ns: clock(libc::CLOCK_MONOTONIC) as u64,
            ..found.record()
        });
        attributes::each_xattr(name, |text, length| {
            self.batch.xattr_texts.extend_from_slice(text);
            self.batch.xattrs.push(Xattr {
                tree: self.rows,
                name: text.len() as u32,
                length,
                pad: 0,
            });
        });
        if self.batch.rows.len() >= self.batch_size {
            self.send()?;
        }
        Ok(self.rows)
    }

    fn send(&mut self) -> Result<()> {
        let names = std::mem::take(&mut self.batch);
        let sent = names.rows.len() as f64;
        self.to.send(Found::Names(names))?;
        if let Some(rate) = self.rate {
            // What the disk held up is not made up for: no second has more than the rate.
            let now = Instant::now();
            self.due = now.max(self.due + Duration::from_secs_f64(sent / f64::from(rate)));
            std::thread::sleep(self.due - now);
        }
        Ok(())
    }
}

/// Opens a directory for listing; our reading leaves no access time where that is allowed.
fn open_directory(path: &CStr) -> io::Result<OwnedFd> {
    let flags = libc::O_RDONLY | libc::O_DIRECTORY | libc::O_NOFOLLOW | libc::O_CLOEXEC;
    for flags in [flags | libc::O_NOATIME, flags] {
        // SAFETY: the path is NUL-terminated; the descriptor is owned by nobody else.
        let fd = unsafe { libc::open(path.as_ptr(), flags) };
        if fd >= 0 {
            // SAFETY: just opened.
            return Ok(unsafe { OwnedFd::from_raw_fd(fd) });
        }
        if io::Error::last_os_error().raw_os_error() != Some(libc::EPERM) {
            break;
        }
    }
    Err(io::Error::last_os_error())
}

fn enter(directory: &OwnedFd) -> Result<()> {
    // SAFETY: a live descriptor.
    let entered = unsafe { libc::fchdir(directory.as_raw_fd()) };
    ensure!(entered == 0, "fchdir: {}", io::Error::last_os_error());
    Ok(())
}

/// All names of a directory but "." and "..".
fn entries(directory: &OwnedFd) -> Result<Vec<CString>> {
    /// Offset of `d_name` in `struct linux_dirent64`, and of its `d_reclen`.
    const NAME: usize = 19;
    const LENGTH: usize = 16;
    let mut buffer = vec![0u8; LISTING];
    let mut names = Vec::new();
    loop {
        // SAFETY: the kernel writes at most `LISTING` bytes.
        let n = unsafe {
            libc::syscall(
                libc::SYS_getdents64,
                directory.as_raw_fd(),
                buffer.as_mut_ptr(),
                LISTING,
            )
        };
        ensure!(n >= 0, "getdents64: {}", io::Error::last_os_error());
        if n == 0 {
            return Ok(names);
        }
        let mut rest = &buffer[..n as usize];
        while rest.len() > NAME {
            let length = usize::from(u16::from_ne_bytes([rest[LENGTH], rest[LENGTH + 1]]));
            let name = CStr::from_bytes_until_nul(&rest[NAME..])?;
            if name != c"." && name != c".." {
                names.push(name.to_owned());
            }
            rest = &rest[length..];
        }
    }
}
