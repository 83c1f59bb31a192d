//! The switch of BPF's run-time statistics, which the kernel allows only with CAP_SYS_ADMIN.
//!
//! A separate process holds that right and does nothing but switch, so that the recorder does not
//! need it. It ends with the recorder.

use std::io::{Read, Write};
use std::os::fd::{FromRawFd, OwnedFd};
use std::os::unix::net::UnixStream;

use anyhow::{Context, Result, bail};
use libbpf_rs::libbpf_sys::{BPF_STATS_RUN_TIME, bpf_enable_stats};

use crate::privileges;

const ON: u8 = 1;
const OFF: u8 = 0;
const REFUSED: u8 = 2;

/// The recorder's end.
#[derive(Debug)]
pub struct Switch(UnixStream);

impl Switch {
    /// Fork the process; must be called while this process has one thread.
    pub fn fork() -> Result<Switch> {
        let (mine, theirs) = UnixStream::pair().context("Failed to make a socket pair")?;
        // SAFETY: single-threaded here; the child never returns from here.
        let pid = unsafe { libc::fork() };
        if pid < 0 {
            bail!("Failed to fork: {}", std::io::Error::last_os_error());
        }
        if pid == 0 {
            drop(mine);
            serve(theirs);
            // SAFETY: ends this process without the exit handlers that belong to its parent.
            unsafe { libc::_exit(0) };
        }
        Ok(Switch(mine))
    }

    /// Switch the statistics on or off.
    pub fn set(&mut self, on: bool) -> Result<()> {
        let mut answer = [if on { ON } else { OFF }];
        self.0.write_all(&answer)?;
        self.0
            .read_exact(&mut answer)
            .context("Failed to switch the run-time statistics of BPF: nobody answers")?;
        if answer[0] == REFUSED {
            bail!("Failed to switch on the run-time statistics of BPF");
        }
        Ok(())
    }
}

fn serve(mut socket: UnixStream) {
    for signal in [libc::SIGINT, libc::SIGTERM, libc::SIGHUP, libc::SIGUSR1] {
        // SAFETY: ignoring is always allowed; the end of the socket is our signal.
        unsafe { libc::signal(signal, libc::SIG_IGN) };
    }
    if privileges::keep(&[privileges::CAP_SYS_ADMIN]).is_err() {
        return;
    }
    let mut statistics: Option<OwnedFd> = None;
    let mut wanted = [OFF];
    while socket.read_exact(&mut wanted).is_ok() {
        statistics = if wanted[0] == ON {
            statistics.or_else(switched_on)
        } else {
            None
        };
        let refused = wanted[0] == ON && statistics.is_none();
        let answer = if refused { REFUSED } else { wanted[0] };
        if socket.write_all(&[answer]).is_err() {
            return;
        }
    }
}

/// Switch the statistics on; they stay on while this descriptor is open.
fn switched_on() -> Option<OwnedFd> {
    // SAFETY: a call without memory arguments.
    let fd = unsafe { bpf_enable_stats(BPF_STATS_RUN_TIME) };
    // SAFETY: just made, with no other owner.
    (fd >= 0).then(|| unsafe { OwnedFd::from_raw_fd(fd) })
}
