//! Programs of the system in a load: one, or several in a pipe.

use crate::Size;
use crate::report::Report;
use crate::usage::{end_with_parent, now_ns, wait_for};
use anyhow::{Context, Result, bail};
use std::ffi::OsStr;
use std::io::Read;
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::{ChildStdout, Command, Stdio};

/// Return the command of a program; the program ends with this one.
pub fn program<S: AsRef<OsStr>>(name: &str, words: impl IntoIterator<Item = S>) -> Command {
    let mut command = Command::new(name);
    command.args(words).env("LC_ALL", "C").stdin(Stdio::null());
    // SAFETY: only a system call is made between fork and exec.
    unsafe {
        command.pre_exec(|| {
            end_with_parent();
            Ok(())
        })
    };
    command
}

/// Return the command of this program as the source of a tar stream.
pub fn source(workload: &str, size: Size) -> Result<Command> {
    let own = std::env::current_exe().context("find this program")?;
    let (scale, seed) = (size.scale.to_string(), size.seed.to_string());
    let words = ["stream", workload, "--scale", &scale, "--seed", &seed];
    Ok(program(&own.to_string_lossy(), words))
}

/// Run programs, each of which reads the output of the one before.
///
/// Returns a report of all of them, and the output of the last one.
pub fn run(commands: Vec<Command>) -> Result<(Report, String)> {
    let mut report = Report::default();
    let begin = now_ns();
    let mut children = Vec::new();
    let mut before: Option<ChildStdout> = None;
    for mut command in commands {
        let name = name_of(&command);
        if let Some(input) = before.take() {
            command.stdin(input);
        }
        let mut child = command
            .stdout(Stdio::piped())
            .spawn()
            .with_context(|| format!("start {name}"))?;
        before = child.stdout.take();
        children.push((name, child));
    }
    let mut said = String::new();
    if let Some(mut output) = before {
        output.read_to_string(&mut said)?;
    }
    for (name, child) in children {
        let (status, usage) = wait_for(libc::pid_t::try_from(child.id())?)?;
        if status != 0 {
            bail!("{name} failed (status {status:#x})");
        }
        report.processes.entry(name).or_default().add(&usage);
    }
    report.wall_ns = now_ns() - begin;
    Ok((report, said))
}

/// Run a program whose output is a file.
pub fn run_to_file(mut command: Command) -> Result<Report> {
    let (name, begin) = (name_of(&command), now_ns());
    let child = command.spawn().with_context(|| format!("start {name}"))?;
    let (status, usage) = wait_for(libc::pid_t::try_from(child.id())?)?;
    if status != 0 {
        bail!("{name} failed (status {status:#x})");
    }
    let mut report = Report {
        wall_ns: now_ns() - begin,
        ..Report::default()
    };
    report.processes.insert(name, usage);
    Ok(report)
}

fn name_of(command: &Command) -> String {
    let path = Path::new(command.get_program());
    let name = path.file_name().unwrap_or_default();
    name.to_string_lossy().into_owned()
}
