//! Flags of the binary. Users meet `spoolscope record`; this is its plumbing.

use std::ffi::OsString;
use std::path::PathBuf;

use clap::{Args, Parser, Subcommand, ValueEnum};

use crate::rules::Rule;

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
    /// Print the cause of each stack of stdin, one a line, by the rules in a file.
    Classify {
        /// As for --cause-rules.
        rules: PathBuf,
    },
    /// Print the disks below spools, one major:minor a line.
    Disks {
        /// Mount point of a spool, or a directory below one; may be repeated.
        #[arg(long = "spool", required = true)]
        spools: Vec<PathBuf>,
    },
}

/// The part of the tree that the snapshot shows.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum Snapshot {
    /// All of it, walked before the recording begins.
    Full,
    /// The directories that calls use, listed when they do.
    Touched,
    /// Nothing.
    None,
}

impl Snapshot {
    /// Return the name for meta.json.
    pub fn name(self) -> &'static str {
        match self {
            Snapshot::Full => "full",
            Snapshot::Touched => "touched",
            Snapshot::None => "none",
        }
    }
}

/// The calls for which the calling user code is noted.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum UserCode {
    /// Those that sync.
    Sync,
    /// All.
    All,
}

/// What to record and where to.
#[derive(Debug, Args)]
pub struct Options {
    /// Mount point of a spool, or a directory below one; may be repeated.
    #[arg(long = "spool", required = true)]
    pub spools: Vec<PathBuf>,
    /// Capture file to create.
    #[arg(long)]
    pub output: PathBuf,
    /// File for one JSON line per event (ready, done, error); default: stdout.
    #[arg(long)]
    pub answers: Option<PathBuf>,
    /// The process that waits for us; should it end first, we end in order.
    #[arg(long)]
    pub parent: Option<libc::pid_t>,
    /// Stop so many seconds after calls began to be recorded.
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
    /// Walk at most so many names of the tree a second.
    #[arg(long, value_parser = clap::value_parser!(u32).range(1..))]
    pub snapshot_rate: Option<u32>,
    /// Which part of the tree to look at.
    #[arg(long, value_enum, default_value = "full")]
    pub snapshot: Snapshot,
    /// Leave out stacks, then most reads and writes, while recording takes more than this
    /// share of all CPUs, in percent.
    #[arg(long)]
    pub max_overhead: Option<f64>,
    /// Look so many times a second, on every CPU, at what traced calls are running; 0: never.
    #[arg(long, default_value_t = 199, value_parser = clap::value_parser!(u32).range(0..=10_000))]
    pub sample_hz: u32,
    /// Note which code made calls that sync, or all.
    #[arg(long, value_enum)]
    pub user_stacks: Option<UserCode>,
    /// Ring buffers between kernel and recorder, MiB: shared out to the CPUs.
    #[arg(long, default_value_t = 128)]
    pub ring_mib: u32,
    /// Begin the next segment when this one has so many bytes.
    #[arg(long)]
    pub rotate_bytes: Option<u64>,
    /// Begin the next segment after so many seconds.
    #[arg(long)]
    pub rotate_seconds: Option<f64>,
    /// Flight recorder: keep only segments of the last so many seconds.
    #[arg(long)]
    pub last_seconds: Option<f64>,
    /// Flight recorder: keep only segments of so many bytes.
    #[arg(long)]
    pub last_bytes: Option<u64>,
    /// Freeze the flight recorder when this rule is broken, a JSON object; may be repeated.
    #[arg(long)]
    pub freeze_on: Vec<Rule>,
    /// File with the rules that name causes, for rules on these.
    #[arg(long)]
    pub cause_rules: Option<PathBuf>,
    /// Sum calls over periods of so many seconds, of the wall clock; without a flight recorder no
    /// records of calls are made.
    #[arg(long)]
    pub rollup: Option<f64>,
    /// Run this and record only it and its children.
    #[arg(last = true)]
    pub command: Vec<OsString>,
}

impl Options {
    /// Return true if the capture is divided into segments that are all kept.
    pub fn rotates(&self) -> bool {
        self.rotate_bytes.is_some() || self.rotate_seconds.is_some()
    }

    /// Return true if calls are summed only.
    pub fn only_sums(&self) -> bool {
        self.rollup.is_some() && !self.keeps_last()
    }

    /// Return true for a flight recorder.
    pub fn keeps_last(&self) -> bool {
        self.last_bytes.is_some() || self.last_seconds.is_some()
    }

    /// Return the limits in bytes and seconds of a segment, or of the flight recorder's window.
    pub fn limits(&self) -> (Option<u64>, Option<f64>) {
        if self.keeps_last() {
            (self.last_bytes, self.last_seconds)
        } else {
            (self.rotate_bytes, self.rotate_seconds)
        }
    }
}
