//! Command line of `spoolscope-replay`.

use clap::{Parser, Subcommand, ValueEnum};
use std::ops::RangeInclusive;
use std::path::PathBuf;

use crate::age::Age;
use crate::derived::Asked;
use crate::pattern::Content;

use crate::engine::pace::Pace;

/// Re-executes a replay plan below a target directory, and nowhere else.
#[derive(Debug, Parser)]
#[command(name = "spoolscope-replay", version)]
pub struct Cli {
    #[command(flatten)]
    pub content: Content,
    #[command(subcommand)]
    pub verb: Verb,
}

#[derive(Debug, Subcommand)]
pub enum Verb {
    /// Print the layout of every record as JSON.
    Layout,
    /// Check a plan and walk over it once: keep its order beside it, where the other verbs find it;
    /// print what the plan holds as JSON.
    Order { plan: PathBuf },
    /// Print which operations wait for which, as JSON: edges by kind, and the reasons of the edges of
    /// chosen operations.
    Explain {
        plan: PathBuf,
        /// What a call waits for, besides its own thread.
        #[arg(long, value_enum, default_value = "resource")]
        order: Order,
        /// An operation of the plan; may be repeated.
        #[arg(long = "op")]
        ops: Vec<u32>,
    },
    /// Replace a plan by a part of it, or by one with more users; print what was done as JSON.
    Derive {
        plan: PathBuf,
        #[command(flatten)]
        asked: Asked,
    },
    /// Print the divergences of a run as JSON, each with the earlier ones that it may follow from.
    Follow {
        plan: PathBuf,
        /// The outcomes of the run.
        #[arg(long)]
        outcomes: PathBuf,
    },
    /// Build the tree that existed at start in an empty target.
    Fixture {
        plan: PathBuf,
        #[arg(long)]
        target: PathBuf,
        /// SEED[:FACTOR]: before that, leave the free space of the target in pieces.
        #[arg(long)]
        age: Option<Age>,
    },
    /// Execute a plan.
    Run(Run),
    /// Compare the target with the state the trace must have left behind.
    Verify {
        plan: PathBuf,
        #[arg(long)]
        target: PathBuf,
    },
}

/// Arguments of `run`.
#[derive(Debug, clap::Args)]
pub struct Run {
    pub plan: PathBuf,
    /// Directory that becomes the spool; must be empty unless --prepared is given.
    #[arg(long)]
    pub target: PathBuf,
    /// The fixture is already there.
    #[arg(long)]
    pub prepared: bool,
    /// original or scaled=N (open loop: recorded times), think (closed: recorded pauses), afap.
    #[arg(long, default_value = "original", value_parser = pace)]
    pub pace: Pace,
    /// File for the results, one record per operation.
    #[arg(long)]
    pub outcomes: Option<PathBuf>,
    /// What a call waits for, besides its own thread.
    #[arg(long, value_enum, default_value = "resource")]
    pub order: Order,
    /// Run tasks with real-time priority while a quarter of the CPUs' time or more is free.
    #[arg(long)]
    pub realtime: bool,
    /// Keep one JSON line with the progress in this file.
    #[arg(long)]
    pub progress: Option<PathBuf>,
    /// Write the summary to this file instead of stdout.
    #[arg(long)]
    pub summary: Option<PathBuf>,
    /// Make no system calls: measures the engine alone.
    #[arg(long)]
    pub noop: bool,
    /// Give up an order that cannot be fulfilled after this many seconds without progress.
    #[arg(long, default_value_t = 10.0)]
    pub stall: f64,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Order {
    /// The calls that explain its result, and every call that had ended when it began.
    Recorded,
    /// The calls on the same names, files and locks that explain its result.
    Resource,
    /// Nothing but the fork of its thread.
    None,
}

/// Allowed speeds: beyond these the times of a long recording overflow, or are all the same.
/// `pace.py` has the same limits: `layout` prints them for a test.
pub const PACES: RangeInclusive<f64> = 0.001..=1e6;

fn pace(text: &str) -> Result<Pace, String> {
    match text.split_once('=') {
        None if text == "original" => Ok(Pace::Scaled(1.0)),
        None if text == "think" => Ok(Pace::Think),
        None if text == "afap" => Ok(Pace::AsFastAsPossible),
        Some(("scaled", factor)) => match factor.parse::<f64>() {
            Ok(factor) if PACES.contains(&factor) => Ok(Pace::Scaled(factor)),
            _ => Err(format!(
                "'{factor}' is no number from {} to {}",
                PACES.start(),
                PACES.end()
            )),
        },
        _ => Err("must be original, scaled=N, think or afap".into()),
    }
}
