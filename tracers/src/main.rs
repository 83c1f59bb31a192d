//! `spoolscope-record`: captures the system calls on mail spools with eBPF.
//!
//! It needs CAP_BPF and CAP_PERFMON; work that needs no capability is done in Python.

mod aliases;
mod answer;
mod attributes;
mod below;
mod budget;
mod causes;
mod cgroups;
mod cli;
mod command;
mod counters;
mod coverage;
mod directory;
mod drain;
mod held;
mod holds;
mod host;
mod io_limits;
mod iterators;
mod kthreads;
mod lister;
mod mounted;
mod mounts;
mod privileges;
mod probes;
mod pump;
mod refusal;
mod rings;
mod rollup;
mod rotation;
mod rows;
mod rules;
mod sampling;
mod segments;
mod session;
mod settings;
mod signals;
mod snapshot;
mod snapshot_items;
mod statistics;
mod symbols;
mod targets;
mod threads;
mod tops;
mod touched;
mod trigger;
mod under_way;
mod unjudged;
mod user_stacks;
mod views;
mod walk;
mod ways;
mod workers;

// Generated code: the workspace's lints do not apply to it.
#[allow(missing_docs, missing_debug_implementations)]
#[allow(
    clippy::all,
    clippy::unwrap_used,
    clippy::too_many_lines,
    clippy::undocumented_unsafe_blocks
)]
mod skel {
    include!(concat!(env!("OUT_DIR"), "/recorder.skel.rs"));
}

use clap::Parser;
use spoolscope_traces::error_code;

fn main() -> std::process::ExitCode {
    let result = match cli::Cli::parse().verb {
        cli::Verb::Run(options) => answer::reported(&options, session::run),
        cli::Verb::Doctor => coverage::doctor(),
        cli::Verb::Classify { rules } => causes::classify(&rules),
        cli::Verb::Disks { spools } => host::print_disks(&spools),
    };
    match result {
        Ok(()) => std::process::ExitCode::SUCCESS,
        Err(error) => std::process::ExitCode::from(error_code::report("spoolscope-record", &error)),
    }
}
