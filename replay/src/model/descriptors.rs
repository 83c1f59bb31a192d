//! Descriptors of recorded processes, as far as order and contents depend on them.

use foldhash::{HashMap, HashSet};
use smallvec::SmallVec;
use spoolscope_traces::records::{NONE, PlanFd, PlanOp};
use std::collections::hash_map::Entry;

use crate::semantics::{self, Kind};

/// The state of an open descriptor that the walk needs.
#[derive(Clone, Copy, Debug, Default)]
pub struct Descriptor {
    pub appends: bool,
    pub cloexec: bool,
    pub object: Option<u32>,
    /// The open file description: shared by dup and fork, with its position.
    pub file: Option<u32>,
}

#[derive(Debug, Default)]
pub struct Descriptors {
    /// By process (leader thread).
    tables: Vec<HashMap<i32, Descriptor>>,
    /// How many descriptors have each open file.
    holders: HashMap<u32, u32>,
    shared: HashSet<u32>,
    /// Files of the plan's descriptors at start, with the first process that had each.
    at_start: HashMap<u32, (u32, u32)>,
    files: u32,
    /// Open files that are passed to other processes, by the operation that opened them.
    given: HashMap<u32, Descriptor>,
    /// By open file, the end of the last call that moved its position.
    moved: HashMap<u32, i64>,
}

impl Descriptors {
    pub fn get(&self, process: u32, fd: i32) -> Descriptor {
        let table = self.tables.get(process as usize);
        table
            .and_then(|table| table.get(&fd))
            .copied()
            .unwrap_or_default()
    }

    /// Returns what `op` closes in a process; `ends` is true if the process ends with it.
    pub fn closed_by(&self, op: &PlanOp, process: u32, ends: bool) -> SmallVec<[i32; 2]> {
        let among = |which: &dyn Fn(i32, &Descriptor) -> bool| {
            let table = self.tables.get(process as usize).into_iter().flatten();
            table
                .filter(|(fd, known)| which(**fd, known))
                .map(|(fd, _)| *fd)
                .collect()
        };
        match semantics::kind(op) {
            Kind::Exit if ends => among(&|_, _| true),
            _ if op.ret < 0 => SmallVec::new(),
            Kind::Close => SmallVec::from_slice(&[op.fd]),
            Kind::Dup2 if semantics::makes_fd(op) => SmallVec::from_slice(&[op.ret as i32]),
            Kind::CloseRange => match semantics::fd_range(op) {
                (fds, false) => among(&|fd, _| fds.contains(&fd)),
                (_, true) => SmallVec::new(),
            },
            Kind::Exec => among(&|_, known| known.cloexec),
            _ => SmallVec::new(),
        }
    }

    /// Returns whether several processes have this open file.
    pub fn is_shared(&self, file: u32) -> bool {
        self.shared.contains(&file)
    }

    /// Returns the open files of these descriptors; true if no other descriptors have them.
    pub fn files_of(&self, process: u32, fds: &[i32]) -> SmallVec<[(u32, bool); 2]> {
        let only = |file: &u32, n: u32| self.holders.get(file) == Some(&n);
        if let [fd] = fds {
            let file = self.get(process, *fd).file;
            return file
                .into_iter()
                .map(|file| (file, only(&file, 1)))
                .collect();
        }
        let mut own: HashMap<u32, u32> = HashMap::default();
        for file in fds.iter().filter_map(|fd| self.get(process, *fd).file) {
            *own.entry(file).or_default() += 1;
        }
        let mut files: SmallVec<_> = own
            .iter()
            .map(|(file, n)| (*file, only(file, *n)))
            .collect();
        files.sort_unstable();
        files
    }

    fn put(&mut self, process: u32, fd: i32, known: Descriptor) {
        let before = self.table(process).insert(fd, known);
        self.hold(known.file);
        self.release(before);
    }

    fn table(&mut self, process: u32) -> &mut HashMap<i32, Descriptor> {
        let process = process as usize;
        if self.tables.len() <= process {
            self.tables.resize_with(process + 1, HashMap::default);
        }
        &mut self.tables[process]
    }

    fn hold(&mut self, file: Option<u32>) {
        if let Some(file) = file {
            *self.holders.entry(file).or_default() += 1;
        }
    }

    fn release(&mut self, gone: Option<Descriptor>) {
        let Some(file) = gone.and_then(|gone| gone.file) else {
            return;
        };
        if let Entry::Occupied(mut held) = self.holders.entry(file) {
            *held.get_mut() -= 1;
            if *held.get() == 0 {
                held.remove();
            }
        }
    }

    /// Returns whether a call overlapped with another one that moved the position it used.
    pub fn races_for_position(&mut self, process: u32, op: &PlanOp) -> bool {
        let known = self.get(process, op.fd);
        let Some(file) = known.file.filter(|_| semantics::moves_position(op)) else {
            return false;
        };
        let last = self.moved.entry(file).or_insert(i64::MIN);
        let races = *last > op.start_ns && !known.appends;
        *last = op.end_ns.max(*last);
        races
    }

    pub fn open(&mut self, process: u32, fd: i32, flags: i32, object: Option<u32>) {
        self.files += 1;
        let made = Descriptor {
            appends: flags & libc::O_APPEND != 0,
            cloexec: flags & libc::O_CLOEXEC != 0,
            object,
            file: Some(self.files),
        };
        self.put(process, fd, made);
    }

    /// Adds a descriptor that was open at start; equal numbers of `file` share one open file.
    pub fn found(&mut self, process: u32, fd: &PlanFd, object: u32) {
        self.open(process, fd.fd, fd.flags as i32, Some(object));
        if fd.file == NONE {
            return;
        }
        let (file, first) = *self
            .at_start
            .entry(fd.file)
            .or_insert((self.files, process));
        if first != process {
            self.shared.insert(file);
        }
        let made = self.get(process, fd.fd);
        let file = Some(file);
        self.put(process, fd.fd, Descriptor { file, ..made });
    }

    /// Follows what opens, copies, closes and changes descriptors; `ends` is true if the process
    /// ends with it.
    pub fn track(&mut self, op: &PlanOp, process: u32, object: Option<u32>, ends: bool) {
        for fd in self.closed_by(op, process, ends) {
            let gone = self.table(process).remove(&fd);
            self.release(gone);
        }
        if op.ret < 0 {
            return;
        }
        match semantics::kind(op) {
            Kind::Open => {
                let flags = semantics::open_flags(op);
                self.open(process, op.ret as i32, flags, object);
            }
            Kind::Fcntl if op.cmd == libc::F_SETFL => self.change(process, op.fd, |known| {
                known.appends = op.arg as i32 & libc::O_APPEND != 0;
            }),
            Kind::Fcntl if op.cmd == libc::F_SETFD => self.change(process, op.fd, |known| {
                known.cloexec = op.arg as i32 & libc::FD_CLOEXEC != 0;
            }),
            Kind::CloseRange => {
                let (fds, marks) = semantics::fd_range(op);
                let table = self.table(process).iter_mut();
                let marked = table.filter(|(fd, _)| marks && fds.contains(fd));
                marked.for_each(|(_, known)| known.cloexec = true);
            }
            _ if semantics::makes_fd(op) => {
                let cloexec = semantics::closes_on_exec(op);
                let copied = self.get(process, op.fd);
                self.put(process, op.ret as i32, Descriptor { cloexec, ..copied });
            }
            _ => {}
        }
    }

    fn change(&mut self, process: u32, fd: i32, change: impl Fn(&mut Descriptor)) {
        if let Some(known) = self.table(process).get_mut(&fd) {
            change(known);
        }
    }

    pub fn inherit(&mut self, parent: u32, child: u32) {
        if parent == child || self.tables.len() <= parent as usize {
            return;
        }
        let table = self.tables[parent as usize].clone();
        let files = table.values().filter_map(|descriptor| descriptor.file);
        self.shared.extend(files);
        self.forget(child);
        table
            .values()
            .for_each(|descriptor| self.hold(descriptor.file));
        *self.table(child) = table;
    }

    /// Notes an open file that another process will use, too.
    pub fn give(&mut self, process: u32, fd: i32, opened: u32) {
        let given = self.get(process, fd);
        self.shared.extend(given.file);
        self.given.insert(opened, given);
    }

    /// Gives a process the file that `opened` opened, without the cloexec mark of its descriptor.
    pub fn take(&mut self, process: u32, fd: i32, opened: u32) {
        if let Some(given) = self.given.get(&opened).copied() {
            let cloexec = false;
            self.put(process, fd, Descriptor { cloexec, ..given });
        }
    }

    fn forget(&mut self, process: u32) {
        if let Some(table) = self.tables.get_mut(process as usize) {
            let gone = std::mem::take(table);
            gone.into_values().for_each(|gone| self.release(Some(gone)));
        }
    }
}
