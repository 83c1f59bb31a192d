//! The spool as it must have been: names, objects and locks, step by step.

use smallvec::SmallVec;
use spoolscope_traces::records::{NONE, PlanEntry, PlanOp, PlanThread};

use crate::model::state::descriptors::{Descriptor, Descriptors};
use crate::model::state::evidence::Evidence;
use crate::model::state::inode_attributes::Attributes;
use crate::model::state::listed::{self, Listed};
use crate::model::state::names::Names;
use crate::model::state::objects::Object;
use crate::model::state::passed_on::{Pass, Passes};
use crate::model::state::population::Objects;
use crate::model::state::processes::Processes;
use crate::model::state::recorded_tree::RecordedTree;
use crate::model::state::slots::{Slot, Slots};
use crate::model::state::space::Space;
use crate::model::state::xattrs::Xattrs;
use crate::plan::Plan;
use crate::semantics::{self, Kind};
use crate::touches::Need;

/// Names and objects at one point of the linearised trace.
#[derive(Debug)]
pub struct World<'a> {
    pub(super) names: Names<'a>,
    pub(super) slots: Slots,
    pub(super) objects: Objects,
    pub(super) recorded: RecordedTree<'a>,
    pub(super) evidence: Evidence,
    pub(super) xattrs: Xattrs,
    pub(super) space: Space,
    listed: Listed,
    pub(super) threads: &'a [PlanThread],
    pub(super) processes: Processes,
    pub(super) descriptors: Descriptors,
    passes: Passes,
    /// Directories that were not empty for an unknown reason, and how many names in them were
    /// known.
    pub(super) full: Vec<(u32, usize)>,
    /// No call is left out on purpose: what no call explains was done by one that is not recorded.
    pub(super) is_whole: bool,
}

impl<'a> World<'a> {
    pub fn new(plan: &'a Plan) -> Self {
        let names = Names::new(plan);
        let n = names.len();
        let mut world = Self {
            evidence: Evidence::gather(plan, &names),
            names,
            slots: Slots::new(n),
            objects: Objects::with_capacity(n),
            recorded: RecordedTree::of(plan),
            xattrs: Xattrs::default(),
            space: Space::default(),
            listed: Listed::of(plan),
            threads: plan.threads(),
            processes: Processes::new(plan.threads()),
            descriptors: Descriptors::default(),
            passes: Passes::of(plan),
            full: Vec::new(),
            is_whole: plan.is_whole(),
        };
        world.show_xattrs(plan);
        world.start(plan);
        world
    }

    pub fn names(&self) -> &Names<'a> {
        &self.names
    }

    pub fn slots(&self) -> &Slots {
        &self.slots
    }

    pub fn objects(&self) -> &Objects {
        &self.objects
    }

    pub fn recorded(&self) -> &RecordedTree<'a> {
        &self.recorded
    }

    pub fn processes(&self) -> &Processes {
        &self.processes
    }

    pub fn descriptors(&self) -> &Descriptors {
        &self.descriptors
    }

    pub fn space(&self) -> &Space {
        &self.space
    }

    pub fn listed(&self) -> &Listed {
        &self.listed
    }

    /// Returns the names that came (true) or went in listed directories since the last time.
    pub fn take_changes(&mut self) -> Vec<(u32, bool)> {
        self.listed.take_changes()
    }

    /// Returns open files that are passed between processes, in order of use.
    pub fn take_passes(&mut self) -> Vec<Pass> {
        self.passes.take()
    }

    pub fn object(&self, index: u32) -> &Object {
        self.objects.get(index)
    }

    pub fn object_mut(&mut self, index: u32) -> &mut Object {
        self.objects.get_mut(index)
    }

    pub fn slot(&self, path: u32) -> Slot {
        self.slots.get(path)
    }

    /// Returns the id of a name, made if it is new.
    pub(super) fn intern(&mut self, name: Vec<u8>) -> u32 {
        let name = self.names.intern(name);
        self.slots.grow(self.names.len());
        name
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
        if slots.into_iter().any(|path| self.slots.is_present(path)) {
            return Some(true);
        }
        let made = |object: u32| !self.object(object).was_there();
        matches!(self.slot(directory), Slot::Present(object) if made(object)).then_some(false)
    }

    fn is(&self, object: u32, ino: u64) -> bool {
        let object = self.object(object);
        ino == 0 || object.ino() == 0 || object.ino() == ino || object.is_symlink()
    }

    /// Returns the object an operation works on: by inode number, else by name. If the object with
    /// that number has lost its last name, an object of unknown number at the name goes first: the
    /// number was given again to it.
    pub fn target_of(&self, op: &PlanOp) -> Option<u32> {
        let known = self.objects.of_ino(op.ino).filter(|_| op.ino != 0);
        let linked = known.is_some_and(|object| self.object(object).is_linked());
        if linked || semantics::makes_nameless(op) {
            return known;
        }
        let named = match self.slot(op.path) {
            Slot::Present(object) if op.path != NONE => Some(object),
            _ => None,
        };
        let nameless = |at: &u32| semantics::uses_path(op) && self.object(*at).ino() == 0;
        named
            .filter(nameless)
            .or(known)
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
        let held = self.descriptor(op, fd).object?;
        (!semantics::uses_path(op) && self.object(held).ino() == 0).then_some(held)
    }

    /// Puts a new object at a name, or keeps the one that is there.
    pub fn create(&mut self, op: &PlanOp, path: u32) {
        let replaced = match self.slot(path) {
            Slot::Present(object) if self.is(object, op.ino) => {
                self.objects.learn_ino(object, op.ino);
                return;
            }
            Slot::Present(object) => Some(object),
            _ => None,
        };
        if let Some(object) = replaced {
            self.object_mut(object).unlink();
        }
        let first = self.new_attributes(op, self.names.parent(path));
        let target = if semantics::kind(op) == Kind::Symlink {
            op.path2
        } else {
            NONE
        };
        self.objects.note_birth(op);
        let object = self.objects.add(Object::made(op.ino, first, target));
        self.object_mut(object).link();
        self.object_mut(object).set_mode_at(op.end_ns);
        self.put(path, Slot::Present(object));
    }

    /// Makes the file without a name of an operation that names its directory.
    pub fn create_nameless(&mut self, op: &PlanOp) {
        let first = self.new_attributes(op, Some(op.path));
        self.objects.note_birth(op);
        let object = self.objects.add(Object::made(op.ino, first, NONE));
        self.object_mut(object).set_mode_at(op.end_ns);
    }

    /// Changes what a name leads to, and notes if a listed name came or went.
    pub(in crate::model) fn put(&mut self, path: u32, slot: Slot) {
        let before = self.slots.set(path, slot);
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
            self.names.unsure |= self.object(above).is_symlink();
        }
        let mode = self.object(object).mode();
        let listed = directory.is_some_and(|directory| self.listed.has(directory));
        if listed && listed::is_shown(&self.names, path, mode) {
            self.listed.note(path, came);
        }
    }

    fn new_attributes(&self, op: &PlanOp, parent: Option<u32>) -> Attributes {
        let (uid, own_gid) = self.processes.ids(op.thread);
        let kind = match semantics::kind(op) {
            Kind::Mkdir => libc::S_IFDIR,
            Kind::Symlink => libc::S_IFLNK,
            Kind::Mknod if op.mode & libc::S_IFMT != 0 => op.mode & libc::S_IFMT,
            _ => libc::S_IFREG,
        };
        let setgid = parent
            .and_then(|parent| self.attributes_at(parent))
            .filter(|parent| parent.mode & libc::S_ISGID != 0);
        let inherited = match kind {
            libc::S_IFDIR if setgid.is_some() => libc::S_ISGID,
            _ => 0,
        };
        let masked = op.mode & !self.processes.umask(op.thread);
        let asked = match kind {
            libc::S_IFLNK => 0o777,
            // mkdir ignores set-id bits.
            libc::S_IFDIR => masked & 0o1777,
            _ => masked & 0o7777,
        };
        let shown = u32::from(op.obj_mode);
        let mode = match semantics::kind(op) {
            Kind::Open if shown & libc::S_IFMT == kind => shown,
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
            Slot::Present(object) => Some(self.object(object).attributes()),
            Slot::Absent => None,
            Slot::Unknown => self.recorded.at(path).map(Attributes::of_entry),
        }
    }

    pub fn remove(&mut self, path: u32) {
        if let Slot::Present(number) = self.slot(path) {
            let object = self.object_mut(number);
            object.unlink();
            if !object.is_linked() && semantics::is_regular(object.mode()) {
                let takes = object.takes();
                self.space.lose(number, takes);
            }
        }
        self.put(path, Slot::Absent);
    }

    pub fn link(&mut self, op: &PlanOp) {
        let named = match self.slot(op.path) {
            Slot::Present(object) => Some(object),
            _ => None,
        };
        let held = semantics::links_descriptor(op)
            .then(|| self.descriptor(op, op.dirfd).object)
            .flatten()
            .filter(|held| op.ino != 0 && self.object(*held).ino() == op.ino);
        match held.or(named) {
            Some(object) => {
                let entry = self.object(object);
                if !entry.is_linked() {
                    let takes = entry.takes();
                    self.space.grow(takes); // see `remove`
                }
                self.object_mut(object).link();
                self.put(op.path2, Slot::Present(object));
            }
            _ => self.create(op, op.path2),
        }
    }

    /// Returns what is known of a descriptor in the process of an operation.
    pub fn descriptor(&self, op: &PlanOp, fd: i32) -> Descriptor {
        self.descriptors.get(self.leader(op.thread), fd)
    }

    pub fn appends(&self, op: &PlanOp) -> bool {
        self.descriptors.appends(self.leader(op.thread), op.fd)
    }

    /// Follows what an operation does to descriptors.
    pub fn track_fd(&mut self, at: u32, op: &PlanOp) {
        let leader = self.leader(op.thread);
        let object = match semantics::kind(op) {
            Kind::Open => self.target_of(op),
            _ => None,
        };
        let ends = self.processes.is_last(op.thread);
        self.descriptors.track((at, op), leader, object, ends);
        if semantics::kind(op) == Kind::Open && self.passes.are_given(at) {
            self.descriptors.give(leader, op.ret as i32, at);
        }
    }

    /// Returns what opened the descriptor that `op` got from another process and is first to use.
    pub fn take_fd(&mut self, at: u32, op: &PlanOp) -> Option<u32> {
        let pass = self.passes.first_used_by(at)?;
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
        let known = self.descriptor(op, op.fd);
        known.file.filter(|file| self.descriptors.is_shared(*file))
    }

    /// As `shared_position`, also if threads of one process share it: a Go program goes on with a
    /// file in whatever thread comes next.
    pub fn position_of_several(&self, op: &PlanOp) -> Option<u32> {
        match self.processes.is_threaded(op.thread) {
            true => self.descriptor(op, op.fd).file,
            false => self.shared_position(op),
        }
    }

    /// The entry of an object that was there at the beginning.
    pub fn first_entry(&self, object: u32) -> Option<&PlanEntry> {
        self.recorded.at(self.slots.first_name(object)?)
    }

    /// Returns the inode that a rename or link is about, as far as it is known.
    ///
    /// A source that no operation touched before and that the snapshot lacks was moved before the
    /// snapshot was taken there: the object that the snapshot shows at the target is the moved one.
    pub fn moved_ino(&self, op: &PlanOp) -> u64 {
        match self.slot(op.path) {
            Slot::Present(object) if self.object(object).ino() != 0 => self.object(object).ino(),
            Slot::Unknown if op.ino == 0 && op.path2 != NONE => {
                let ino = |path| self.recorded.at(path).map(|entry| entry.ino);
                let unknown = self.slots.is_unknown(op.path2);
                let target = || ino(op.path2).filter(|_| unknown);
                ino(op.path).or_else(target).unwrap_or(0)
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
        let was = |path: u32| self.slots.at_start()[path as usize];
        self.recorded.entries().iter().filter(move |entry| {
            let above = self.names.ancestors(entry.path);
            was(entry.path) == Slot::Unknown && above.iter().all(|path| was(*path) != Slot::Absent)
        })
    }
}
