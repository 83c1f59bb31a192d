//! Holders of locked bytes of files, so that locks are taken again in the recorded order.

use foldhash::HashMap;
use serde::{Deserialize, Serialize};
use smallvec::SmallVec;
use spoolscope_traces::records::PlanOp;
use std::collections::BTreeSet;
use std::collections::hash_map::Entry;

use crate::model::state::descriptors::Descriptor;
use crate::model::state::world::World;
use crate::semantics::{self, Kind, Lock};

/// A locked file: its inode, or if the trace has none the object that its descriptor leads to.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
enum File {
    Inode(u64),
    Object(u32),
}

impl File {
    fn is_of(self, open: Descriptor, world: &World) -> bool {
        open.object.is_some_and(|object| match self {
            Self::Inode(ino) => world.object(object).ino() == ino,
            Self::Object(own) => own == object,
        })
    }
}

/// The flock and fcntl locks of one file do not affect each other.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct LockKey {
    file: File,
    flock: bool,
}

impl LockKey {
    /// The inode of the file, if the trace has it.
    pub fn ino(&self) -> Option<u64> {
        match self.file {
            File::Inode(ino) => Some(ino),
            File::Object(_) => None,
        }
    }

    /// Returns whether an operation may take or give up such a lock: it names no other file.
    pub fn may_be_changed_by(&self, op: &PlanOp) -> bool {
        let known = self.ino().filter(|_| op.ino != 0);
        match semantics::kind(op) {
            Kind::Fcntl | Kind::Flock => {
                let same = self.flock == (semantics::kind(op) == Kind::Flock);
                same && semantics::lock(op).is_some() && known.is_none_or(|ino| ino == op.ino)
            }
            kind => semantics::may_close(kind),
        }
    }
}

/// POSIX locks belong to a process, the others to an open file, which processes may share.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Owner {
    /// The leader thread; also in place of an open file whose open was not seen.
    Process(u32),
    OpenFile(u32),
}

/// A lock held, or asked for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Hold {
    pub key: LockKey,
    owner: Owner,
    /// The first byte, and the one after the last.
    pub bytes: (i64, i64),
    pub exclusive: bool,
}

impl Hold {
    pub fn overlaps(&self, other: &Self) -> bool {
        self.key == other.key && self.bytes.0 < other.bytes.1 && other.bytes.0 < self.bytes.1
    }

    pub fn covers(&self, other: &Self) -> bool {
        self.key == other.key && self.bytes.0 <= other.bytes.0 && other.bytes.1 <= self.bytes.1
    }

    pub fn same_owner(&self, other: &Self) -> bool {
        self.owner == other.owner
    }

    /// Returns whether the two cannot be held at once.
    pub fn excludes(&self, other: &Self) -> bool {
        !self.same_owner(other) && (self.exclusive || other.exclusive) && self.overlaps(other)
    }

    /// Returns what identifies the lock, and its owner.
    pub fn held_by(&self) -> (LockKey, Owner) {
        (self.key, self.owner)
    }

    pub fn is_flock(&self) -> bool {
        self.key.flock
    }

    /// Returns whether a descriptor leads to the locked file.
    pub fn is_of(&self, open: Descriptor, world: &World) -> bool {
        self.key.file.is_of(open, world)
    }

    /// Returns the parts of the lock outside `bytes`.
    fn without(self, bytes: (i64, i64)) -> impl Iterator<Item = Self> {
        let (from, to) = self.bytes;
        let rest = [(from, to.min(bytes.0)), (from.max(bytes.1), to)];
        let rest = rest.into_iter().filter(|(from, to)| from < to);
        rest.map(move |bytes| Self { bytes, ..self })
    }
}

/// The effect of an operation on a lock.
#[derive(Clone, Copy, Debug)]
pub struct Change {
    pub hold: Hold,
    pub role: Lock,
    /// The operation may sleep until the lock is free.
    pub blocks: bool,
    /// Its owner had some of these bytes locked already.
    pub converts: bool,
    /// Its owner had some of these bytes for itself alone, and shares them from now on.
    pub yields: bool,
}

/// Open files with locks whose descriptors are closed; true if these are the last.
pub type Closed = SmallVec<[(u32, bool); 2]>;

impl Change {
    /// Returns the open file whose lock is given up.
    pub fn ends_for(&self) -> Option<u32> {
        match self.hold.owner {
            Owner::OpenFile(file) if self.role == Lock::Release => Some(file),
            _ => None,
        }
    }
}

/// All locks that are held.
#[derive(Debug, Default)]
pub struct Locks {
    held: HashMap<LockKey, Vec<Hold>>,
    of_owner: HashMap<Owner, BTreeSet<LockKey>>,
}

impl Locks {
    /// Returns whether a lock's result agrees with known holders; unknown ones contradict nothing.
    pub fn fits(&self, op: &PlanOp, world: &World) -> bool {
        let Some((asked, role)) = asked(op, world) else {
            return true;
        };
        let taken = || self.held(asked.key).any(|held| held.excludes(&asked));
        match role {
            Lock::Exclusive | Lock::Shared => !taken(),
            Lock::Refused => !was_refused(op) || taken(),
            Lock::Release => true,
        }
    }

    fn held(&self, key: LockKey) -> impl Iterator<Item = &Hold> {
        self.held.get(&key).into_iter().flatten()
    }

    /// Returns whether `cause` gives up the lock that `op` got, or takes the one it was refused.
    pub fn explained_by(&self, op: &PlanOp, cause: &PlanOp, world: &World) -> bool {
        let Some((wanted, _)) = asked(op, world).filter(|_| !self.fits(op, world)) else {
            return false;
        };
        match was_refused(op) {
            true => asked(cause, world).is_some_and(|(hold, role)| {
                matches!(role, Lock::Exclusive | Lock::Shared) && hold.excludes(&wanted)
            }),
            false => self.gives_up(cause, &wanted, world),
        }
    }

    /// Returns whether `op` gives up the lock because of which `before` was refused.
    pub fn spoils(&self, op: &PlanOp, before: &PlanOp, world: &World) -> bool {
        let refused = matches!(semantics::lock(before), Some((Lock::Refused, _)));
        // A call that slept is refused in the end, whichever call held the lock before.
        if !refused || semantics::was_interrupted(before) {
            return false;
        }
        asked(before, world).is_some_and(|(wanted, _)| self.gives_up(op, &wanted, world))
    }

    fn gives_up(&self, op: &PlanOp, wanted: &Hold, world: &World) -> bool {
        let (given, _) = self.given_up(op, world);
        given.iter().any(|hold| hold.excludes(wanted))
    }

    /// Returns the locks that an operation ends, and the open files with locks that it closes.
    fn given_up(&self, op: &PlanOp, world: &World) -> (Vec<Hold>, Closed) {
        let process = world.leader(op.thread);
        match semantics::kind(op) {
            Kind::Fcntl | Kind::Flock => {
                let asked = asked(op, world).filter(|(_, role)| *role == Lock::Release);
                let given = asked.map(|(hold, _)| hold).into_iter().collect();
                (given, Closed::new())
            }
            _ if self.of_owner.is_empty() => (Vec::new(), Closed::new()),
            Kind::Exit if world.processes.is_last(op.thread) => {
                let mut given = self.all_of(Owner::Process(process));
                let closed = self.of_files(process, &world.closed_by(op), world, &mut given);
                (given, closed)
            }
            kind => {
                let fds = world.closed_by(op);
                if fds.is_empty() {
                    return (Vec::new(), Closed::new());
                }
                // Closing any descriptor of a file gives up the POSIX locks on it.
                let mut given = self.all_of(Owner::Process(process));
                let named = file(op, world).filter(|_| kind == Kind::Close);
                given.retain(|hold| {
                    let is_of = |fd: &i32| hold.is_of(world.descriptors.get(process, *fd), world);
                    Some(hold.key.file) == named || fds.iter().any(is_of)
                });
                let closed = self.of_files(process, &fds, world, &mut given);
                (given, closed)
            }
        }
    }

    /// Adds the locks of open files that no process has after these descriptors are closed; a child
    /// that has yet to become another program counts as a process.
    fn of_files(&self, process: u32, fds: &[i32], world: &World, given: &mut Vec<Hold>) -> Closed {
        let mut closed = Closed::new();
        for (file, last) in world.descriptors.files_of(process, fds) {
            let owner = Owner::OpenFile(file);
            if self.of_owner.contains_key(&owner) {
                closed.push((file, last));
                given.extend(last.then(|| self.all_of(owner)).into_iter().flatten());
            }
        }
        closed
    }

    /// Returns the locks of an owner.
    pub fn all_of(&self, owner: Owner) -> Vec<Hold> {
        let keys = self.of_owner.get(&owner).into_iter().flatten();
        let held = keys.flat_map(|key| self.held(*key));
        held.filter(|hold| hold.owner == owner).copied().collect()
    }

    /// Takes or gives up locks. Returns the changes, and what was closed of open files with locks.
    pub fn apply(&mut self, op: &PlanOp, world: &World) -> (Vec<Change>, Closed) {
        let taken = asked(op, world).filter(|(_, role)| *role != Lock::Release);
        let Some((hold, role)) = taken else {
            let (given_up, closed) = self.given_up(op, world);
            given_up.iter().for_each(|hold| self.remove(hold));
            let change = |hold| Change {
                hold,
                role: Lock::Release,
                blocks: false,
                converts: false,
                yields: false,
            };
            return (given_up.into_iter().map(change).collect(), closed);
        };
        let own = |held: &Hold| held.same_owner(&hold) && held.overlaps(&hold);
        let converts = self.held(hold.key).any(own);
        let alone = |held: &Hold| own(held) && held.exclusive;
        let yields = role == Lock::Shared && self.held(hold.key).any(alone);
        if role != Lock::Refused {
            self.remove(&hold);
            self.held.entry(hold.key).or_default().push(hold);
            self.of_owner
                .entry(hold.owner)
                .or_default()
                .insert(hold.key);
        }
        let blocks = semantics::lock(op).is_some_and(|(_, blocks)| blocks);
        let change = Change {
            hold,
            role,
            blocks,
            converts,
            yields,
        };
        (vec![change], Closed::new())
    }

    fn remove(&mut self, gone: &Hold) {
        let Some(held) = self.held.get_mut(&gone.key) else {
            return;
        };
        let rest = |hold: Hold| match hold.same_owner(gone) {
            true => hold.without(gone.bytes).collect(),
            false => vec![hold],
        };
        *held = held.drain(..).flat_map(rest).collect();
        if !held.iter().any(|hold| hold.same_owner(gone)) {
            if let Entry::Occupied(mut keys) = self.of_owner.entry(gone.owner) {
                keys.get_mut().remove(&gone.key);
                if keys.get().is_empty() {
                    keys.remove();
                }
            }
        }
    }
}

/// Returns whether a try failed because the lock was held, or a sleep for the lock ended before it
/// was free or could not begin.
pub fn was_refused(op: &PlanOp) -> bool {
    let tried = op.ret == -i64::from(libc::EAGAIN) || op.ret == -i64::from(libc::EACCES);
    tried || semantics::was_interrupted(op) || semantics::was_deadlock(op)
}

/// Returns the lock that an fcntl or flock call is about, if its file is known.
fn asked(op: &PlanOp, world: &World) -> Option<(Hold, Lock)> {
    let (role, _) = semantics::lock(op)?;
    let flock = semantics::kind(op) == Kind::Flock;
    let process = world.leader(op.thread);
    let open = world.descriptors.get(process, op.fd).file;
    let by_file = flock || matches!(op.cmd, libc::F_OFD_SETLK | libc::F_OFD_SETLKW);
    let hold = Hold {
        key: LockKey {
            file: file(op, world)?,
            flock,
        },
        owner: match open.filter(|_| by_file) {
            Some(open) => Owner::OpenFile(open),
            None => Owner::Process(process),
        },
        bytes: if flock { WHOLE } else { bytes(op) },
        exclusive: match role {
            Lock::Exclusive | Lock::Release => true,
            Lock::Shared => false,
            Lock::Refused => !semantics::asks_shared(op),
        },
    };
    Some((hold, role))
}

fn file(op: &PlanOp, world: &World) -> Option<File> {
    if op.ino != 0 {
        return Some(File::Inode(op.ino));
    }
    let known = world.descriptor(op, op.fd);
    known.object.map(File::Object)
}

const WHOLE: (i64, i64) = (0, i64::MAX);

/// Returns the bytes of an fcntl lock: all, if they count from a position that is not recorded.
fn bytes(op: &PlanOp) -> (i64, i64) {
    let (start, length) = (op.offset, op.size);
    match i32::from(op.lock_whence) {
        libc::SEEK_SET if start >= 0 && length > 0 => (start, start.saturating_add(length)),
        libc::SEEK_SET if start >= 0 && length == 0 => (start, i64::MAX),
        libc::SEEK_SET if start > 0 && length < 0 => (start.saturating_add(length).max(0), start),
        _ => WHOLE,
    }
}
