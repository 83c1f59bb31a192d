//! Re-executes a recorded mail-spool workload: plan -> order -> act -> verdict.

mod age;
mod assemble;
mod cli;
mod columns;
mod commands;
mod cut;
mod derived;
mod engine;
mod explain;
mod fixture;
mod followed;
pub mod fuzzing;
mod grouped;
mod memory;
mod model;
mod only;
mod pattern;
mod pieces;
mod plan;
mod planned;
mod room;
mod sandbox;
mod scale;
mod semantics;
mod skip;
mod sorted_ops;
mod target_files;
#[cfg(test)]
mod testing;
mod touches;
mod verify;
mod xattrs;

pub use memory::Allocator;

use clap::Parser;
use spoolscope_traces::error_code;
use std::process::ExitCode;

/// Runs the command line.
pub fn main() -> ExitCode {
    match commands::run(cli::Cli::parse()) {
        Ok(code) => ExitCode::from(code),
        Err(error) => ExitCode::from(error_code::report("spoolscope-replay", &error)),
    }
}
