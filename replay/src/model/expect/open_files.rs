//! State at one point of the order that the walk itself does not need: positions and flags of open
//! files, mappings, inotify watches and working directories.
//!
//! Descriptors and their open files are those of the world; what is known here of an open file goes
//! by its number there.

use foldhash::HashMap;
use spoolscope_traces::records::{NONE, PlanOp};

use crate::model::state::descriptors::Descriptor;
use crate::model::state::slots::Slot;
use crate::model::state::world::World;
use crate::plan::Plan;
use crate::semantics::{self, Kind, OpenFlags};

/// An open file, which several descriptors may share.
#[derive(Clone, Debug, Default)]
pub struct OpenFile {
    pub flags: OpenFlags,
    pub pos: i64,
    /// Calls that listed the directory since it was at its beginning.
    pub listed: Vec<u32>,
}

/// A part of a mapped file.
#[derive(Clone, Copy, Debug)]
pub struct Mapped {
    /// The call that mapped it.
    pub op: u32,
    pub object: u32,
    pub start: i64,
    pub len: i64,
    pub offset: i64,
}

#[derive(Clone, Debug, Default)]
pub struct Process {
    /// Working directory: its object, and its name for the case that nothing is known of it.
    pub cwd: Option<(Option<u32>, u32)>,
    pub mappings: Vec<Mapped>,
    /// Calls that added inotify watches.
    pub watches: Vec<u32>,
}

/// Processes by their leader, and open files by their number.
#[derive(Debug, Default)]
pub struct Holdings {
    files: Vec<OpenFile>,
    pub processes: HashMap<u32, Process>,
    /// By thread.
    pub alive: Vec<bool>,
}

const PAGE: i64 = 4096;

impl Holdings {
    /// Returns the state before the first operation; `world` has seen none.
    pub fn new(plan: &Plan, world: &World) -> Self {
        let mut new = Self {
            alive: vec![false; plan.threads().len()],
            ..Self::default()
        };
        for (at, thread) in plan.threads().iter().enumerate() {
            new.alive[at] = thread.parent == NONE && thread.start_ns == 0;
            let cwd = Some((object_at(world, thread.cwd), thread.cwd));
            let process = new.processes.entry(world.leader(at as u32)).or_default();
            process.cwd = process.cwd.or(cwd.filter(|_| thread.parent == NONE));
        }
        for fd in plan.fds() {
            let process = world.leader(fd.thread);
            if let Some(file) = new.file_mut(world.descriptors().get(process, fd.fd)) {
                (file.flags, file.pos) = (OpenFlags::new(fd.flags), fd.pos);
            }
        }
        new
    }

    /// Returns the open file of a descriptor.
    pub fn file(&self, of: Descriptor) -> Option<&OpenFile> {
        self.files.get(of.file? as usize)
    }

    fn file_mut(&mut self, of: Descriptor) -> Option<&mut OpenFile> {
        let at = of.file? as usize;
        if self.files.len() <= at {
            self.files.resize_with(at + 1, OpenFile::default);
        }
        self.files.get_mut(at)
    }

    /// Returns a lock call with its bytes counted from the begin of the file, if it is one on a file
    /// that is known; else the call as it is.
    pub fn counted_from_begin(&self, op: &PlanOp, world: &World) -> PlanOp {
        let known = world.descriptor(op, op.fd);
        let from = match i32::from(op.lock_whence) {
            libc::SEEK_CUR => self.file(known).map(|file| file.pos),
            libc::SEEK_END => known.object.map(|object| world.object(object).size()),
            _ => None,
        };
        from.map_or(*op, |from| PlanOp {
            lock_whence: libc::SEEK_SET as u8,
            offset: from.saturating_add(op.offset.max(0)),
            ..*op
        })
    }

    /// Takes the next operation of the order, after the world has taken it.
    pub fn apply(&mut self, at: u32, op: &PlanOp, world: &World) {
        if op.ret < 0 {
            return;
        }
        let process = world.leader(op.thread);
        match semantics::kind(op) {
            Kind::Fork if op.arg != i64::from(NONE) => self.fork(process, op.arg as u32, world),
            Kind::Exec => self.process(process).mappings.clear(),
            Kind::Exit => self.alive[op.thread as usize] = false,
            Kind::Open => {
                let made = world.descriptors().get(process, op.ret as i32);
                if let Some(file) = self.file_mut(made) {
                    file.flags = OpenFlags::of(op);
                }
            }
            Kind::Fcntl if op.cmd == libc::F_SETFL => {
                if let Some(file) = self.file_mut(world.descriptor(op, op.fd)) {
                    file.flags = file.flags.set(op.arg as u32);
                }
            }
            Kind::Chdir | Kind::Fchdir => {
                let place = world.target_of(op).or_else(|| object_at(world, op.path));
                self.process(process).cwd = Some((place, op.path));
            }
            Kind::Map => self.map(at, process, op, world),
            Kind::Unmap => self.unmap(process, op),
            Kind::Watch => self.process(process).watches.push(at),
            Kind::CopyRange | Kind::Sendfile | Kind::Splice => self.copy_on(op, world),
            _ => self.move_position(at, op, world),
        }
    }

    fn process(&mut self, leader: u32) -> &mut Process {
        self.processes.entry(leader).or_default()
    }

    fn fork(&mut self, parent: u32, child: u32, world: &World) {
        self.alive[child as usize] = true;
        if world.leader(child) == child {
            let copy = self.processes.get(&parent).cloned().unwrap_or_default();
            self.processes.insert(child, copy);
        }
    }

    fn map(&mut self, at: u32, process: u32, op: &PlanOp, world: &World) {
        if let Some(object) = world.target_of(op) {
            let len = pages(op.size.max(1));
            self.process(process).mappings.push(Mapped {
                op: at,
                object,
                start: op.ret,
                len,
                offset: op.offset.max(0),
            });
        }
    }

    fn unmap(&mut self, process: u32, op: &PlanOp) {
        let (from, to) = (op.arg, op.arg.saturating_add(pages(op.size.max(0))));
        let mappings = &mut self.process(process).mappings;
        let rest = |whole: &Mapped| {
            let end = whole.start + whole.len;
            let (before, after) = (end.min(from), whole.start.max(to));
            let part = |start: i64, end: i64| Mapped {
                start,
                len: end - start,
                offset: whole.offset + start - whole.start,
                ..*whole
            };
            [part(whole.start, before), part(after, end)]
        };
        *mappings = mappings
            .iter()
            .flat_map(rest)
            .filter(|part| part.len > 0)
            .collect();
    }

    /// Moves the positions of both files of a copy, except where it was given an offset.
    fn copy_on(&mut self, op: &PlanOp, world: &World) {
        let output = match semantics::kind(op) {
            Kind::Sendfile => -1,
            _ => op.arg,
        };
        for (fd, offset) in [(op.fd, op.offset), (op.fd2, output)] {
            let file = self.file_mut(world.descriptor(op, fd));
            if let Some(file) = file.filter(|_| offset < 0) {
                file.pos += op.ret.max(0);
            }
        }
    }

    fn move_position(&mut self, at: u32, op: &PlanOp, world: &World) {
        if !semantics::moves_position(op) {
            return;
        }
        let known = world.descriptor(op, op.fd);
        let Some(file) = self.file_mut(known) else {
            return;
        };
        let size = known.object.map(|object| world.object(object).size());
        match semantics::kind(op) {
            Kind::Seek => {
                file.pos = op.ret;
                file.listed.clear();
            }
            Kind::Getdents => file.listed.push(at),
            Kind::Write if file.flags.appends() && op.ret > 0 => {
                file.pos = size.filter(|_| op.obj_size < 0).unwrap_or(op.obj_size);
            }
            _ if op.offset >= 0 => file.pos = op.offset + op.ret,
            _ => file.pos += op.ret,
        }
    }
}

/// Returns a length in whole pages, as the kernel maps and unmaps.
fn pages(bytes: i64) -> i64 {
    bytes.saturating_add(PAGE - 1) / PAGE * PAGE
}

fn object_at(world: &World, path: u32) -> Option<u32> {
    match world.slot(path) {
        Slot::Present(object) if path != NONE => Some(object),
        _ => None,
    }
}
