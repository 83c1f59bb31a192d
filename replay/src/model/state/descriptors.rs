//! Descriptors of recorded processes, as far as order and contents depend on them.

use foldhash::{HashMap, HashSet};
use smallvec::SmallVec;
use spoolscope_traces::records::{NONE, PlanFd, PlanOp};
use std::collections::hash_map::Entry;

use crate::semantics::{self, Kind, OpenFlags};

/// The state of an open descriptor that the walk needs.
#[derive(Clone, Copy, Debug, Default)]
pub struct Descriptor {
    pub cloexec: bool,
    pub object: Option<u32>,
    /// The open file description: shared by dup and fork, with its position.
    pub file: Option<u32>,
    /// The operation that made this number; `None` if it was there at start.
    pub made: Option<u32>,
}

impl Descriptor {
    fn opened(flags: OpenFlags, object: Option<u32>, file: u32) -> Self {
        Self {
            cloexec: flags.closes_on_exec(),
            object,
            file: Some(file),
            made: None,
        }
    }
}

/// Descriptor tables of all recorded processes, as the calls until one moment leave them; all that
/// follows a recording asks these. The engine's `FdTable` is another thing: it binds the numbers to
/// real descriptors while a replay runs, in memory that its tasks share.
#[derive(Debug, Default)]
pub struct Descriptors {
    /// By process (leader thread).
    tables: Vec<HashMap<i32, Descriptor>>,
    /// How many descriptors have each open file.
    holders: HashMap<u32, u32>,
    shared: HashSet<u32>,
    /// Files of the plan's descriptors at start, with the first process that had each.
    at_start: HashMap<u32, (u32, u32)>,
    /// How many open files there were; they are numbered in the order in which they were opened.
    files: u32,
    /// Open files with O_APPEND, which all descriptors of one share.
    appending: HashSet<u32>,
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

    /// Returns whether writes to a descriptor go to the end of its file.
    pub fn appends(&self, process: u32, fd: i32) -> bool {
        let file = self.get(process, fd).file;
        file.is_some_and(|file| self.appending.contains(&file))
    }

    /// Returns the descriptors of a process whose open file is known, in their order.
    pub fn of(&self, process: u32) -> Vec<(i32, Descriptor)> {
        let table = self.tables.get(process as usize).into_iter().flatten();
        let open = table.filter(|(_, known)| known.file.is_some());
        let mut open: Vec<_> = open.map(|(fd, known)| (*fd, *known)).collect();
        open.sort_unstable_by_key(|(fd, _)| *fd);
        open
    }

    /// Returns the highest number that a process has.
    pub fn highest(&self) -> Option<i32> {
        let all = self.tables.iter().flat_map(HashMap::keys);
        all.max().copied()
    }

    /// Returns what `op` closes in a process; `ends` is true if the process ends with it.
    pub fn closed_by(&self, op: &PlanOp, process: u32, ends: bool) -> SmallVec<[i32; 2]> {
        let among = |which: &dyn Fn(i32, &Descriptor) -> bool| {
            let table = self.tables.get(process as usize).into_iter().flatten();
            let chosen = table.filter(|(fd, known)| which(**fd, known));
            let mut chosen: SmallVec<[i32; 2]> = chosen.map(|(fd, _)| *fd).collect();
            chosen.sort_unstable();
            chosen
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
        let races = *last > op.start_ns && !self.appending.contains(&file);
        *last = op.end_ns.max(*last);
        races
    }

    pub fn open(&mut self, process: u32, fd: i32, flags: OpenFlags, object: Option<u32>) {
        let file = self.new_file();
        self.set_flags(file, flags);
        self.put(process, fd, Descriptor::opened(flags, object, file));
    }

    /// Adds a descriptor that was open at start; equal numbers of `file` share one open file.
    pub fn found(&mut self, process: u32, fd: &PlanFd, object: u32) {
        let known = self.at_start.get(&fd.file).filter(|_| fd.file != NONE);
        let (file, first) = known.copied().unwrap_or_else(|| (self.new_file(), process));
        self.at_start.insert(fd.file, (file, first));
        if first != process {
            self.shared.insert(file);
        }
        let flags = OpenFlags::new(fd.flags);
        self.set_flags(file, flags);
        let found = Descriptor::opened(flags, Some(object), file);
        self.put(process, fd.fd, found);
    }

    /// Notes the status flags of an open file, which F_SETFL changes for all its descriptors.
    fn set_flags(&mut self, file: u32, flags: OpenFlags) {
        if flags.appends() {
            self.appending.insert(file);
        } else if !self.appending.is_empty() {
            self.appending.remove(&file);
        }
    }

    fn new_file(&mut self) -> u32 {
        self.files += 1;
        self.files - 1
    }

    /// Follows what opens, copies, closes and changes descriptors; `ends` is true if the process
    /// ends with it.
    pub fn track(
        &mut self,
        (at, op): (u32, &PlanOp),
        process: u32,
        object: Option<u32>,
        ends: bool,
    ) {
        for fd in self.closed_by(op, process, ends) {
            let gone = self.table(process).remove(&fd);
            self.release(gone);
        }
        if op.ret < 0 {
            return;
        }
        match semantics::kind(op) {
            Kind::Open => {
                let flags = OpenFlags::of(op);
                self.open(process, op.ret as i32, flags, object);
            }
            Kind::Fcntl if op.cmd == libc::F_SETFL => {
                if let Some(file) = self.get(process, op.fd).file {
                    self.set_flags(file, OpenFlags::new(op.arg as u32));
                }
            }
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
        if semantics::makes_fd(op) {
            self.change(process, op.ret as i32, |known| known.made = Some(at));
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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::plan;

    #[test]
    fn status_flags_are_those_of_the_open_file_and_of_all_its_descriptors() {
        let append = libc::O_APPEND;
        let plan = plan(&format!(
            "A 0-1 openat f ino=7 flags=1 = 3
             A 2-3 openat f ino=7 flags=1 = 4
             A 4-5 dup fd=3 ino=7 = 5
             A 6-7 FORK B = 0
             B 8-9 fcntl fd=3 cmd=4 arg={append} ino=7 = 0
             A 10-11 fcntl fd=5 cmd=4 arg=0 ino=7 = 0"
        ));
        let mut tables = Descriptors::default();
        let mut seen = Vec::new();
        for (at, op) in plan.ops().iter().enumerate() {
            if semantics::kind(op) == Kind::Fork {
                tables.inherit(0, 1);
            }
            tables.track((at as u32, op), op.thread, Some(7), false);
            let all = [(0, 3), (0, 4), (0, 5), (1, 3), (1, 5)];
            seen.push(all.map(|(process, fd)| tables.appends(process, fd)));
        }
        assert_eq!(seen[3], [false; 5]);
        assert_eq!(seen[4], [true, false, true, true, true]);
        assert_eq!(seen[5], [false; 5]);
    }
}
