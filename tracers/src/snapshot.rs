//! What was there before the first event: tasks with their cwd, open files, the tree.
//!
//! Taken after attaching, so that nothing falls between snapshot and stream; the
//! reader reconciles the two by their times.

use std::collections::BTreeSet;
use std::ffi::OsStr;
use std::fs;
use std::os::fd::OwnedFd;
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::os::unix::fs::{FileTypeExt, MetadataExt};
use std::path::{Path, PathBuf};
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};
use std::thread::JoinHandle;

use anyhow::{Context, Result, bail};
use spoolscope_traces::records::{OpenFile, TASK_CHROOTED, TASK_SEEN, Task, Tree};
use spoolscope_traces::segment::{Capture, Kind};

use crate::cgroups::{self, Hierarchies};
use crate::host::{self, Spool, clock, mounts};
use crate::iterators;

/// One finding, with the strings that the capture interns.
#[derive(Debug)]
pub enum Found {
    /// With its working directory, root (empty: the host's) and program.
    Task(Task, Vec<u8>, Vec<u8>, Vec<u8>),
    OpenFile(OpenFile, Vec<u8>),
    Name(Tree, Vec<u8>, Vec<u8>),
}

const PATH_LONG: usize = 4096;
const OPEN_LINE: usize = size_of::<OpenFile>() + PATH_LONG;

fn now() -> u64 {
    clock(libc::CLOCK_MONOTONIC) as u64
}

/// A snapshot being taken by a thread of its own.
#[derive(Debug)]
pub struct Scan {
    /// What it found so far; disconnected when it is done.
    pub found: Receiver<Found>,
    thread: JoinHandle<Result<()>>,
}

impl Scan {
    /// Begins one. `open_files`: an iterator to read; `tree`: walk the spools, too.
    pub fn begin(open_files: OwnedFd, spools: &[Spool], tree: bool) -> Scan {
        let (send, found) = sync_channel(4096);
        let spools = spools.to_vec();
        let thread = std::thread::spawn(move || {
            host::come_as_others();
            take(open_files, &spools, tree, &send)
        });
        Scan { found, thread }
    }

    /// Whether all of it could be read; all of `found` must have been received.
    pub fn end(self) -> Result<()> {
        match self.thread.join() {
            Ok(taken) => taken.context("Failed to take the snapshot"),
            Err(_) => bail!("the snapshot thread died"),
        }
    }
}

/// Sends everything; an error means that part of it is missing.
fn take(open_files: OwnedFd, spools: &[Spool], tree: bool, to: &SyncSender<Found>) -> Result<()> {
    for line in iterators::read_all(open_files)?.chunks_exact(OPEN_LINE) {
        let mut file: OpenFile = bytemuck::pod_read_unaligned(&line[..size_of::<OpenFile>()]);
        let length = (file.path as usize).min(PATH_LONG);
        file.path = 0;
        let path = line[size_of::<OpenFile>()..][..length].to_vec();
        to.send(Found::OpenFile(file, path))?;
    }
    tasks(to)?;
    if tree {
        for spool in spools {
            walk(spool, to)?;
        }
    }
    Ok(())
}

/// Every process that runs now: ids, umask, working directory, program and control group.
fn tasks(to: &SyncSender<Found>) -> Result<()> {
    let cgroups = Hierarchies::mounted()?.unified;
    for entry in fs::read_dir("/proc")
        .context("Failed to list /proc")?
        .flatten()
    {
        let Some(pid) = entry
            .file_name()
            .to_str()
            .and_then(|name| name.parse().ok())
        else {
            continue;
        };
        // A process that ends meanwhile is simply not there any more.
        let Ok(cwd) = fs::read_link(entry.path().join("cwd")) else {
            continue;
        };
        let Ok(status) = fs::read_to_string(entry.path().join("status")) else {
            continue;
        };
        let mut task = task_from_status(pid, &status);
        task.exe_ino = fs::metadata(entry.path().join("exe")).map_or(0, |m| m.ino());
        let exe = fs::read_link(entry.path().join("exe")).unwrap_or_default();
        if let (Some(root), Ok(text)) = (&cgroups, fs::read_to_string(entry.path().join("cgroup")))
        {
            task.cgroup_id = cgroups::id_of(root, &text);
        }
        let root = fs::read_link(entry.path().join("root")).unwrap_or_default();
        let mut root = root.into_os_string().into_vec();
        if root == b"/" {
            root.clear();
        } else {
            task.flags |= TASK_CHROOTED;
        }
        let bytes = |path: PathBuf| path.into_os_string().into_vec();
        to.send(Found::Task(task, bytes(cwd), root, bytes(exe)))?;
    }
    Ok(())
}

/// Stores one finding.
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
        Found::Name(mut name, path, target) => {
            name.path = capture.string(&path);
            name.target = capture.string(&target);
            capture.push(Kind::Tree, &name)
        }
    }
}

fn task_from_status(pid: u32, status: &str) -> Task {
    let mut task = Task {
        ts_ns: now(),
        event: TASK_SEEN,
        pid,
        tid: pid,
        ..Task::default()
    };
    for line in status.lines() {
        let Some((key, value)) = line.split_once(':') else {
            continue;
        };
        let words: Vec<&str> = value.split_whitespace().collect();
        let number = |i: usize| words.get(i).and_then(|w| w.parse().ok()).unwrap_or(0);
        match key {
            "Name" => {
                let name = value.trim().as_bytes();
                let n = name.len().min(15);
                task.comm[..n].copy_from_slice(&name[..n]);
            }
            "Umask" => task.umask = u32::from_str_radix(value.trim(), 8).unwrap_or(0),
            "PPid" => task.parent_pid = number(0),
            "Uid" => task.uid = number(3), // filesystem uid
            "Gid" => task.gid = number(3),
            _ => {}
        }
    }
    task
}

/// Every name of the spool, parents before children, on this filesystem only.
fn walk(spool: &Spool, to: &SyncSender<Found>) -> Result<()> {
    let others: BTreeSet<PathBuf> = mounts()?
        .into_iter()
        .filter(|m| m.mount.starts_with(&spool.mount) && m.mount != spool.mount)
        .map(|m| m.mount)
        .collect();
    let mut pending: Vec<PathBuf> = vec![spool.mount.clone()];
    send_name(spool, &spool.mount, to)?;
    while let Some(dir) = pending.pop() {
        // A directory removed meanwhile: the events tell.
        let Ok(entries) = fs::read_dir(&dir) else {
            continue;
        };
        for entry in entries.flatten() {
            let path = entry.path();
            if others.contains(&path) {
                continue; // another filesystem is mounted here
            }
            if send_name(spool, &path, to)? {
                pending.push(path);
            }
        }
    }
    Ok(())
}

/// Sends one name; true if it is a directory to descend into.
fn send_name(spool: &Spool, path: &Path, to: &SyncSender<Found>) -> Result<bool> {
    let Ok(meta) = fs::symlink_metadata(path) else {
        return Ok(false);
    };
    let target = match meta.file_type() {
        t if t.is_symlink() => fs::read_link(path).unwrap_or_default(),
        t if t.is_block_device() || t.is_char_device() => return Ok(false),
        _ => PathBuf::new(),
    };
    let name = Tree {
        ts_ns: now(),
        ino: meta.ino(),
        size: meta.size() as i64,
        mtime_ns: meta.mtime() * 1_000_000_000 + meta.mtime_nsec(),
        mode: meta.mode(),
        uid: meta.uid(),
        gid: meta.gid(),
        nlink: meta.nlink() as u32,
        dev: spool.dev,
        ..Tree::default()
    };
    let bytes = |p: &OsStr| p.as_bytes().to_vec();
    to.send(Found::Name(
        name,
        bytes(path.as_os_str()),
        bytes(target.as_os_str()),
    ))?;
    Ok(meta.is_dir())
}
