//! Re-executes a recorded mail-spool workload: plan -> order -> act -> verdict.

mod age;
mod arena;
mod assemble;
mod cli;
mod columns;
mod commands;
mod cut;
mod engine;
mod explain;
mod extents;
mod fixture;
pub mod fuzzing;
mod large;
mod model;
mod only;
mod pattern;
mod plan;
mod planned;
mod refusal;
mod room;
mod sandbox;
mod scale;
mod semantics;
#[cfg(test)]
mod testing;
mod touches;
mod verify;
mod xattrs;

pub use large::Allocator;

use clap::Parser;
use spoolscope_traces::text::complain;
use std::process::ExitCode;

/// Runs the command line.
pub fn main() -> ExitCode {
    match commands::run(cli::Cli::parse()) {
        Ok(code) => ExitCode::from(code),
        Err(error) => {
            complain(&format!("spoolscope-replay: error: {error:#}"));
            ExitCode::from(refusal::status(&error))
        }
    }
}
