//! Confinement: a plan is untrusted, so nothing it names may lie outside the target.

use anyhow::{Context, Result, ensure};
use spoolscope_traces::error_code::{Code, Failure};
use std::ffi::CString;
use std::fs;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;

/// How the replay is confined to the target.
#[derive(Clone, Debug)]
pub struct Confinement {
    /// Inside a chroot; if not, symlinks are not made, so that none can lead out.
    pub chrooted: bool,
    /// Owners are replayed; if not, everything belongs to the caller.
    pub owners: bool,
    /// Prefix of paths relative to the spool; ends in a slash.
    pub prefix: Vec<u8>,
    /// Descriptor of /proc, which has no name inside a chroot; -1 without one.
    pub proc: i32,
}

impl Confinement {
    /// Returns the prefix of a name; the spool itself is named without the slash.
    pub fn prefix_of(&self, name: &[u8]) -> &[u8] {
        match self.prefix.as_slice() {
            [start @ .., b'/'] if name.is_empty() && !start.is_empty() => start,
            whole => whole,
        }
    }

    /// Returns a path below the spool, as the kernel needs it.
    pub fn path(&self, name: &[u8]) -> CString {
        let mut full = self.prefix_of(name).to_vec();
        full.extend_from_slice(name);
        // Names were checked for NUL when the plan was opened.
        CString::new(full).unwrap_or_default()
    }
}

/// Makes the target the root directory of this process and of its descendants.
pub fn enter(target: &Path) -> Result<Confinement> {
    let target = target
        .canonicalize()
        .with_context(|| format!("target {} cannot be opened", target.display()))?;
    ensure!(
        target.is_dir(),
        "target {} is not a directory",
        target.display()
    );
    ensure!(
        target != Path::new("/"),
        "the target must not be the root directory"
    );
    // SAFETY: the path is NUL-terminated.
    let proc = unsafe { libc::open(c"/proc".as_ptr(), libc::O_PATH | libc::O_CLOEXEC) };
    // SAFETY: plain system call.
    let owners = unsafe { libc::geteuid() } == 0;
    let chrooted = (owners || own_user_namespace().is_ok()) && change_root(&target).is_ok();
    let mut prefix = b"/".to_vec();
    if !chrooted {
        std::env::set_current_dir(&target)?;
        prefix = target.as_os_str().as_bytes().to_vec();
        prefix.push(b'/');
    }
    Ok(Confinement {
        chrooted,
        owners,
        prefix,
        proc,
    })
}

/// Refuses a target that holds anything but what mkfs leaves behind.
pub fn require_empty(target: &Path) -> Result<()> {
    let entries = fs::read_dir(target)
        .with_context(|| format!("target {} cannot be opened", target.display()))?;
    for entry in entries {
        let name = entry?.file_name();
        ensure!(
            name == "lost+found",
            Failure::new(
                Code::NotEmpty,
                format!("target {} is not empty", target.display()),
                "give an empty directory"
            )
        );
    }
    Ok(())
}

fn own_user_namespace() -> Result<()> {
    // SAFETY: plain system calls.
    let (uid, gid) = unsafe { (libc::geteuid(), libc::getegid()) };
    // SAFETY: the process has one thread.
    let done = unsafe { libc::unshare(libc::CLONE_NEWUSER) };
    ensure!(done == 0, "no user namespace");
    fs::write("/proc/self/setgroups", "deny")?;
    fs::write("/proc/self/uid_map", format!("{uid} {uid} 1"))?;
    fs::write("/proc/self/gid_map", format!("{gid} {gid} 1"))?;
    Ok(())
}

fn change_root(target: &Path) -> Result<()> {
    let path = CString::new(target.as_os_str().as_bytes())?;
    // SAFETY: the path is NUL-terminated.
    ensure!(unsafe { libc::chroot(path.as_ptr()) } == 0, "no chroot");
    std::env::set_current_dir("/")?;
    Ok(())
}
