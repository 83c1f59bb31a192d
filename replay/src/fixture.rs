//! Builds the tree that existed before the first operation.

use anyhow::{Context, Result, ensure};
use std::ffi::{CStr, CString};
use std::io;

use crate::model::state::{Thing, Tree};
use crate::pattern::Pattern;
use crate::plan::Plan;
use crate::sandbox::Confinement;
use crate::semantics;

const PIECE: i64 = 1 << 20;

/// What was built, for the JSON line.
#[derive(Debug, Default)]
pub struct Built {
    pub files: u64,
    pub directories: u64,
    pub others: u64,
    pub bytes: i64,
    /// Device nodes, and symlinks where they could lead out: never made.
    pub refused: u64,
    /// Extended attributes that were set.
    pub xattrs: u64,
    /// Those that were not: ACLs and security labels, whose values mean something, and what this
    /// filesystem does not take.
    pub xattrs_skipped: u64,
}

/// Fails if the target cannot hold the fixture and what the replay will add to it.
pub fn check_space(confinement: &Confinement, needed: i64, names: usize) -> Result<()> {
    let root = confinement.path(b"");
    // SAFETY: zero is a valid statvfs; the path is NUL-terminated.
    let free = unsafe {
        let mut stat: libc::statvfs = std::mem::zeroed();
        ensure!(
            libc::statvfs(root.as_ptr(), &raw mut stat) == 0,
            "target has no statvfs"
        );
        u128::from(stat.f_bavail) * u128::from(stat.f_frsize)
    };
    let needed = needed.max(0) as u128 + 4096 * names as u128;
    ensure!(
        needed <= free,
        "target has {free} bytes free, the replay needs {needed}"
    );
    Ok(())
}

/// Builds the whole tree; modes, owners and times are set when a directory is complete.
pub fn build(
    plan: &Plan,
    tree: &Tree,
    confinement: &Confinement,
    pattern: &Pattern,
) -> Result<Built> {
    // SAFETY: plain system call.
    unsafe { libc::umask(0) };
    let mut built = Built::default();
    let mut made: Vec<Option<CString>> = vec![None; tree.things.len()];
    for (name, thing) in &tree.names {
        let path = confinement.path(name);
        let shown = || format!("cannot make '{}'", String::from_utf8_lossy(name));
        if let Some(first) = &made[*thing] {
            // SAFETY: both strings are NUL-terminated.
            check(unsafe { libc::link(first.as_ptr(), path.as_ptr()) }).with_context(shown)?;
            continue;
        }
        let done = make(
            &tree.things[*thing],
            &path,
            confinement,
            pattern,
            &mut built,
        );
        if done.with_context(shown)? {
            made[*thing] = Some(path);
        }
    }
    for xattr in plan.xattrs() {
        let thing = tree.names.get(plan.string(xattr.path));
        if let Some(thing) = thing.filter(|thing| made[**thing].is_some()) {
            let path = confinement.path(plan.string(xattr.path));
            let ino = tree.things[*thing].ino;
            match set_xattr(plan.string(xattr.name), &path, ino, xattr.length, pattern)? {
                true => built.xattrs += 1,
                false => built.xattrs_skipped += 1,
            }
        }
    }
    for (name, thing) in tree.names.iter().rev() {
        if made[*thing].is_some() {
            finish(&tree.things[*thing], &confinement.path(name), confinement)
                .with_context(|| format!("cannot own '{}'", String::from_utf8_lossy(name)))?;
        }
    }
    Ok(built)
}

/// Makes one object; `false` if it is refused.
fn make(
    thing: &Thing,
    path: &CStr,
    confinement: &Confinement,
    pattern: &Pattern,
    built: &mut Built,
) -> Result<bool> {
    let mode = thing.attributes.mode;
    // SAFETY: strings are NUL-terminated; results are checked.
    unsafe {
        match mode & libc::S_IFMT {
            libc::S_IFDIR => match check(libc::mkdir(path.as_ptr(), 0o700)) {
                Err(error) if error.raw_os_error() != Some(libc::EEXIST) => {
                    return Err(error.into());
                }
                _ => built.directories += 1,
            },
            libc::S_IFLNK if confinement.chrooted => {
                let target = CString::new(thing.target.clone())?;
                check(libc::symlink(target.as_ptr(), path.as_ptr()))?;
                built.others += 1;
            }
            libc::S_IFIFO | libc::S_IFSOCK => {
                check(libc::mknod(path.as_ptr(), mode & libc::S_IFMT | 0o600, 0))?;
                built.others += 1;
            }
            libc::S_IFREG | 0 => {
                write_file(thing, path, pattern)?;
                built.files += 1;
                built.bytes += thing.attributes.size;
            }
            _ => {
                built.refused += 1;
                return Ok(false);
            }
        }
    }
    Ok(true)
}

fn write_file(thing: &Thing, path: &CStr, pattern: &Pattern) -> Result<()> {
    let flags = libc::O_CREAT | libc::O_EXCL | libc::O_WRONLY | libc::O_NOFOLLOW;
    // SAFETY: the path is NUL-terminated; the descriptor is closed below.
    let fd = check(unsafe { libc::open(path.as_ptr(), flags, 0o600) })?;
    let mut at = 0;
    let mut result = Ok(());
    while at < thing.attributes.size && result.is_ok() {
        let piece = PIECE.min(thing.attributes.size - at) as usize;
        let bytes = pattern
            .bytes(thing.ino, at, piece)
            .context("piece too long")?;
        // SAFETY: `bytes` is valid for `piece` bytes.
        let done = unsafe { libc::write(fd, bytes.as_ptr().cast(), piece) };
        result = if done > 0 {
            Ok(())
        } else {
            Err(io::Error::last_os_error())
        };
        at += done.max(0) as i64;
    }
    // SAFETY: opened above.
    unsafe { libc::close(fd) };
    Ok(result?)
}

/// Sets an extended attribute to a pattern of that length; `false` if it is not to be had here.
fn set_xattr(name: &[u8], path: &CStr, ino: u64, length: u32, pattern: &Pattern) -> Result<bool> {
    let Some(name) = semantics::user_xattr(name) else {
        return Ok(false);
    };
    let name = CString::new(name)?;
    let value = pattern.bytes(ino, 0, length as usize);
    let value = value.context("attribute too long")?;
    // SAFETY: both strings are NUL-terminated; the value is valid for its length.
    let done = unsafe {
        libc::lsetxattr(
            path.as_ptr(),
            name.as_ptr(),
            value.as_ptr().cast(),
            value.len(),
            0,
        )
    };
    Ok(done == 0)
}

fn finish(thing: &Thing, path: &CStr, confinement: &Confinement) -> Result<()> {
    let attributes = &thing.attributes;
    let link = attributes.mode & libc::S_IFMT == libc::S_IFLNK;
    let time = libc::timespec {
        tv_sec: attributes.mtime_ns.div_euclid(1_000_000_000),
        tv_nsec: attributes.mtime_ns.rem_euclid(1_000_000_000),
    };
    // SAFETY: the path is NUL-terminated and `times` has two elements.
    unsafe {
        if confinement.owners {
            check(libc::lchown(path.as_ptr(), attributes.uid, attributes.gid))?;
        }
        if !link {
            check(libc::chmod(path.as_ptr(), attributes.mode & 0o7777))?;
        }
        if attributes.mtime_ns > 0 {
            let times = [time, time];
            let flags = libc::AT_SYMLINK_NOFOLLOW;
            libc::utimensat(libc::AT_FDCWD, path.as_ptr(), times.as_ptr(), flags);
        }
    }
    Ok(())
}

/// The result of a system call as an `io::Result`.
pub fn check(result: libc::c_int) -> io::Result<libc::c_int> {
    if result < 0 {
        Err(io::Error::last_os_error())
    } else {
        Ok(result)
    }
}
