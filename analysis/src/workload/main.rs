//! The load of a published comparison of filesystems, one step of it in each run.
//!
//! Its calls are determined by the seed and the scale. The caller makes filesystems, empties caches
//! between steps, and compares.

mod boxes;
mod clients;
mod cyrus_archive;
mod file_server;
mod fsbench;
mod mail;
mod maildir_io;
mod processes;
mod program;
mod qmail;
mod random;
mod report;
mod shared;
mod tar;
mod usage;
mod varmail;

use anyhow::{Context, Result};
use boxes::Format;
use clap::{Args, Parser, Subcommand, ValueEnum};
use report::Report;
use serde::Serialize;
use spoolscope_traces::error_code;
use std::fs;
use std::io::{BufWriter, stdout};
use std::path::{Path, PathBuf};
use std::process::ExitCode;

#[derive(Debug, Parser)]
#[command(name = "spoolscope-workload", version, about)]
struct Options {
    #[command(subcommand)]
    workload: Workload,
}

#[derive(Debug, Subcommand)]
enum Workload {
    /// Maildirs for qmail and IMAP (C2004).
    MaildirIo {
        step: maildir_io::Step,
        #[command(flatten)]
        place: Place,
    },
    /// An archive of a million mails (C2005).
    CyrusArchive {
        step: cyrus_archive::Step,
        #[command(flatten)]
        place: Place,
    },
    /// The tasks of a file server (C2006).
    FileServer {
        step: file_server::Step,
        /// Directory on another disk.
        #[arg(long)]
        source: PathBuf,
        #[command(flatten)]
        place: Place,
    },
    /// Deliverers beside a reader (C2008).
    Fsbench {
        step: fsbench::Step,
        /// How many deliver in a stage.
        #[arg(long, default_value_t = 1)]
        deliverers: u64,
        #[command(flatten)]
        place: Place,
    },
    /// Deliveries by link and unlink, and POP3 sessions.
    Qmail {
        step: qmail::Step,
        #[command(flatten)]
        place: Place,
    },
    /// filebench's load of a mail server.
    Varmail {
        step: varmail::Step,
        #[command(flatten)]
        place: Place,
    },
    /// Clients of a mail server, as postal and rabid are (C2007).
    Clients(clients::Asked),
    /// Write the tar stream that a workload unpacks to standard output.
    Stream {
        of: Streamed,
        #[command(flatten)]
        size: Size,
    },
    /// Say what a workload comes to hold at the most, as JSON.
    Needs {
        of: Named,
        #[arg(long)]
        scale: f64,
    },
}

/// All workloads.
#[derive(Clone, Copy, Debug, ValueEnum)]
enum Named {
    CyrusArchive,
    FileServer,
    Fsbench,
    MaildirIo,
    Qmail,
    Varmail,
}

/// The most that a workload holds at any time.
#[derive(Clone, Copy, Debug, Default, Serialize)]
pub struct Needs {
    /// Bytes of file content.
    bytes: u64,
    /// Number of files and directories.
    names: u64,
    /// Bytes of its source data.
    source_bytes: u64,
}

/// Workloads that unpack something.
#[derive(Clone, Copy, Debug, ValueEnum)]
enum Streamed {
    CyrusArchive,
    MaildirIo,
}

/// Amount of work, and seed of its random numbers.
#[derive(Clone, Copy, Debug, Args)]
pub struct Size {
    /// Of the original size.
    #[arg(long)]
    scale: f64,
    /// Of all that is random.
    #[arg(long, default_value_t = 0)]
    seed: u64,
}

/// Where a step is done.
#[derive(Debug, Args)]
pub struct Place {
    /// Directory that the load has for itself.
    #[arg(long)]
    root: PathBuf,
    #[command(flatten)]
    size: Size,
    #[arg(long, value_enum, default_value = "maildir")]
    format: Format,
    /// File for what became of it.
    #[arg(long)]
    report: PathBuf,
}

/// Return a number of things at a scale, at least one.
pub fn scaled(n: u64, scale: f64) -> u64 {
    ((n as f64 * scale).round() as u64).max(1)
}

fn main() -> ExitCode {
    match run(Options::parse().workload) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => ExitCode::from(error_code::report("spoolscope-workload", &error)),
    }
}

fn run(workload: Workload) -> Result<()> {
    usage::end_with_parent();
    match workload {
        Workload::MaildirIo { step, place } => finish(maildir_io::run(step, &place)?, &place),
        Workload::CyrusArchive { step, place } => finish(cyrus_archive::run(step, &place)?, &place),
        Workload::FileServer {
            step,
            source,
            place,
        } => finish(file_server::run(step, &source, &place)?, &place),
        Workload::Fsbench {
            step,
            deliverers,
            place,
        } => finish(fsbench::run(step, deliverers, &place)?, &place),
        Workload::Qmail { step, place } => finish(qmail::run(step, &place)?, &place),
        Workload::Varmail { step, place } => finish(varmail::run(step, &place)?, &place),
        Workload::Clients(asked) => write(&clients::run(&asked)?, &asked.report),
        Workload::Stream { of, size } => {
            let out = BufWriter::with_capacity(1 << 20, stdout().lock());
            match of {
                Streamed::CyrusArchive => cyrus_archive::stream(size, out),
                Streamed::MaildirIo => maildir_io::stream(size, out),
            }
        }
        Workload::Needs { of, scale } => {
            let needs = match of {
                Named::CyrusArchive => cyrus_archive::needs(scale),
                Named::FileServer => file_server::needs(scale),
                Named::Fsbench => fsbench::needs(scale),
                Named::MaildirIo => maildir_io::needs(scale),
                Named::Qmail => qmail::needs(scale),
                Named::Varmail => varmail::needs(scale),
            };
            println!("{}", serde_json::to_string(&needs)?);
            Ok(())
        }
    }
}

/// Wait until all is on the disk, then write the report.
fn finish(mut report: Report, place: &Place) -> Result<()> {
    report.sync(&place.root)?;
    write(&report, &place.report)
}

fn write(report: &Report, to: &Path) -> Result<()> {
    let text = serde_json::to_string(report)?;
    fs::write(to, text).with_context(|| format!("write {}", to.display()))
}
