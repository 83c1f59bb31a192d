//! The state before the first event: tasks with their cwd, open files, mappings, file locks, the
//! tree.
//!
//! It is taken after attaching, so that nothing falls between snapshot and stream; the reader
//! reconciles the two by their times.

use std::ffi::OsStr;
use std::fs;
use std::os::fd::OwnedFd;
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};
use std::thread::JoinHandle;

use anyhow::{Context, Result, bail};
use rustc_hash::FxHashSet;
use spoolscope_traces::records::{OpenFile, TASK_CHROOTED, TASK_CUT, TASK_SEEN, Task};
use spoolscope_traces::segment::{Capture, Kind};

use crate::cgroups::{self, Hierarchies};
use crate::cli::{Options, Snapshot};
use crate::held;
use crate::host::{self, Spool, clock};
use crate::iterators;
use crate::snapshot_items::Found;
use crate::views::Foreign;
use crate::walk::Walk;

const PATH_LONG: usize = 4096;
const OPEN_LINE: usize = size_of::<OpenFile>() + PATH_LONG;

fn now() -> u64 {
    clock(libc::CLOCK_MONOTONIC) as u64
}

/// A part of the snapshot.
#[derive(Debug)]
pub enum Part {
    /// Every process and its use of the spools.
    Processes {
        open_files: OwnedFd,
        spools: Vec<Spool>,
    },
    /// Working directories and open files of processes forked meanwhile: processes are visited by
    /// number, and a new one may have a number that was already passed.
    Forked {
        open_files: OwnedFd,
        pids: FxHashSet<u32>,
        spools: Vec<Spool>,
    },
    /// The moment that the whole snapshot is brought to, then the tree.
    Tree {
        spools: Vec<Spool>,
        /// Names a second at most.
        rate: Option<u32>,
    },
}

impl Part {
    /// Return the part with every process. `open_files` is an iterator to read.
    pub fn processes(open_files: OwnedFd, spools: &[Spool]) -> Part {
        Part::Processes {
            open_files,
            spools: spools.to_vec(),
        }
    }

    /// Return the part of the tree that the options ask for.
    pub fn tree(options: &Options, spools: &[Spool]) -> Part {
        Part::Tree {
            spools: match options.snapshot {
                Snapshot::Full => spools.to_vec(),
                Snapshot::Touched | Snapshot::None => Vec::new(),
            },
            rate: options.snapshot_rate,
        }
    }
}

/// A snapshot being taken by a thread of its own.
#[derive(Debug)]
pub struct Scan {
    /// Findings so far; disconnected when the scan is done.
    pub found: Receiver<Found>,
    thread: JoinHandle<Result<bool>>,
    stop: Arc<AtomicBool>,
}

impl Scan {
    /// Begin a scan.
    pub fn begin(part: Part) -> Scan {
        let (send, found) = sync_channel(4096);
        let stop = Arc::new(AtomicBool::new(false));
        let asked = stop.clone();
        let thread = std::thread::spawn(move || {
            host::come_as_others();
            take(part, &send, &asked)
        });
        Scan {
            found,
            thread,
            stop,
        }
    }

    /// Let the scan end early: the rest is missing then.
    pub fn stop(&mut self) {
        self.stop.store(true, Ordering::Relaxed);
    }

    /// Return true if the scan is complete; all of `found` must have been received.
    pub fn end(self) -> Result<bool> {
        match self.thread.join() {
            Ok(taken) => taken.context("Failed to take the snapshot"),
            Err(_) => bail!("the snapshot thread died"),
        }
    }
}

/// Send all findings; return false if a spool was no longer mounted, or the scan was stopped early.
fn take(part: Part, to: &SyncSender<Found>, stop: &AtomicBool) -> Result<bool> {
    let goes_on = |_: &u32| !stop.load(Ordering::Relaxed);
    match part {
        Part::Processes { open_files, spools } => {
            let mut views = Foreign::new(&spools)?;
            let open = files(open_files, |_| true, &mut views, to)?;
            let cgroups = Hierarchies::mounted()?.unified;
            for pid in host::running()?.into_iter().take_while(goes_on) {
                task(pid, cgroups.as_deref(), &mut views, to)?;
                mappings(pid, &spools, &mut views, to)?;
            }
            // A lock is on a file that some process has open.
            held::locks(
                |dev, ino| is_whole(&spools, dev) || open.contains(&(dev, ino)),
                to,
            )?;
        }
        Part::Forked {
            open_files,
            pids,
            spools,
        } => {
            let mut views = Foreign::new(&spools)?;
            files(open_files, |pid| pids.contains(&pid), &mut views, to)?;
            let cgroups = Hierarchies::mounted()?.unified;
            let mut pids = pids.into_iter().take_while(goes_on);
            pids.try_for_each(|pid| task(pid, cgroups.as_deref(), &mut views, to))?;
        }
        Part::Tree { spools, rate } => {
            send_cut(to)?;
            let mut walk = Walk::new(to, rate, stop);
            for spool in &spools {
                if !walk.spool(spool)? {
                    return Ok(false);
                }
            }
        }
    }
    Ok(!stop.load(Ordering::Relaxed))
}

/// Return true if a whole filesystem is the spool.
fn is_whole(spools: &[Spool], dev: u32) -> bool {
    let mut whole = spools.iter().filter(|spool| !spool.is_part());
    whole.any(|spool| spool.dev == dev)
}

/// Send the mappings that a process has of the spools' files.
fn mappings(pid: u32, spools: &[Spool], views: &mut Foreign, to: &SyncSender<Found>) -> Result<()> {
    for (mapping, path) in held::mappings(pid, |dev| spools.iter().any(|s| s.dev == dev)) {
        let path = views.here(pid, path);
        let named = Path::new(OsStr::from_bytes(&path));
        if is_whole(spools, mapping.dev) || spools.iter().any(|s| named.starts_with(&s.mount)) {
            to.send(Found::Mapping(mapping, path))?;
        }
    }
    Ok(())
}

/// Send the open files of some processes; return their devices and inodes.
fn files(
    open_files: OwnedFd,
    wanted: impl Fn(u32) -> bool,
    views: &mut Foreign,
    to: &SyncSender<Found>,
) -> Result<FxHashSet<(u32, u64)>> {
    let mut found = FxHashSet::default();
    for line in iterators::read_all(open_files)?.chunks_exact(OPEN_LINE) {
        let mut file: OpenFile = bytemuck::pod_read_unaligned(&line[..size_of::<OpenFile>()]);
        if !wanted(file.pid) {
            continue;
        }
        let length = (file.path as usize).min(PATH_LONG);
        file.path = 0;
        found.insert((file.dev, file.ino));
        let path = line[size_of::<OpenFile>()..][..length].to_vec();
        to.send(Found::OpenFile(file, views.here(file.pid, path)))?;
    }
    Ok(found)
}

/// Send the moment that the snapshot is brought to; the facts about processes were read before it.
fn send_cut(to: &SyncSender<Found>) -> Result<()> {
    let cut = Task {
        ts_ns: now(),
        event: TASK_CUT,
        ..Task::default()
    };
    to.send(Found::Task(cut, Vec::new(), Vec::new(), Vec::new()))?;
    Ok(())
}

/// Send ids, umask, working directory, program and control group of a process. A process that has
/// ended meanwhile is left out.
fn task(
    pid: u32,
    cgroups: Option<&Path>,
    views: &mut Foreign,
    to: &SyncSender<Found>,
) -> Result<()> {
    let proc = PathBuf::from(format!("/proc/{pid}"));
    let (Ok(cwd), Ok(status), Ok(comm)) = (
        fs::read_link(proc.join("cwd")),
        fs::read(proc.join("status")),
        fs::read(proc.join("comm")),
    ) else {
        return Ok(());
    };
    let mut task = task_from_status(pid, &comm, &String::from_utf8_lossy(&status));
    task.exe_ino = fs::metadata(proc.join("exe")).map_or(0, |m| m.ino());
    if let Ok(meta) = fs::metadata(proc.join("cwd")) {
        task.cwd_dev = host::device(&meta);
        task.cwd_ino = if task.cwd_dev == 0 { 0 } else { meta.ino() };
    }
    let exe = fs::read_link(proc.join("exe")).unwrap_or_default();
    if let (Some(root), Ok(text)) = (cgroups, fs::read_to_string(proc.join("cgroup"))) {
        task.cgroup_id = cgroups::id_of(root, &text);
    }
    let root = fs::read_link(proc.join("root")).unwrap_or_default();
    let mut root = root.into_os_string().into_vec();
    if root == b"/" {
        root.clear();
    } else {
        task.flags |= TASK_CHROOTED;
    }
    let bytes = |path: PathBuf| path.into_os_string().into_vec();
    let cwd = views.directory(pid, task.cwd_dev, bytes(cwd));
    to.send(Found::Task(task, cwd, root, bytes(exe)))?;
    Ok(())
}

/// Store one finding.
pub fn store(capture: &mut Capture, item: Found) -> Result<()> {
    match item {
        Found::Task(mut task, cwd, root, exe) => {
            task.exe = capture.string(&exe);
            task.path = capture.string(&cwd);
            task.root = capture.string(&root);
            capture.push(Kind::Task, &task)
        }
        Found::OpenFile(mut file, path) => {
            file.path = capture.string(&path);
            capture.push(Kind::OpenFile, &file)
        }
        Found::HeldLock(lock) => capture.push(Kind::HeldLock, &lock),
        Found::Mapping(mut mapping, path) => {
            mapping.path = capture.string(&path);
            capture.push(Kind::Mapping, &mapping)
        }
        Found::Names(names) => names.store(capture),
    }
}

/// Return what status says of a process. Its name is that of `comm`, bytes as BPF records them;
/// status escapes some.
fn task_from_status(pid: u32, comm: &[u8], status: &str) -> Task {
    let mut task = Task {
        ts_ns: now(),
        event: TASK_SEEN,
        pid,
        tid: pid,
        ..Task::default()
    };
    let name = comm.strip_suffix(b"\n").unwrap_or(comm);
    let n = name.len().min(15);
    task.comm[..n].copy_from_slice(&name[..n]);
    for line in status.lines() {
        let Some((key, value)) = line.split_once(':') else {
            continue;
        };
        let words: Vec<&str> = value.split_whitespace().collect();
        let number = |i: usize| words.get(i).and_then(|w| w.parse().ok()).unwrap_or(0);
        match key {
            "Umask" => task.umask = u32::from_str_radix(value.trim(), 8).unwrap_or(0),
            "PPid" => task.parent_pid = number(0),
            "Uid" => task.uid = number(3), // filesystem uid
            "Gid" => task.gid = number(3),
            _ => {}
        }
    }
    task
}
