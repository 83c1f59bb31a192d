//! Mounts and their places, from the lines of mountinfo.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::io;
use std::path::{Path, PathBuf};

/// A mount.
#[derive(Debug, Clone)]
pub struct Mount {
    pub mount: PathBuf,
    pub fstype: String,
    pub options: String,
    pub source: String,
    /// `super_block.s_dev` as the kernel packs it: major << 20 | minor.
    pub dev: u32,
    /// Directory of the filesystem that is mounted here; "/" unless it is a bind mount.
    pub root: PathBuf,
    pub id: u32,
    /// The mount that its mount point lies on.
    pub parent: u32,
}

/// Mounts of one namespace as a process sees them.
#[derive(Debug)]
pub struct Mounts {
    /// In the order in which they were made.
    pub all: Vec<Mount>,
    by_id: BTreeMap<u32, usize>,
    /// By mount: the mount points on it, and the mounts at each.
    on: BTreeMap<u32, BTreeMap<PathBuf, BTreeSet<u32>>>,
    /// The last mount at each place.
    last: BTreeMap<PathBuf, usize>,
}

impl Mounts {
    /// Return the mounts that this process sees.
    pub fn own() -> io::Result<Mounts> {
        Mounts::of("self")
    }

    /// Return the mounts below the root directory of a task, by the names that they have there.
    pub fn of(task: impl std::fmt::Display) -> io::Result<Mounts> {
        let text = fs::read(format!("/proc/{task}/mountinfo"))?;
        Ok(Mounts::parse(&String::from_utf8_lossy(&text)))
    }

    /// Parse the lines of mountinfo.
    pub fn parse(text: &str) -> Mounts {
        let all: Vec<Mount> = text.lines().filter_map(parse_mount).collect();
        let mut mounts = Mounts {
            by_id: BTreeMap::new(),
            on: BTreeMap::new(),
            last: BTreeMap::new(),
            all: Vec::new(),
        };
        for (i, mount) in all.iter().enumerate() {
            mounts.by_id.insert(mount.id, i);
            mounts.last.insert(mount.mount.clone(), i);
            let places = mounts.on.entry(mount.parent).or_default();
            let here = places.entry(mount.mount.clone()).or_default();
            here.insert(mount.id);
        }
        mounts.all = all;
        mounts
    }

    /// Return the mount that a canonical path lies on. The last mount on a directory hides the
    /// earlier ones.
    pub fn holding(&self, path: &Path) -> Option<&Mount> {
        let found = path.ancestors().find_map(|place| self.last.get(place));
        found.map(|i| &self.all[*i])
    }

    /// Return true if names lead to the mount: no later one hides it, or a mount that it lies on.
    pub fn is_reachable(&self, mount: &Mount) -> bool {
        let (mut here, mut from) = (mount, mount.id);
        loop {
            // The mount that was visited before, one level below, does not hide this one.
            if self.hides(here, from) {
                return false;
            }
            from = here.id;
            match self.by_id.get(&here.parent) {
                Some(above) if here.parent != here.id => here = &self.all[*above],
                _ => return true,
            }
        }
    }

    /// Return true if a mount other than `but` hides this one: on it, or beside it further up.
    fn hides(&self, mount: &Mount, but: u32) -> bool {
        let at = |parent: u32, place: &Path| {
            let there = self.on.get(&parent).and_then(|places| places.get(place));
            let mut others = there.into_iter().flatten();
            others.any(|id| *id != mount.id && *id != but && *id != mount.parent)
        };
        at(mount.id, &mount.mount)
            || (mount.mount.ancestors().skip(1)).any(|place| at(mount.parent, place))
    }
}

/// Parse a line of proc(5): "36 35 98:0 /root /mount options - fstype source superoptions".
fn parse_mount(line: &str) -> Option<Mount> {
    let (left, right) = line.split_once(" - ")?;
    let left: Vec<&str> = left.split(' ').collect();
    let right: Vec<&str> = right.split(' ').collect();
    let (major, minor) = left.get(2)?.split_once(':')?;
    Some(Mount {
        root: PathBuf::from(unescape(left.get(3)?)),
        mount: PathBuf::from(unescape(left.get(4)?)),
        fstype: (*right.first()?).to_owned(),
        options: format!("{},{}", left.get(5)?, right.get(2)?),
        source: unescape(right.get(1)?),
        dev: major.parse::<u32>().ok()? << 20 | minor.parse::<u32>().ok()?,
        id: left.first()?.parse().ok()?,
        parent: left.get(1)?.parse().ok()?,
    })
}

/// Undo the octal escapes of mountinfo: space, tab, newline, backslash.
fn unescape(text: &str) -> String {
    text.replace("\\040", " ")
        .replace("\\011", "\t")
        .replace("\\012", "\n")
        .replace("\\134", "\\")
}

/// Join two paths, without a trailing slash when there is nothing to add.
pub fn join(base: &Path, rest: &Path) -> PathBuf {
    if rest.as_os_str().is_empty() {
        base.to_owned()
    } else {
        base.join(rest)
    }
}

/// Return the id of the mount that a path lies on.
pub fn mount_id(path: &Path) -> io::Result<u32> {
    use std::os::unix::ffi::OsStrExt;
    let path = std::ffi::CString::new(path.as_os_str().as_bytes())?;
    // SAFETY: an all-zero statx is valid.
    let mut found: libc::statx = unsafe { std::mem::zeroed() };
    // SAFETY: path is NUL-terminated, the buffer is ours.
    let done = unsafe {
        libc::statx(
            libc::AT_FDCWD,
            path.as_ptr(),
            0,
            libc::STATX_MNT_ID,
            &raw mut found,
        )
    };
    if done != 0 {
        return Err(io::Error::last_os_error());
    }
    Ok(found.stx_mnt_id as u32)
}
