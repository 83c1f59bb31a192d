//! A disk with configurable delays: one file over FUSE, the backing file of a loop device.
//!
//! Reads, writes and flushes wait for the delay that is set for their kind and place, and every
//! delayed request is logged, so that the results of a tracer can be checked.

mod delays;
mod disk;
mod model;

use anyhow::{Context, Result};
use clap::Parser;
use delays::Delays;
use disk::Disk;
use spoolscope_traces::error_code::{self, Code, Failure};
use std::fs::File;
use std::io::{BufRead, ErrorKind, Write, stdin, stdout};
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::sync::{Arc, RwLock};

/// Threads, and so requests served at once: a delayed one does not hold up the others.
const THREADS: usize = 8;
/// The same for a model, whose queue is as long as that of a disk.
const MODEL_THREADS: usize = 40;

/// Serve IMAGE at MOUNTPOINT, a regular file, with delays that standard input sets.
///
/// A line of input is `KIND FROM TO DELAY_NS` (KIND: read, write or flush; bytes FROM to TO of the
/// disk, TO exclusive; the latest line that fits a request counts; a flush has no place) or
/// `clear`, or `model on` or `model off`: requests take the time of the device model, or none; off
/// at the beginning; or `path NS`: how long a request without a delay takes, by which those of a
/// model without an arm are shorter. It is answered by `ok`, after which the delay is in force, or by a line of JSON with
/// code, message and remedy. The end of input is the end of the disk.
///
/// The log has a line for every delayed request: kind, offset, bytes, begin and end in
/// nanoseconds since the epoch. A flush waits but does not write IMAGE to its own disk.
#[derive(Parser)]
#[command(name = "spoolscope-slowdisk", version)]
struct Cli {
    /// File with the disk's contents.
    image: PathBuf,
    /// Regular file to mount on.
    mountpoint: PathBuf,
    /// File to write the log to.
    log: PathBuf,
    /// A device model as JSON.
    #[arg(long)]
    model: Option<String>,
}

fn main() -> ExitCode {
    match run(&Cli::parse()) {
        // The mount dies with the connection; the process that mounted it, or its namespace,
        // removes it.
        Ok(()) => std::process::exit(0),
        Err(error) => ExitCode::from(error_code::report("spoolscope-slowdisk", &error)),
    }
}

fn run(cli: &Cli) -> Result<()> {
    let image = File::options()
        .read(true)
        .write(true)
        .open(&cli.image)
        .with_context(|| format!("open {}", cli.image.display()))?;
    let log = File::create(&cli.log).with_context(|| format!("create {}", cli.log.display()))?;
    let delays = Arc::new(RwLock::new(Delays::default()));
    let disk = Disk::new(image, log, Arc::clone(&delays), cli.model.as_deref())?;
    let mut config = fuser::Config::default();
    config.n_threads = Some(cli.model.as_ref().map_or(THREADS, |_| MODEL_THREADS));
    config.mount_options = vec![fuser::MountOption::FSName("spoolscope-slowdisk".to_owned())];
    let session = fuser::Session::new(disk, &cli.mountpoint, &config)
        .map_err(|error| refused(&error, &cli.mountpoint))?;
    leave_mounts().context("leave the mount namespace")?;
    let session = session.spawn().context("serve")?;
    obey(&delays)?;
    std::mem::forget(session);
    Ok(())
}

/// Return why the disk cannot be mounted.
fn refused(error: &std::io::Error, place: &Path) -> Failure {
    let (code, remedy) = match error.kind() {
        ErrorKind::PermissionDenied => (Code::NotPermitted, "run as root"),
        ErrorKind::NotFound => (Code::NoKernel, "load the kernel module fuse"),
        _ => (Code::Failed, ""),
    };
    let message = format!("mount on {}: {error}", place.display());
    Failure::new(code, message, remedy)
}

/// Enter a new mount namespace. The last process of the namespace in which the filesystem on this
/// disk is mounted has to unmount it while it ends: this process would wait for ever for its own
/// answer. Threads that begin later are in the new namespace, too.
fn leave_mounts() -> std::io::Result<()> {
    // SAFETY: changes the namespace of this thread, the only one.
    if unsafe { libc::unshare(libc::CLONE_NEWNS) } != 0 {
        return Err(std::io::Error::last_os_error());
    }
    let (none, flags) = (std::ptr::null(), libc::MS_REC | libc::MS_SLAVE);
    // Others' mounts go from here when they go there, and are not kept alive.
    // SAFETY: only the path is read.
    match unsafe { libc::mount(none, c"/".as_ptr(), none, flags, std::ptr::null()) } {
        0 => Ok(()),
        _ => Err(std::io::Error::last_os_error()),
    }
}

/// Carry out the lines of standard input until it ends.
fn obey(delays: &RwLock<Delays>) -> Result<()> {
    let mut out = stdout();
    writeln!(out, "ready")?;
    for line in stdin().lock().lines() {
        let outcome = delays
            .write()
            .expect("no thread panics with it")
            .tell(&line?);
        match outcome {
            Ok(()) => writeln!(out, "ok")?,
            Err(error) => writeln!(out, "{}", error_code::line(&error))?,
        }
    }
    Ok(())
}
