//! After attaching, the recorder keeps only the rights that it still needs.

use anyhow::{Result, bail};

use crate::cli::{Options, Snapshot};

const CAP_DAC_READ_SEARCH: u32 = 2;
const CAP_KILL: u32 = 5;
const CAP_SYS_PTRACE: u32 = 19;
/// Needed by the switch of BPF's statistics.
pub const CAP_SYS_ADMIN: u32 = 21;
const CAP_SYSLOG: u32 = 34;
const CAP_PERFMON: u32 = 38;
const CAP_BPF: u32 = 39;
const CAPABILITY_VERSION_3: u32 = 0x2008_0522;

#[repr(C)]
struct Header {
    version: u32,
    pid: i32,
}

/// 32 capabilities: effective, permitted, inheritable.
#[repr(C)]
#[derive(Clone, Copy, Default)]
struct Set {
    effective: u32,
    permitted: u32,
    inheritable: u32,
}

/// Return the capabilities needed until the end: for iterators and counters (BPF, PERFMON), kernel
/// addresses of stacks (SYSLOG), working directories of other processes at the next segment
/// (SYS_PTRACE), listing directories at their first use (DAC_READ_SEARCH), and ending a command
/// that changed its user (KILL).
fn needed(options: &Options) -> Vec<u32> {
    let mut caps = vec![CAP_BPF, CAP_PERFMON, CAP_SYSLOG];
    if options.rotates() || options.keeps_last() || options.user_stacks.is_some() {
        caps.push(CAP_SYS_PTRACE);
    }
    if options.snapshot == Snapshot::Touched {
        caps.push(CAP_DAC_READ_SEARCH);
    }
    if !options.command.is_empty() {
        caps.push(CAP_KILL);
    }
    caps
}

/// Give up the capabilities that are not needed. The command was forked before and keeps its own.
pub fn drop(options: &Options) -> Result<()> {
    keep(&needed(options))
}

/// Return true if this is the only thread. A thread that was joined stays listed until the kernel
/// is done with it, on a busy machine a moment later.
fn alone() -> Result<bool> {
    for _ in 0..1000 {
        if std::fs::read_dir("/proc/self/task")?.count() == 1 {
            return Ok(true);
        }
        std::thread::sleep(std::time::Duration::from_millis(1));
    }
    Ok(false)
}

/// Give up every other capability for good.
pub fn keep(wanted: &[u32]) -> Result<()> {
    // Capabilities belong to threads: another running thread would keep its own.
    if !alone()? {
        bail!("Failed to drop privileges: another thread runs");
    }
    // SAFETY: plain numbers. Capabilities that this kernel does not know give EINVAL.
    unsafe {
        libc::prctl(libc::PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0);
        libc::prctl(
            libc::PR_CAP_AMBIENT,
            libc::PR_CAP_AMBIENT_CLEAR_ALL,
            0,
            0,
            0,
        );
        for cap in 0..64 {
            libc::prctl(libc::PR_CAPBSET_DROP, cap, 0, 0, 0);
        }
    }
    let wanted = wanted.iter().fold(0u64, |set, cap| set | 1 << cap);
    let mut header = Header {
        version: CAPABILITY_VERSION_3,
        pid: 0,
    };
    let mut sets = [Set::default(); 2];
    // SAFETY: two sets belong to version 3, and both are ours.
    if unsafe { libc::syscall(libc::SYS_capget, &raw mut header, sets.as_mut_ptr()) } != 0 {
        bail!("Failed to read capabilities: {}", last_error());
    }
    for (set, wanted) in sets.iter_mut().zip([wanted as u32, (wanted >> 32) as u32]) {
        let kept = set.permitted & wanted;
        *set = Set {
            effective: kept,
            permitted: kept,
            inheritable: 0,
        };
    }
    // SAFETY: as above.
    if unsafe { libc::syscall(libc::SYS_capset, &raw mut header, sets.as_ptr()) } != 0 {
        bail!("Failed to drop capabilities: {}", last_error());
    }
    Ok(())
}

fn last_error() -> std::io::Error {
    std::io::Error::last_os_error()
}
