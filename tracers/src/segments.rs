//! The capture as a series of segments, each readable on its own.
//!
//! A border is a moment: records of what ended before it go to the old segment, the rest to the new
//! one. Rings are read one after the other, so both segments stay open until all rings were read
//! past it.

use std::collections::BTreeMap;
use std::os::fd::{AsFd, AsRawFd, OwnedFd};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use anyhow::{Context, Result};
use rustc_hash::FxHashSet;
use spoolscope_traces::disk;
use spoolscope_traces::records::{
    Switch, Syscall, TASK_EXEC, TASK_EXIT, TASK_FORK, TASK_WATCHED, Task,
};
use spoolscope_traces::segment::{Capture, Kind};

use crate::cli::Options;
use crate::host;
use crate::rows::Names;
use crate::threads::Threads;
use crate::touched::Touched;
use crate::trigger::Trigger;
use crate::user_stacks::UserStacks;

/// A segment that is being written, and its threads.
#[derive(Debug)]
struct Segment {
    capture: Capture,
    threads: Threads,
    began: Instant,
}

/// All open segments: one, or two around a border.
///
/// A border begins with the snapshot on which the next segment is based. Events during the snapshot
/// belong to the old segment and are the next one's prelude: without it, changes between a part of
/// the snapshot and the border would be unknown.
#[derive(Debug)]
pub struct Segments {
    directory: OwnedFd,
    name: PathBuf,
    numbered: bool,
    /// User code that made calls, with --user-stacks.
    pub user_stacks: UserStacks,
    /// Judges the records that are stored.
    pub trigger: Trigger,
    current: Segment,
    other: Other,
    full: bool,
    /// Kernel threads whose switches are recorded; every segment names them.
    watched: BTreeMap<u32, Task>,
    /// Processes that were forked since this was set, and still live.
    pub forks: Option<FxHashSet<u32>>,
    /// With --snapshot touched: receives every call.
    pub touched: Option<Touched>,
}

/// The segment that is open beside the current one.
#[derive(Debug)]
enum Other {
    Nothing,
    /// The next one, whose snapshot is being taken.
    Next(Segment),
    /// The one before, until all its records have arrived.
    Last(Segment),
}

impl Segments {
    /// Create the first segment; its directory must exist and not be a symbolic link.
    pub fn create(options: &Options) -> Result<Segments> {
        let directory = match options.output.parent() {
            Some(parent) if !parent.as_os_str().is_empty() => parent,
            _ => Path::new("."),
        };
        let opened = std::fs::OpenOptions::new()
            .read(true)
            .custom_flags(libc::O_DIRECTORY | libc::O_NOFOLLOW)
            .open(directory);
        let opened = opened.with_context(|| format!("Failed to open {}", directory.display()))?;
        let name = options.output.file_name().unwrap_or_default();
        let numbered = options.rotates() || options.keeps_last();
        let directory = OwnedFd::from(opened);
        let name = PathBuf::from(name);
        let current = new_segment(&directory, &file_name(&name, numbered, 1), 1, None)?;
        Ok(Segments {
            directory,
            name,
            numbered,
            user_stacks: UserStacks::default(),
            trigger: Trigger::of(options)?,
            current,
            other: Other::Nothing,
            full: false,
            watched: BTreeMap::new(),
            forks: None,
            touched: None,
        })
    }

    /// Return the segment that a record of that time belongs to.
    pub fn at(&mut self, end_ns: u64) -> &mut Capture {
        &mut self.place(end_ns).0.capture
    }

    /// Return the segment of that time, and the one that has the record in its prelude.
    fn place(&mut self, end_ns: u64) -> (&mut Segment, Option<&mut Segment>) {
        match &mut self.other {
            Other::Last(old) if end_ns < self.current.capture.start().0 as u64 => {
                (old, Some(&mut self.current))
            }
            Other::Next(next) => (&mut self.current, Some(next)),
            _ => (&mut self.current, None),
        }
    }

    /// Return the segment that a snapshot is taken for.
    pub fn snapshot(&mut self) -> &mut Capture {
        match &mut self.other {
            Other::Next(next) => &mut next.capture,
            _ => &mut self.current.capture,
        }
    }

    /// Store a call with its two names.
    pub fn push_call(&mut self, mut call: Syscall, path: &[u8], path2: &[u8]) -> Result<()> {
        let numbered = self.numbered;
        if let Some(touched) = &mut self.touched {
            touched.called(&call, path, path2);
        }
        let (segment, next) = self.place(call.end_ns);
        call.path = segment.capture.string(path);
        call.path2 = segment.capture.string(path2);
        segment.capture.push(Kind::Syscall, &call)?;
        if numbered {
            segment.threads.called(&call);
        }
        if let Some(next) = next {
            call.path = next.capture.string(path);
            call.path2 = next.capture.string(path2);
            next.capture.push(Kind::Prelude, &call)?;
        }
        self.trigger.called(&call);
        Ok(())
    }

    /// Store an absence from the CPU with its stack.
    pub fn push_switch(&mut self, mut switch: Switch, frames: &[u64]) -> Result<()> {
        let numbered = self.numbered;
        self.trigger.switched(&switch, frames);
        let (segment, _) = self.place(switch.in_ns);
        switch.stack = segment.capture.stack(frames);
        segment.capture.push(Kind::Switch, &switch)?;
        if numbered {
            segment.threads.switched(&switch);
        }
        Ok(())
    }

    /// Store an event of a thread's life with its name, if it has one.
    pub fn push_task(&mut self, mut task: Task, path: &[u8]) -> Result<()> {
        let numbered = self.numbered;
        if task.event == TASK_WATCHED {
            self.watched.insert(task.tid, task);
        }
        if matches!(task.event, TASK_FORK | TASK_EXEC) {
            self.user_stacks.forget(task.pid);
        }
        if let Some(touched) = &mut self.touched {
            touched.lived(&task);
        }
        if let Some(forks) = self.forks.as_mut().filter(|_| task.pid == task.tid) {
            match task.event {
                TASK_FORK => forks.insert(task.pid),
                TASK_EXIT => forks.remove(&task.pid),
                _ => false,
            };
        }
        let (segment, next) = self.place(task.ts_ns);
        task.path = segment.capture.string(path);
        segment.capture.push(Kind::Task, &task)?;
        if numbered {
            segment.threads.lived(&task);
        }
        if let Some(next) = next {
            task.path = next.capture.string(path);
            next.capture.push(Kind::Task, &task)?;
        }
        Ok(())
    }

    /// Write whole chunks, or all; `before_ns` is when the last complete reading of the rings
    /// began.
    pub fn write(&mut self, before_ns: u64, all: bool) -> Result<()> {
        let other = match &mut self.other {
            Other::Next(other) | Other::Last(other) => Some(other),
            Other::Nothing => None,
        };
        for segment in other.into_iter().chain([&mut self.current]) {
            if all {
                segment.capture.flush_until(before_ns)?;
            } else {
                segment.capture.settle(before_ns)?;
            }
        }
        Ok(())
    }

    /// Begin to list directories, with the rights that this thread has now.
    pub fn begin_listing(&mut self) {
        if let Some(touched) = &mut self.touched {
            touched.begin();
        }
    }

    /// List the directories used by calls before that moment, all of which have come out of the
    /// rings; store the names found since.
    pub fn follow(&mut self, before_ns: u64) -> Result<()> {
        let Some(touched) = &mut self.touched else {
            return Ok(());
        };
        touched.follow(before_ns);
        let rows: Vec<Names> = touched.names().collect();
        self.store_names(rows)
    }

    /// Store names in the segments they were looked up for; names for closed segments are dropped.
    pub fn store_names(&mut self, rows: Vec<Names>) -> Result<()> {
        for names in rows {
            let other = match &mut self.other {
                Other::Next(segment) | Other::Last(segment) => Some(segment),
                Other::Nothing => None,
            };
            let mut open = other.into_iter().chain([&mut self.current]);
            if let Some(segment) = open.find(|s| s.capture.number() == names.segment) {
                names.store(&mut segment.capture)?;
            }
        }
        Ok(())
    }

    /// Return true if a full disk took no more records.
    pub fn is_full(&self) -> bool {
        let other = match &self.other {
            Other::Next(other) | Other::Last(other) => other.capture.is_full(),
            Other::Nothing => false,
        };
        self.full || other || self.current.capture.is_full()
    }

    /// Return bytes and age of the current segment.
    pub fn size(&self) -> (u64, Duration) {
        (self.current.capture.bytes(), self.current.began.elapsed())
    }

    /// Return the segment that is being written, or the last one.
    pub fn current(&mut self) -> &mut Capture {
        &mut self.current.capture
    }

    /// Prepare the next segment, with `meta` as its meta data; its snapshot may begin. On a full
    /// disk there is no next segment, and the recording ends.
    pub fn prepare_next(&mut self, meta: &str) -> Result<bool> {
        let number = self.current.capture.number() + 1;
        let name = file_name(&self.name, self.numbered, number);
        let like = Some(&self.current.capture);
        match new_segment(&self.directory, &name, number, like) {
            Ok(mut next) => {
                next.capture.text(Kind::Meta, meta)?;
                self.other = Other::Next(next);
            }
            Err(error) if is_no_space(&error) => self.full = true,
            Err(error) => return Err(error),
        }
        Ok(!self.full)
    }

    /// Draw the border: from now on calls belong to the next segment.
    pub fn draw_border(&mut self) -> Result<()> {
        let Other::Next(mut next) = std::mem::replace(&mut self.other, Other::Nothing) else {
            return Ok(());
        };
        next.capture.begin_at(host::clock_pair())?;
        next.began = Instant::now();
        if let Some(touched) = &mut self.touched {
            touched.restart(next.capture.number());
        }
        self.other = Other::Last(std::mem::replace(&mut self.current, next));
        Ok(())
    }

    /// Complete the border: the new segment gets the progress of each thread.
    ///
    /// Return the old segment, which still lacks its symbols and final meta data.
    pub fn complete_border(&mut self, alive: &FxHashSet<u32>) -> Result<Option<Capture>> {
        let Other::Last(old) = std::mem::replace(&mut self.other, Other::Nothing) else {
            return Ok(None);
        };
        let stacks = old.capture.stacks_by_id();
        let new = &mut self.current;
        for (border, away) in old.threads.border(alive, &new.threads) {
            new.capture.push(Kind::Task, &border)?;
            for switch in away {
                let stack = (switch.stack as usize).checked_sub(1);
                let frames = stack.and_then(|at| stacks.get(at));
                let stack = frames.map_or(0, |frames| new.capture.stack(frames));
                new.capture
                    .push(Kind::Switch, &Switch { stack, ..*switch })?;
            }
        }
        let ts_ns = new.capture.start().0 as u64;
        for task in self.watched.values() {
            new.capture.push(Kind::Task, &Task { ts_ns, ..*task })?;
        }
        new.threads.inherit(old.threads, alive);
        Ok(Some(old.capture))
    }

    /// Remove a segment that was prepared but not begun.
    pub fn abandon_next(&mut self) -> Result<()> {
        if let Other::Next(next) = std::mem::replace(&mut self.other, Other::Nothing) {
            self.remove(next.capture.number())?;
        }
        Ok(())
    }

    /// Remove a segment from the disk.
    pub fn remove(&self, number: u32) -> Result<()> {
        let name = std::ffi::CString::new(file_name(&self.name, self.numbered, number))?;
        // SAFETY: a live directory descriptor and a C string.
        if unsafe { libc::unlinkat(self.directory.as_raw_fd(), name.as_ptr(), 0) } != 0 {
            let error = std::io::Error::last_os_error();
            return Err(error).context("Failed to remove an old segment");
        }
        Ok(())
    }
}

fn is_no_space(error: &anyhow::Error) -> bool {
    error
        .chain()
        .filter_map(|cause| cause.downcast_ref())
        .any(disk::no_space)
}

fn new_segment(
    directory: &OwnedFd,
    name: &str,
    number: u32,
    like: Option<&Capture>,
) -> Result<Segment> {
    Ok(Segment {
        capture: Capture::create(directory.as_fd(), name, number, host::clock_pair(), like)?,
        threads: Threads::default(),
        began: Instant::now(),
    })
}

/// Return capture.seg, or capture-000001.seg.
fn file_name(name: &Path, numbered: bool, number: u32) -> String {
    let plain = name.to_string_lossy();
    match plain.rsplit_once('.') {
        Some((stem, ending)) if numbered => format!("{stem}-{number:06}.{ending}"),
        _ if numbered => format!("{plain}-{number:06}"),
        _ => plain.into_owned(),
    }
}
