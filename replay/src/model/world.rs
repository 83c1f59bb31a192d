//! The spool as it must have been: names, objects and locks, step by step.

use foldhash::{HashMap, HashMapExt, HashSet};
use smallvec::SmallVec;
use spoolscope_traces::records::{NONE, PlanEntry, PlanOp, PlanThread};

use crate::model::descriptors::Descriptors;
use crate::model::evidence::Evidence;
use crate::model::extents::Extents;
use crate::model::listings;
use crate::model::names::Names;
use crate::model::objects::{Attributes, Object};
use crate::model::passed::{self, Pass};
use crate::model::processes::Processes;
use crate::model::xattrs::Xattrs;
use crate::plan::Plan;
use crate::semantics::{self, Kind};
use crate::touches::Need;

/// The known state of a name.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Slot {
    /// No operation has shown it yet.
    Unknown,
    Absent,
    /// Index into the objects.
    Present(u32),
}

/// Names and objects at one point of the linearised trace.
#[derive(Debug)]
pub struct World<'a> {
    pub names: Names<'a>,
    pub slots: Vec<Slot>,
    /// State of each name before the first operation; `Unknown` if no operation showed it.
    pub initial: Vec<Slot>,
    pub objects: Vec<Object>,
    /// Names that a call reached with success, so their directories existed.
    pub reached: Vec<bool>,
    pub(super) by_ino: HashMap<u64, u32>,
    /// Inode numbers that were used again, with the time at which their present object was made.
    reborn_ns: HashMap<u64, i64>,
    pub(super) entries: &'a [PlanEntry],
    pub(super) entry_at: HashMap<u32, u32>,
    pub(super) entry_of_ino: HashMap<u64, u32>,
    pub(super) threads: &'a [PlanThread],
    pub processes: Processes,
    pub(super) descriptors: Descriptors,
    /// Open files that are passed between processes, in order of use.
    pub passes: Vec<Pass>,
    /// By operation, the pass that it is the first to use; and the operations that opened one.
    pass_at: HashMap<u32, Pass>,
    given: HashSet<u32>,
    pub(super) evidence: Evidence,
    /// The name at start of objects that were there.
    pub(super) first_name: HashMap<u32, u32>,
    /// Directories that were not empty for an unknown reason, and how many names in them were
    /// known.
    pub(super) full: Vec<(u32, usize)>,
    pub(super) live_bytes: i64,
    /// Directories that are listed, and the names that came (true) or went in them since this was
    /// last asked for.
    pub listed: HashSet<u32>,
    pub changes: Vec<(u32, bool)>,
    pub(super) xattrs: Xattrs,
    /// Pages of files that were written to through mappings.
    pub(super) dirtied: HashMap<u32, Extents>,
    /// Ranges of files that are preallocated, and not written yet.
    pub(super) reserved: HashMap<u32, Extents>,
    /// The most bytes, without holes, by which linked files exceeded those at the start.
    pub peak_bytes: i64,
}

impl<'a> World<'a> {
    pub fn new(plan: &'a Plan) -> Self {
        let names = Names::new(plan);
        let n = names.len();
        let entries = plan.entries();
        let at = |(index, entry): (usize, &PlanEntry)| (entry.path, index as u32);
        let ino = |(index, entry): (usize, &PlanEntry)| (entry.ino, index as u32);
        let known = |(_, entry): &(usize, &PlanEntry)| entry.ino != 0;
        let passes = passed::find(plan);
        let mut world = Self {
            evidence: Evidence::gather(plan, &names),
            first_name: HashMap::new(),
            full: Vec::new(),
            names,
            slots: vec![Slot::Unknown; n],
            initial: vec![Slot::Unknown; n],
            objects: Vec::with_capacity(n),
            reached: vec![false; n],
            by_ino: HashMap::with_capacity(n),
            reborn_ns: HashMap::new(),
            entries,
            entry_at: entries.iter().enumerate().map(at).collect(),
            entry_of_ino: entries.iter().enumerate().filter(known).map(ino).collect(),
            threads: plan.threads(),
            processes: Processes::new(plan.threads()),
            descriptors: Descriptors::default(),
            pass_at: passes.iter().map(|pass| (pass.used, *pass)).collect(),
            given: passes.iter().map(|pass| pass.opened).collect(),
            passes,
            live_bytes: 0,
            listed: listings::listed(plan),
            changes: Vec::new(),
            xattrs: Xattrs::default(),
            dirtied: HashMap::new(),
            reserved: HashMap::new(),
            peak_bytes: 0,
        };
        world.show_xattrs(plan);
        world.start(plan);
        world
    }

    pub fn object(&self, index: u32) -> &Object {
        &self.objects[index as usize]
    }

    pub fn object_mut(&mut self, index: u32) -> &mut Object {
        &mut self.objects[index as usize]
    }

    pub fn slot(&self, path: u32) -> Slot {
        self.slots
            .get(path as usize)
            .copied()
            .unwrap_or(Slot::Absent)
    }

    /// Returns whether a name fits what a call needs; `None` if nothing is known of it yet.
    pub fn meets(&self, path: u32, need: Need) -> Option<bool> {
        match (self.slot(path), need) {
            (_, Need::Any) => Some(true),
            (Slot::Unknown, _) => None,
            (Slot::Absent, need) => Some(need == Need::Absent),
            (Slot::Present(_), Need::Absent) => Some(false),
            (Slot::Present(object), Need::Present(ino)) => Some(self.is(object, ino)),
            (Slot::Present(object), Need::File) => Some(!self.object(object).is_directory()),
            (Slot::Present(object), _) if !self.object(object).is_directory() => Some(false),
            (Slot::Present(_), Need::Full) => Some(self.holds_any(path) != Some(false)),
            (Slot::Present(_), Need::Empty) => Some(self.holds_any(path) != Some(true)),
            (Slot::Present(_), Need::Directory) => Some(true),
        }
    }

    /// Returns whether a directory has names in it; `None` if it may have unknown ones.
    fn holds_any(&self, directory: u32) -> Option<bool> {
        let slots = self.names.directly_below(directory);
        if slots
            .into_iter()
            .any(|path| matches!(self.slot(path), Slot::Present(_)))
        {
            return Some(true);
        }
        let made = |object: u32| !self.object(object).initial;
        matches!(self.slot(directory), Slot::Present(object) if made(object)).then_some(false)
    }

    fn is(&self, object: u32, ino: u64) -> bool {
        let object = self.object(object);
        let link = object.now.mode & libc::S_IFMT == libc::S_IFLNK;
        ino == 0 || object.ino == 0 || object.ino == ino || link
    }

    /// Returns whether the inode number of an object belongs to another one by now. The object has
    /// no name any more, but in the order in which operations end that may not be known yet.
    pub fn is_gone(&self, object: u32) -> bool {
        let ino = self.object(object).ino;
        ino != 0 && self.by_ino.get(&ino) != Some(&object)
    }

    /// Returns whether an operation that names an inode number surely means its present object.
    pub fn means_the_last(&self, op: &PlanOp, ino: u64) -> bool {
        let born_ns = self.reborn_ns.get(&ino);
        born_ns.is_none_or(|born_ns| *born_ns <= op.start_ns)
    }

    /// Returns the object an operation works on: by inode number, else by name. If the object with
    /// that number has lost its last name, an object of unknown number at the name goes first: the
    /// number was given again to it.
    pub fn target_of(&self, op: &PlanOp) -> Option<u32> {
        let known = self.by_ino.get(&op.ino).filter(|_| op.ino != 0).copied();
        if known.is_some_and(|object| self.object(object).nlink > 0) {
            return known;
        }
        let named = match self.slot(op.path) {
            Slot::Present(object) if op.path != NONE => Some(object),
            _ => None,
        };
        let told = named.filter(|at| semantics::uses_path(op) && self.object(*at).ino == 0);
        told.or(known)
            .or_else(|| self.held_by(op))
            .or(named.filter(|_| op.ino == 0))
    }

    /// Returns the object of an operation's descriptor, if its inode number is not known: it was
    /// open at the start.
    fn held_by(&self, op: &PlanOp) -> Option<u32> {
        let fd = match semantics::is_empty_path(op) {
            true => op.dirfd,
            false => op.fd,
        };
        let held = self.descriptors.get(self.leader(op.thread), fd).object?;
        (!semantics::uses_path(op) && self.object(held).ino == 0).then_some(held)
    }

    pub(super) fn add(&mut self, ino: u64, first: Attributes, target: u32) -> u32 {
        let index = self.objects.len() as u32;
        self.objects.push(Object {
            ino,
            first,
            now: first,
            nlink: 0,
            target,
            written: Extents::default(),
            filled: 0,
            holes: None,
            changed: false,
            blurred: false,
            unsized_: false,
            initial: false,
            guessed: false,
            tentative: false,
            at_most: false,
        });
        if ino != 0 {
            self.by_ino.insert(ino, index);
        }
        index
    }

    /// Puts a new object at a name, or keeps the one that is there.
    pub fn create(&mut self, op: &PlanOp, path: u32) {
        let replaced = match self.slot(path) {
            Slot::Present(object) if self.is(object, op.ino) => {
                self.learn_ino(object, op.ino);
                return;
            }
            Slot::Present(object) => Some(object),
            _ => None,
        };
        if let Some(object) = replaced {
            let replaced = self.object_mut(object);
            replaced.nlink = replaced.nlink.saturating_sub(1);
        }
        let first = self.new_attributes(op, path);
        let target = if semantics::kind(op) == Kind::Symlink {
            op.path2
        } else {
            NONE
        };
        if self.by_ino.contains_key(&op.ino) {
            self.reborn_ns.insert(op.ino, op.end_ns);
        }
        let object = self.add(op.ino, first, target);
        self.object_mut(object).nlink = 1;
        self.put(path, Slot::Present(object));
    }

    /// Changes what a name leads to, and notes if a listed name came or went.
    pub(super) fn put(&mut self, path: u32, slot: Slot) {
        let before = std::mem::replace(&mut self.slots[path as usize], slot);
        let (Slot::Present(object), came) = (match (before, slot) {
            (Slot::Present(_), Slot::Present(_)) => return,
            (Slot::Present(_), _) => (before, false),
            _ => (slot, true),
        }) else {
            return;
        };
        if self.listed.is_empty() {
            return;
        }
        let directory = self.names.directory(path);
        if let Some(Slot::Present(above)) = directory.map(|above| self.slot(above)) {
            let mode = self.object(above).now.mode;
            self.names.unsure |= mode & libc::S_IFMT == libc::S_IFLNK;
        }
        let mode = self.object(object).now.mode;
        let listed = directory.is_some_and(|directory| self.listed.contains(&directory));
        if listed && listings::is_shown(&self.names, path, mode) {
            self.changes.push((path, came));
        }
    }

    pub(super) fn learn_ino(&mut self, object: u32, ino: u64) {
        if ino != 0 && self.object(object).ino == 0 {
            self.object_mut(object).ino = ino;
            self.by_ino.insert(ino, object);
        }
    }

    fn new_attributes(&self, op: &PlanOp, path: u32) -> Attributes {
        let (uid, own_gid) = self.processes.ids(op.thread);
        let kind = match semantics::kind(op) {
            Kind::Mkdir => libc::S_IFDIR,
            Kind::Symlink => libc::S_IFLNK,
            Kind::Mknod if op.mode & libc::S_IFMT != 0 => op.mode & libc::S_IFMT,
            _ => libc::S_IFREG,
        };
        let parent = self
            .names
            .parent(path)
            .map(|parent| self.attributes_at(parent));
        let setgid = parent
            .flatten()
            .filter(|parent| parent.mode & libc::S_ISGID != 0);
        let inherited = match kind {
            libc::S_IFDIR if setgid.is_some() => libc::S_ISGID,
            _ => 0,
        };
        let asked = if kind == libc::S_IFLNK {
            0o777
        } else {
            op.mode & 0o7777 & !self.processes.umask(op.thread)
        };
        let told = u32::from(op.obj_mode);
        let mode = match semantics::kind(op) {
            Kind::Open if told & libc::S_IFMT == kind => told,
            _ => kind | asked | inherited,
        };
        let gid = setgid.map_or(own_gid, |parent| parent.gid);
        Attributes {
            mode,
            uid,
            gid,
            size: 0,
            mtime_ns: 0,
        }
    }

    fn attributes_at(&self, path: u32) -> Option<Attributes> {
        match self.slot(path) {
            Slot::Present(object) => Some(self.object(object).now),
            Slot::Absent => None,
            Slot::Unknown => {
                let at = *self.entry_at.get(&path)?;
                Some(Attributes::of_entry(&self.entries[at as usize]))
            }
        }
    }

    pub fn remove(&mut self, path: u32) {
        if let Slot::Present(number) = self.slot(path) {
            let object = self.object_mut(number);
            object.nlink = object.nlink.saturating_sub(1);
            if object.nlink == 0 && semantics::is_regular(object.now.mode) {
                let takes = object.takes();
                let reserved = self.reserved.remove(&number).map_or(0, |room| room.bytes());
                self.live_bytes = self
                    .live_bytes
                    .saturating_sub(takes.saturating_add(reserved));
            }
        }
        self.put(path, Slot::Absent);
    }

    pub fn link(&mut self, op: &PlanOp) {
        match self.slot(op.path) {
            Slot::Present(object) => {
                self.object_mut(object).nlink += 1;
                self.put(op.path2, Slot::Present(object));
            }
            _ => self.create(op, op.path2),
        }
    }

    pub fn appends(&self, op: &PlanOp) -> bool {
        self.descriptors.get(self.leader(op.thread), op.fd).appends
    }

    /// Follows what an operation does to descriptors.
    pub fn track_fd(&mut self, at: u32, op: &PlanOp) {
        let leader = self.leader(op.thread);
        let object = match semantics::kind(op) {
            Kind::Open => self.target_of(op),
            _ => None,
        };
        let ends = self.processes.is_last(op.thread);
        self.descriptors.track(op, leader, object, ends);
        if semantics::kind(op) == Kind::Open && self.given.contains(&at) {
            self.descriptors.give(leader, op.ret as i32, at);
        }
    }

    /// Returns what opened the descriptor that `op` got from another process and is first to use.
    pub fn take_fd(&mut self, at: u32, op: &PlanOp) -> Option<u32> {
        let pass = *self.pass_at.get(&at)?;
        let leader = self.leader(op.thread);
        self.descriptors.take(leader, pass.fd, pass.opened);
        Some(pass.opened)
    }

    pub fn inherit_fds(&mut self, parent: u32, child: u32) {
        let (parent, child) = (self.leader(parent), self.leader(child));
        self.descriptors.inherit(parent, child);
    }

    /// Returns the open file whose position a call uses, if processes share it.
    pub fn shared_position(&self, op: &PlanOp) -> Option<u32> {
        let known = self.descriptors.get(self.leader(op.thread), op.fd);
        known.file.filter(|file| self.descriptors.is_shared(*file))
    }

    /// As `shared_position`, also if threads of one process share it: a Go program goes on with a
    /// file in whatever thread comes next.
    pub fn position_of_several(&self, op: &PlanOp) -> Option<u32> {
        match self.processes.is_threaded(op.thread) {
            true => self.descriptors.get(self.leader(op.thread), op.fd).file,
            false => self.shared_position(op),
        }
    }

    /// Returns the entry of a name in the snapshot.
    pub fn snapshot_entry(&self, path: u32) -> Option<&PlanEntry> {
        self.entry_at
            .get(&path)
            .map(|at| &self.entries[*at as usize])
    }

    /// The entry of an object that was there at the beginning.
    pub fn first_entry(&self, object: u32) -> Option<&PlanEntry> {
        self.snapshot_entry(*self.first_name.get(&object)?)
    }

    /// A name that an inode has in the snapshot.
    pub fn shown_name(&self, ino: u64) -> Option<u32> {
        let entry = self.entry_of_ino.get(&ino)?;
        Some(self.entries[*entry as usize].path)
    }

    pub fn snapshot_ino(&self, path: u32) -> Option<u64> {
        self.snapshot_entry(path).map(|entry| entry.ino)
    }

    /// Returns the inode that a rename or link is about, as far as it is known.
    ///
    /// A source that no operation touched before and that the snapshot lacks was moved before the
    /// snapshot was taken there: the object that the snapshot shows at the target is the moved one.
    pub fn moved_ino(&self, op: &PlanOp) -> u64 {
        match self.slot(op.path) {
            Slot::Present(object) if self.object(object).ino != 0 => self.object(object).ino,
            Slot::Unknown if op.ino == 0 && op.path2 != NONE => {
                let unknown = self.slot(op.path2) == Slot::Unknown;
                let target = || self.snapshot_ino(op.path2).filter(|_| unknown);
                self.snapshot_ino(op.path).or_else(target).unwrap_or(0)
            }
            _ => op.ino,
        }
    }

    pub fn leader(&self, thread: u32) -> u32 {
        self.processes.leader(thread)
    }

    /// Returns whether a process has a descriptor of this number.
    pub fn is_open(&self, process: u32, fd: i32) -> bool {
        self.descriptors.get(process, fd).file.is_some()
    }

    /// The descriptors of its process that an operation closes.
    pub fn closed_by(&self, op: &PlanOp) -> SmallVec<[i32; 2]> {
        let ends = self.processes.is_last(op.thread);
        self.descriptors.closed_by(op, self.leader(op.thread), ends)
    }

    /// Snapshot entries that no operation touched and that had a place to be.
    pub fn untouched(&self) -> impl Iterator<Item = &PlanEntry> {
        self.entries.iter().filter(|entry| {
            let above = self.names.ancestors(entry.path);
            self.initial[entry.path as usize] == Slot::Unknown
                && above
                    .iter()
                    .all(|path| self.initial[*path as usize] != Slot::Absent)
        })
    }
}
