//! `--snapshot touched`: lists the directories that calls use, soon after their first use.
//!
//! A directory is reached by its path from the mount; each directory above it gets a row. A
//! directory that has been listed is recognised by its inode and time of birth, also after a
//! rename. The stream holds what happened before a name was looked at; the reader (start.py) undoes
//! that.

use std::collections::HashMap;
use std::ffi::{CStr, CString, OsStr};
use std::os::fd::OwnedFd;
use std::os::unix::ffi::OsStrExt;
use std::path::{Component, Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering};
use std::sync::mpsc::{Receiver, SyncSender};

use anyhow::Result;

use crate::attributes::{self, Attributes};
use crate::directory::{self, enter, entries};
use crate::host::{Spool, clock};
use crate::rows::{Names, Rows};

/// Symbolic links followed on the way to one directory.
const MOST_LINKS: u32 = 8;
/// `Wanted::listed_ns` of a directory that was not found.
pub const FAILED: u64 = u64::MAX;

/// A directory that a call used.
#[derive(Debug)]
pub struct Wanted {
    pub path: Vec<u8>,
    /// CLOCK_MONOTONIC when all its names had been looked at; 0 before that.
    pub listed_ns: AtomicU64,
}

/// A request to the lister.
#[derive(Debug)]
pub enum Wish {
    /// All names of a directory.
    Directory(Arc<Wanted>),
    /// One name, moved here from a directory that has not been listed.
    Name(Vec<u8>),
}

/// Controls the lister: when it begins anew and when it ends.
#[derive(Debug, Default)]
pub struct Control {
    /// The segment being recorded, from 1: each has its own tree.
    pub segment: AtomicU32,
    /// True if nothing more is to be listed.
    pub stop: AtomicBool,
}

/// Device, inode and time of birth: an inode number is reused, and the time of birth distinguishes
/// the files.
type Identity = (u32, u64, i64);

#[derive(Debug)]
struct Lister<'a> {
    spools: &'a [Spool],
    rows: Rows<'a, Names>,
    /// Row of each directory that was met, and true if it has been listed.
    known: HashMap<Identity, (u32, bool)>,
    control: &'a Control,
}

/// A directory that is now the working directory.
struct Reached<'a> {
    spool: &'a Spool,
    fd: OwnedFd,
    identity: Identity,
    row: u32,
}

/// Fulfil wishes until the channel closes or `control.stop` is set.
pub fn run(
    spools: &[Spool],
    rate: Option<u32>,
    wishes: &Receiver<(u32, Wish)>,
    control: &Control,
    to: &SyncSender<Names>,
) -> Result<()> {
    directory::roam()?;
    let mut segment = 0;
    let mut lister: Option<Lister<'_>> = None;
    while let Ok((of, wish)) = wishes.recv() {
        if control.stop.load(Ordering::Relaxed) {
            break;
        }
        if of != control.segment.load(Ordering::Relaxed) {
            continue; // that segment has ended
        }
        if of != segment {
            segment = of;
            lister = None;
        }
        let lister = lister.get_or_insert_with(|| Lister {
            spools,
            rows: Rows::new(to, rate, of),
            known: HashMap::new(),
            control,
        });
        match wish {
            Wish::Directory(wanted) => lister.directory(&wanted)?,
            Wish::Name(path) => lister.name(&path)?,
        }
        lister.rows.send()?;
    }
    Ok(())
}

impl<'a> Lister<'a> {
    fn directory(&mut self, wanted: &Wanted) -> Result<()> {
        let Some(at) = self.reach(&wanted.path, MOST_LINKS)? else {
            wanted.listed_ns.store(FAILED, Ordering::Release);
            return Ok(());
        };
        let listed = self.known.insert(at.identity, (at.row, true));
        if !listed.is_some_and(|(_, listed)| listed) {
            for name in entries(&at.fd)? {
                if self.control.stop.load(Ordering::Relaxed) {
                    return Ok(());
                }
                self.look(&at, &name)?;
            }
            self.rows.listed(at.spool.dev, at.row);
        }
        let now = clock(libc::CLOCK_MONOTONIC) as u64;
        wanted.listed_ns.store(now, Ordering::Release);
        Ok(())
    }

    fn name(&mut self, path: &[u8]) -> Result<()> {
        let path = Path::new(OsStr::from_bytes(path));
        let (Some(above), Some(name)) = (path.parent(), path.file_name()) else {
            return Ok(());
        };
        if let Some(at) = self.reach(above.as_os_str().as_bytes(), MOST_LINKS)? {
            self.look(&at, &CString::new(name.as_bytes())?)?;
        }
        Ok(())
    }

    /// Look at one name of the working directory.
    fn look(&mut self, at: &Reached<'_>, name: &CStr) -> Result<()> {
        // The name is gone, or another filesystem is mounted there.
        let Ok(found) = attributes::of(name) else {
            return Ok(());
        };
        if found.mounted {
            return Ok(());
        }
        if found.is_directory() {
            self.row_of(at.spool, &found, at.row, name)?;
        } else {
            self.rows.add(at.spool.dev, &found, at.row, name)?;
        }
        Ok(())
    }

    /// Go to a directory step by step from the mount; it becomes the working directory.
    fn reach(&mut self, path: &[u8], links: u32) -> Result<Option<Reached<'a>>> {
        let path = Path::new(OsStr::from_bytes(path));
        let fits = self.spools.iter().filter(|s| path.starts_with(&s.mount));
        let Some(spool) = fits.max_by_key(|s| s.mount.as_os_str().len()) else {
            return Ok(None);
        };
        let Some(mut at) = self.top(spool)? else {
            return Ok(None);
        };
        let below = path.strip_prefix(&spool.mount)?;
        let mut come = spool.mount.clone();
        for (i, part) in below.components().enumerate() {
            let Component::Normal(part) = part else {
                return Ok(None);
            };
            let name = CString::new(part.as_bytes())?;
            let Ok(found) = attributes::of(&name) else {
                return Ok(None);
            };
            come.push(part);
            if found.is_symlink() && links > 0 {
                self.rows.add(spool.dev, &found, at.row, &name)?;
                let rest: PathBuf = below.components().skip(i + 1).collect();
                let Ok(real) = come.canonicalize() else {
                    return Ok(None);
                };
                return self.reach(real.join(rest).as_os_str().as_bytes(), links - 1);
            }
            if !found.is_directory() || found.mounted {
                return Ok(None);
            }
            let Ok(fd) = directory::open(&name) else {
                return Ok(None);
            };
            if attributes::inode(&fd)? != found.ino {
                return Ok(None); // the name now belongs to another directory
            }
            let row = self.row_of(spool, &found, at.row, &name)?;
            let identity = identity(spool, &found);
            enter(&fd)?;
            at = Reached {
                spool,
                fd,
                identity,
                row,
            };
        }
        Ok(Some(at))
    }

    /// Go to the spool's mount point, or its directory, which may be gone.
    fn top(&mut self, spool: &'a Spool) -> Result<Option<Reached<'a>>> {
        let mount = CString::new(spool.mount.as_os_str().as_bytes())?;
        let (Ok(fd), Ok(found)) = (directory::open(&mount), attributes::of(&mount)) else {
            return Ok(None);
        };
        let row = self.row_of(spool, &found, 0, &mount)?;
        enter(&fd)?;
        let identity = identity(spool, &found);
        Ok(Some(Reached {
            spool,
            fd,
            identity,
            row,
        }))
    }

    /// Return the row of a directory; it is added when the directory is met first.
    fn row_of(
        &mut self,
        spool: &Spool,
        found: &Attributes,
        parent: u32,
        name: &CStr,
    ) -> Result<u32> {
        let identity = identity(spool, found);
        if let Some((row, _)) = self.known.get(&identity) {
            return Ok(*row);
        }
        let row = self.rows.add(spool.dev, found, parent, name)?;
        self.known.insert(identity, (row, false));
        Ok(row)
    }
}

fn identity(spool: &Spool, found: &Attributes) -> Identity {
    (spool.dev, found.ino, found.record().btime_ns)
}
