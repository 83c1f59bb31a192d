//! Processes of a load: forked, started together, timed by themselves, waited for.

use crate::report::{Laps, Report};
use crate::usage::{end_with_parent, now_ns, wait_for};
use anyhow::{Context, Result, anyhow, bail};
use spoolscope_traces::error_code::{self, Failure};
use std::collections::BTreeMap;
use std::fs::File;
use std::io::{self, Read, Write};
use std::os::fd::{FromRawFd, OwnedFd};

/// A process's own record of its work.
#[derive(Debug, Default)]
pub struct Done {
    laps: Vec<(Kind, u64)>,
    counts: Vec<(Kind, u64)>,
}

/// Kind of a lap or count: its index among the names of the load.
pub type Kind = u8;

impl Done {
    /// Do something, and note its duration.
    pub fn lap<T>(&mut self, kind: Kind, act: impl FnOnce() -> Result<T>) -> Result<T> {
        let begin = now_ns();
        let made = act()?;
        self.add_lap(kind, now_ns() - begin);
        Ok(made)
    }

    /// Note a duration.
    pub fn add_lap(&mut self, kind: Kind, ns: u64) {
        self.laps.push((kind, ns));
    }

    /// Note a count.
    pub fn count(&mut self, kind: Kind, n: u64) {
        self.counts.push((kind, n));
    }
}

/// The work of a process, which fills its record.
pub type Work<'a> = Box<dyn FnOnce(&mut Done) -> Result<()> + 'a>;

/// A process of a load.
#[allow(missing_debug_implementations)]
pub struct Worker<'a> {
    /// Its name, up to 15 characters.
    pub name: &'static str,
    /// Its work.
    pub work: Work<'a>,
}

impl<'a> Worker<'a> {
    /// Make a process with a name and its work.
    pub fn new(name: &'static str, work: impl FnOnce(&mut Done) -> Result<()> + 'a) -> Self {
        Self {
            name,
            work: Box::new(work),
        }
    }
}

struct Child {
    name: &'static str,
    pid: libc::pid_t,
    output: File,
}

/// Run processes in parallel, and put their records into a report.
///
/// `kinds` has the names of laps and counts.
pub fn run(workers: Vec<Worker>, kinds: &[&str]) -> Result<Report> {
    let (gate, opener) = pipe()?;
    let mut children = Vec::with_capacity(workers.len());
    for worker in workers {
        let (output, tell) = pipe()?;
        io::stdout().flush()?;
        // SAFETY: this process has one thread.
        match unsafe { libc::fork() } {
            -1 => return Err(io::Error::last_os_error()).context("fork"),
            0 => {
                drop((output, opener));
                be(worker, gate, tell);
            }
            pid => children.push(Child {
                name: worker.name,
                pid,
                output,
            }),
        }
    }
    drop((gate, opener));
    gathered(children, kinds)
}

/// Run as a process of the load; does not return.
fn be(worker: Worker, mut gate: File, mut tell: File) -> ! {
    end_with_parent();
    let name = std::ffi::CString::new(worker.name).unwrap_or_default();
    // SAFETY: the name ends with a zero.
    unsafe { libc::prctl(libc::PR_SET_NAME, name.as_ptr()) };
    let done = work(worker, &mut gate, &mut tell);
    leave(done, tell)
}

/// End this process; its parent prints its failure.
fn leave(done: Result<()>, mut tell: File) -> ! {
    if let Err(error) = &done {
        // A parent that reads no more has ended.
        let _ = tell.write_all(error_code::line(error).as_bytes());
    }
    // SAFETY: ends this process without the clean-up that belongs to its parent.
    unsafe { libc::_exit(i32::from(done.is_err())) }
}

/// Return the failure of a process, from what it told and its status.
fn failure(name: &str, said: &[u8], status: i32) -> anyhow::Error {
    let told = std::str::from_utf8(said).ok().and_then(Failure::of_line);
    let cause = told.map_or_else(|| anyhow!("status {status:#x}"), anyhow::Error::new);
    cause.context(format!("a process {name} failed"))
}

fn work(worker: Worker, gate: &mut File, tell: &mut File) -> Result<()> {
    gate.read_exact(&mut [0]).ok(); // until all processes exist
    let mut done = Done::default();
    let begin = now_ns();
    (worker.work)(&mut done)?;
    let end = now_ns();
    let mut said = vec![begin, end, done.counts.len() as u64];
    for (kind, n) in done.counts.into_iter().chain(done.laps) {
        said.extend([u64::from(kind), n]);
    }
    let bytes: Vec<u8> = said.iter().flat_map(|word| word.to_le_bytes()).collect();
    tell.write_all(&bytes).context("tell what was done")
}

fn gathered(children: Vec<Child>, kinds: &[&str]) -> Result<Report> {
    let mut report = Report::default();
    let (mut begin, mut end) = (u64::MAX, 0);
    let mut laps: BTreeMap<Kind, Vec<u64>> = BTreeMap::new();
    let mut failed = None;
    for mut child in children {
        let mut said = Vec::new();
        child.output.read_to_end(&mut said)?;
        let (status, usage) = wait_for(child.pid)?;
        if status != 0 {
            failed = Some(failure(child.name, &said, status));
            continue;
        }
        report
            .processes
            .entry(child.name.to_owned())
            .or_default()
            .add(&usage);
        let words: Vec<u64> = said
            .chunks_exact(8)
            .map(|word| u64::from_le_bytes(word.try_into().unwrap_or_default()))
            .collect();
        let [first, last, counted, ref pairs @ ..] = words[..] else {
            bail!("{} printed nothing", child.name);
        };
        (begin, end) = (begin.min(first), end.max(last));
        for (place, pair) in pairs.chunks_exact(2).enumerate() {
            let kind = pair[0] as Kind;
            if (place as u64) < counted {
                report.count(kinds[usize::from(kind)], pair[1]);
            } else {
                laps.entry(kind).or_default().push(pair[1]);
            }
        }
    }
    if let Some(error) = failed {
        return Err(error);
    }
    report.wall_ns = end.saturating_sub(begin);
    for (kind, times) in laps {
        let name = kinds[usize::from(kind)].to_owned();
        report.laps.insert(name, Laps::of(times));
    }
    Ok(report)
}

fn pipe() -> Result<(File, File)> {
    let mut ends = [0; 2];
    // SAFETY: the array has room for both.
    if unsafe { libc::pipe2(ends.as_mut_ptr(), libc::O_CLOEXEC) } != 0 {
        return Err(io::Error::last_os_error()).context("pipe");
    }
    // SAFETY: both are open, and owned by nothing else.
    let [read, write] = ends.map(|end| unsafe { OwnedFd::from_raw_fd(end) });
    Ok((read.into(), write.into()))
}

/// Do something in a forked process, as a program that forks for it.
pub fn forked(act: impl FnOnce() -> Result<()>) -> Result<()> {
    let (mut output, tell) = pipe()?;
    // SAFETY: this process has one thread.
    match unsafe { libc::fork() } {
        -1 => Err(io::Error::last_os_error()).context("fork"),
        0 => {
            end_with_parent();
            leave(act(), tell)
        }
        pid => {
            drop(tell);
            let mut said = Vec::new();
            output.read_to_end(&mut said)?;
            match wait_for(pid)? {
                (0, _) => Ok(()),
                (status, _) => Err(failure("that was forked", &said, status)),
            }
        }
    }
}
