//! Signals that end a recording in order, or freeze it.

use std::sync::atomic::{AtomicBool, Ordering};

use anyhow::{Result, bail};
use spoolscope_traces::ending_signals::catch_ending;
use spoolscope_traces::error_code::{Code, Failure};

use crate::cli::Options;

static STOP: AtomicBool = AtomicBool::new(false);
static FREEZE: AtomicBool = AtomicBool::new(false);

extern "C" fn on_signal(_: libc::c_int) {
    STOP.store(true, Ordering::Relaxed);
}

extern "C" fn on_freeze(_: libc::c_int) {
    FREEZE.store(true, Ordering::Relaxed);
}

/// End this process when the process that waits for it is killed: at once until signals are caught,
/// then in order.
pub fn end_with_parent(options: &Options) -> Result<()> {
    let Some(parent) = options.parent else {
        return Ok(());
    };
    // SAFETY: plain flags.
    unsafe { libc::prctl(libc::PR_SET_PDEATHSIG, libc::SIGTERM) };
    // SAFETY: no arguments.
    if unsafe { libc::getppid() } != parent {
        bail!(Failure::new(
            Code::Failed,
            format!("process {parent}, which waited for this recording, has ended"),
            "record again",
        ));
    }
    Ok(())
}

/// Catch the signals that end the recording in order, and the one that freezes it.
pub fn catch() {
    catch_ending(on_signal);
    // SAFETY: the handler only stores to an atomic.
    unsafe { libc::signal(libc::SIGUSR1, on_freeze as *const () as libc::sighandler_t) };
}

/// Return true if a signal asked for the end.
pub fn stop_asked() -> bool {
    STOP.load(Ordering::Relaxed)
}

/// Return true if a signal asked to freeze the flight recorder since the last call.
pub fn freeze_asked() -> bool {
    FREEZE.swap(false, Ordering::Relaxed)
}
