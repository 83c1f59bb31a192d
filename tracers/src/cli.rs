//! Flags of the binary. Users meet `spoolscope record`; this is its plumbing.

use std::ffi::OsString;
use std::path::PathBuf;

use clap::{Args, Parser, Subcommand};

/// Record the system calls on mail spools.
#[derive(Debug, Parser)]
#[command(name = "spoolscope-record", version)]
pub struct Cli {
    #[command(subcommand)]
    pub verb: Verb,
}

#[derive(Debug, Subcommand)]
pub enum Verb {
    /// Record until the command ends, the time is up, or a signal arrives.
    Run(Box<Options>),
    /// Try every program on this kernel and print what loads, as JSON.
    Doctor,
}

/// What to record and where to.
#[derive(Debug, Args)]
pub struct Options {
    /// Mount point of a spool; may be repeated.
    #[arg(long = "spool", required = true)]
    pub spools: Vec<PathBuf>,
    /// Capture file to create.
    #[arg(long)]
    pub output: PathBuf,
    /// File for one JSON line per event (ready, done, error); default: stdout.
    #[arg(long)]
    pub answers: Option<PathBuf>,
    /// Stop after so many seconds.
    #[arg(long)]
    pub duration: Option<f64>,
    /// Only this process and its children; may be repeated.
    #[arg(long = "pid")]
    pub pids: Vec<u32>,
    /// Only tasks in this cgroup v2 directory and below; may be repeated.
    #[arg(long = "cgroup")]
    pub cgroups: Vec<PathBuf>,
    /// Only tasks of this systemd unit; may be repeated.
    #[arg(long = "unit")]
    pub units: Vec<String>,
    /// Only processes that run this program, and their children; may be repeated.
    #[arg(long = "exe")]
    pub exes: Vec<PathBuf>,
    /// Only tasks of this name; may be repeated.
    #[arg(long = "comm")]
    pub comms: Vec<String>,
    /// Leave out the walk of the spool tree.
    #[arg(long)]
    pub no_tree: bool,
    /// Leave out stacks, then most reads and writes, while recording takes more than this
    /// share of all CPUs, in percent.
    #[arg(long)]
    pub max_overhead: Option<f64>,
    /// Ring buffers between kernel and recorder, MiB: shared out to the CPUs.
    #[arg(long, default_value_t = 128)]
    pub ring_mib: u32,
    /// Run this and record only it and its children.
    #[arg(last = true)]
    pub command: Vec<OsString>,
}
