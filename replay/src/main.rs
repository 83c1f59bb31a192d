//! Re-executes a recorded mail-spool workload: plan -> order -> act -> verdict.

mod cli;
mod commands;
mod engine;
mod fixture;
mod model;
mod pattern;
mod plan;
mod sandbox;
mod semantics;
#[cfg(test)]
mod testing;
mod touches;
mod verify;

use clap::Parser;
use std::process::ExitCode;

fn main() -> ExitCode {
    match commands::run(cli::Cli::parse()) {
        Ok(code) => ExitCode::from(code),
        Err(error) => {
            eprintln!("spoolscope-replay: error: {error:#}");
            ExitCode::FAILURE
        }
    }
}
