//! State of each process at one point of the order: open files with their positions, locks,
//! mappings, inotify watches, working directory and umask.

use foldhash::{HashMap, HashMapExt};
use spoolscope_traces::records::{NONE, PlanOp};
use std::collections::BTreeMap;

use crate::model::ranges::Ranges;
use crate::model::world::{Slot, World};
use crate::plan::Plan;
use crate::semantics::{self, Kind, Lock};

/// An open file, which several descriptors may share.
#[derive(Clone, Debug, Default)]
pub struct OpenFile {
    pub object: Option<u32>,
    pub flags: u32,
    pub pos: i64,
    /// Calls that listed the directory since it was at its beginning.
    pub listed: Vec<u32>,
    /// flock: true if it is exclusive.
    pub flock: Option<bool>,
    /// Locks of the open file (F_OFD_SETLK).
    pub locks: Ranges,
}

/// A recorded descriptor, bound to an open file.
#[derive(Clone, Copy, Debug)]
pub struct Bound {
    pub file: usize,
    pub cloexec: bool,
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
    pub fds: BTreeMap<i32, Bound>,
    /// Working directory: its object, and its name for the case that nothing is known of it.
    pub cwd: Option<(Option<u32>, u32)>,
    pub umask: Option<u32>,
    pub mappings: Vec<Mapped>,
    /// Calls that added inotify watches.
    pub watches: Vec<u32>,
    /// POSIX locks by object.
    pub locks: BTreeMap<u32, Ranges>,
}

/// Processes by their leader, and the open files that they share.
#[derive(Debug, Default)]
pub struct Holdings {
    pub files: Vec<OpenFile>,
    pub processes: HashMap<u32, Process>,
    /// By thread.
    pub alive: Vec<bool>,
}

const PAGE: i64 = 4096;
/// Flags that F_SETFL can change.
const SETTABLE: u32 =
    (libc::O_APPEND | libc::O_NONBLOCK | libc::O_DIRECT | libc::O_NOATIME | libc::O_ASYNC) as u32;

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
        let mut shared: HashMap<u32, usize> = HashMap::new();
        for fd in plan.fds() {
            let made = OpenFile {
                object: object_at(world, fd.path),
                flags: fd.flags,
                pos: fd.pos,
                ..OpenFile::default()
            };
            let file = match shared.get(&fd.file).filter(|_| fd.file != NONE) {
                Some(file) => *file,
                None => new.add(made),
            };
            shared.insert(fd.file, file);
            let cloexec = fd.flags & libc::O_CLOEXEC as u32 != 0;
            let process = new.processes.entry(world.leader(fd.thread)).or_default();
            process.fds.insert(fd.fd, Bound { file, cloexec });
        }
        new
    }

    fn add(&mut self, file: OpenFile) -> usize {
        self.files.push(file);
        self.files.len() - 1
    }

    /// Takes the next operation of the order, after the world has taken it.
    pub fn apply(&mut self, at: u32, op: &PlanOp, world: &World) {
        if op.ret < 0 {
            return;
        }
        let process = world.leader(op.thread);
        match semantics::kind(op) {
            Kind::Fork if op.arg != i64::from(NONE) => self.fork(process, op.arg as u32, world),
            Kind::Exec => self.exec(process),
            Kind::Exit => self.alive[op.thread as usize] = false,
            Kind::Open => {
                let made = OpenFile {
                    object: world.target_of(op),
                    flags: semantics::open_flags(op) as u32,
                    ..OpenFile::default()
                };
                let file = self.add(made);
                let cloexec = semantics::closes_on_exec(op);
                self.bind(process, op.ret as i32, Some(Bound { file, cloexec }));
            }
            Kind::Dup | Kind::Dup2 => {
                self.copy(process, op);
            }
            Kind::Close => self.bind(process, op.fd, None),
            Kind::CloseRange => self.close_range(process, op),
            Kind::Fcntl => self.fcntl(process, op, world),
            Kind::Flock => self.flock(process, op),
            Kind::Chdir | Kind::Fchdir => {
                let place = world.target_of(op).or_else(|| object_at(world, op.path));
                self.process(process).cwd = Some((place, op.path));
            }
            Kind::Umask => self.process(process).umask = Some(op.mode & 0o777),
            Kind::Map => self.map(at, process, op, world),
            Kind::Unmap => self.unmap(process, op),
            Kind::Watch => self.process(process).watches.push(at),
            Kind::CopyRange | Kind::Sendfile | Kind::Splice => self.copy_on(process, op),
            _ => self.move_position(at, process, op, world),
        }
    }

    fn process(&mut self, leader: u32) -> &mut Process {
        self.processes.entry(leader).or_default()
    }

    fn file(&mut self, process: u32, fd: i32) -> Option<&mut OpenFile> {
        let bound = self.processes.get(&process)?.fds.get(&fd)?;
        self.files.get_mut(bound.file)
    }

    fn fork(&mut self, parent: u32, child: u32, world: &World) {
        self.alive[child as usize] = true;
        if world.leader(child) == child {
            let mut copy = self.processes.get(&parent).cloned().unwrap_or_default();
            copy.locks.clear();
            self.processes.insert(child, copy);
        }
    }

    fn exec(&mut self, process: u32) {
        let table = &self.process(process).fds;
        let gone = table.iter().filter(|(_, bound)| bound.cloexec);
        let gone: Vec<i32> = gone.map(|(fd, _)| *fd).collect();
        gone.iter().for_each(|fd| self.bind(process, *fd, None));
        self.process(process).mappings.clear();
    }

    /// Binds a number to an open file, or to none; the one it had is closed.
    fn bind(&mut self, process: u32, fd: i32, new: Option<Bound>) {
        let held = self.processes.entry(process).or_default();
        let old = match new {
            Some(bound) => held.fds.insert(fd, bound),
            None => held.fds.remove(&fd),
        };
        // Closing any descriptor of a file gives up the POSIX locks on it.
        if let Some(object) = old.and_then(|old| self.files[old.file].object) {
            held.locks.remove(&object);
        }
    }

    fn copy(&mut self, process: u32, op: &PlanOp) {
        let cloexec = semantics::closes_on_exec(op);
        let source = self.process(process).fds.get(&op.fd).copied();
        if op.ret != i64::from(op.fd) {
            let new = source.map(|source| Bound { cloexec, ..source });
            self.bind(process, op.ret as i32, new);
        }
    }

    fn close_range(&mut self, process: u32, op: &PlanOp) {
        let (fds, marks) = semantics::fd_range(op);
        if fds.is_empty() {
            return;
        }
        let fds = self.process(process).fds.range_mut(fds);
        if marks {
            fds.for_each(|(_, bound)| bound.cloexec = true);
            return;
        }
        let gone: Vec<i32> = fds.map(|(fd, _)| *fd).collect();
        gone.iter().for_each(|fd| self.bind(process, *fd, None));
    }

    fn fcntl(&mut self, process: u32, op: &PlanOp, world: &World) {
        match op.cmd {
            libc::F_DUPFD | libc::F_DUPFD_CLOEXEC => {
                self.copy(process, op);
            }
            libc::F_SETFD => {
                if let Some(bound) = self.process(process).fds.get_mut(&op.fd) {
                    bound.cloexec = op.arg as i32 & libc::FD_CLOEXEC != 0;
                }
            }
            libc::F_SETFL => {
                if let Some(file) = self.file(process, op.fd) {
                    file.flags = file.flags & !SETTABLE | op.arg as u32 & SETTABLE;
                }
            }
            _ => self.lock(process, op, world),
        }
    }

    fn lock(&mut self, process: u32, op: &PlanOp, world: &World) {
        let kind = match semantics::lock(op) {
            Some((Lock::Exclusive, _)) => Some(true),
            Some((Lock::Shared, _)) => Some(false),
            Some((Lock::Release, _)) => None,
            Some((Lock::Refused, _)) | None => return,
        };
        let Some(file) = self.file(process, op.fd) else {
            return;
        };
        let Some(object) = file.object else {
            return;
        };
        let from = match i32::from(op.lock_whence) {
            libc::SEEK_CUR => file.pos,
            libc::SEEK_END => world.object(object).now.size,
            _ => 0,
        };
        let start = from.saturating_add(op.offset.max(0));
        let range = match op.size {
            ..=0 => (start, i64::MAX),
            size => (start, start.saturating_add(size)),
        };
        match op.cmd {
            libc::F_OFD_SETLK | libc::F_OFD_SETLKW => file.locks.set(range, kind),
            _ => {
                let locks = &mut self.process(process).locks;
                locks.entry(object).or_default().set(range, kind);
            }
        }
    }

    fn flock(&mut self, process: u32, op: &PlanOp) {
        let kind = match semantics::lock(op) {
            Some((Lock::Exclusive, _)) => Some(true),
            Some((Lock::Shared, _)) => Some(false),
            _ => None,
        };
        if let Some(file) = self.file(process, op.fd) {
            file.flock = kind;
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
    fn copy_on(&mut self, process: u32, op: &PlanOp) {
        let output = match semantics::kind(op) {
            Kind::Sendfile => -1,
            _ => op.arg,
        };
        for (fd, offset) in [(op.fd, op.offset), (op.fd2, output)] {
            if let Some(file) = self.file(process, fd).filter(|_| offset < 0) {
                file.pos += op.ret.max(0);
            }
        }
    }

    fn move_position(&mut self, at: u32, process: u32, op: &PlanOp, world: &World) {
        if !semantics::moves_position(op) {
            return;
        }
        let Some(file) = self.file(process, op.fd) else {
            return;
        };
        let appends = file.flags & libc::O_APPEND as u32 != 0;
        let size = file.object.map(|object| world.object(object).now.size);
        match semantics::kind(op) {
            Kind::Seek => {
                file.pos = op.ret;
                file.listed.clear();
            }
            Kind::Getdents => file.listed.push(at),
            Kind::Write if appends && op.ret > 0 => {
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
