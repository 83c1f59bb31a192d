//! Dependencies of each operation: the operations that made what its result shows.
//!
//! These are more than edges, which a thread needs only where another thread is to be waited for,
//! and fewer: a call that changes something waits for those that looked at it before, but does not
//! depend on them. A lock that was free again when it was asked for is not depended on, either.

use foldhash::HashMap;
use spoolscope_traces::records::{BASE_CWD, NONE, PlanOp};

use crate::grouped::grouped;
use crate::model::order::grants::Before;
use crate::model::order::keys::{Access, Key};
use crate::model::state::locks::{Change, LockKey, Owner};
use crate::model::state::world::World;
use crate::plan::Plan;
use crate::semantics::{self, Kind, Lock};

/// State that no edge is about, as only one process has it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
enum Own {
    /// Position and flags of an open file.
    File(u32),
    /// Parts of an inode that a process has mapped.
    Mapping(u32, u64),
    /// Working directory of a process.
    Cwd(u32),
}

/// Collects them during the walk.
#[derive(Debug, Default)]
pub struct Depends {
    /// (operation, one that it depends on), in the order of the walk.
    pairs: Vec<(u32, u32)>,
    /// Operations that close descriptors, each with those that made them.
    pub closers: Vec<(u32, Vec<u32>)>,
    /// Operations that took or gave up locks, by lock and owner; true: gave up.
    locks: HashMap<(LockKey, Owner), Vec<(u32, bool)>>,
    /// By lock, in the order of the walk: operations that gave it up, which took it, and owner.
    given_up: HashMap<LockKey, Vec<(u32, u32, Owner)>>,
    changed: HashMap<Own, Vec<u32>>,
    /// By operation, the one that made the descriptor that it works on, or NONE.
    opened: Vec<u32>,
    /// Operations that set or removed attributes, for calls that list them.
    of_whole: HashMap<Key, Vec<u32>>,
    /// By inode number, the operation that made the present object, by its place in the walk.
    born: HashMap<u64, u32>,
    /// The place of each operation in the walk.
    place: Vec<u32>,
    placed: u32,
}

impl Depends {
    /// Notes that `at` depends on `earlier`.
    pub fn note(&mut self, at: u32, earlier: u32) {
        if at != earlier {
            self.pairs.push((at, earlier));
        }
    }

    /// Begins an operation: descriptors that it uses or closes, positions, mappings.
    pub fn begin(&mut self, at: u32, op: &PlanOp, world: &World) {
        if self.place.len() <= at as usize {
            self.place.resize(at as usize + 1, u32::MAX);
            self.opened.resize(at as usize + 1, NONE);
        }
        self.place[at as usize] = self.placed;
        self.placed += 1;
        let process = world.leader(op.thread);
        for fd in [op.fd, op.fd2, op.dirfd, op.dirfd2] {
            if let Some(made) = world.descriptors().get(process, fd).made {
                self.note(at, made);
            }
        }
        if op.ret >= 0 && closes(op) {
            let closed = world.closed_by(op).into_iter();
            let made = closed.filter_map(|fd| world.descriptors().get(process, fd).made);
            self.closers.push((at, made.collect()));
        }
        let made = world.descriptors().get(process, op.fd).made;
        self.opened[at as usize] = made.unwrap_or(NONE);
        self.begin_in_cwd(at, op, world);
        if semantics::changes_open_file(op) {
            for fd in [op.fd, op.fd2] {
                if let Some(file) = world.descriptors().get(process, fd).file {
                    self.needs_all(at, Own::File(file));
                    self.changed.insert(Own::File(file), vec![at]);
                }
            }
        }
        let mapping = Own::Mapping(process, op.ino);
        match semantics::kind(op) {
            Kind::Map if op.ret >= 0 => self.changed.entry(mapping).or_default().push(at),
            Kind::Fault | Kind::Unmap | Kind::Msync => self.needs_all(at, mapping),
            _ => {}
        }
        if semantics::is_birth(op) && op.ino != 0 {
            self.born.insert(op.ino, at);
        }
    }

    /// Follows working directories: a process inherits that of the one that forked it.
    fn begin_in_cwd(&mut self, at: u32, op: &PlanOp, world: &World) {
        let process = world.leader(op.thread);
        let relative = [op.base, op.base2].map(semantics::base).contains(&BASE_CWD);
        let kind = semantics::kind(op);
        let moves = op.ret >= 0 && matches!(kind, Kind::Chdir | Kind::Fchdir);
        let forks = kind == Kind::Fork && op.arg != i64::from(NONE);
        if relative || moves || forks {
            self.needs_all(at, Own::Cwd(process));
        }
        if moves {
            self.changed.insert(Own::Cwd(process), vec![at]);
        }
        if forks {
            let child = world.leader(op.arg as u32);
            if child != process {
                self.changed.insert(Own::Cwd(child), vec![at]);
            }
        }
    }

    fn needs_all(&mut self, at: u32, own: Own) {
        let changed = self.changed.get(&own).into_iter().flatten();
        self.pairs.extend(changed.map(|earlier| (at, *earlier)));
    }

    /// Notes that an operation uses, or changes, what `writers` left.
    pub fn uses(&mut self, at: u32, key: Key, writers: &[Access]) {
        for writer in writers {
            if !self.is_of_another_life(key, at, writer.op) {
                self.note(at, writer.op);
            }
        }
    }

    /// Returns whether the inode number meant another object when `earlier` used it.
    fn is_of_another_life(&self, key: Key, at: u32, earlier: u32) -> bool {
        let Key::Data(ino) = key else {
            return false;
        };
        let Some(born) = self.born.get(&ino).filter(|born| **born != earlier) else {
            return false;
        };
        *born == at || self.place[earlier as usize] < self.place[*born as usize]
    }

    /// Notes that an operation takes all attributes of something, or changes one.
    pub fn meets(&mut self, at: u32, key: Key, changes: bool) {
        if !matches!(key, Key::Xattrs(_)) {
            return;
        }
        let known = self.of_whole.entry(key).or_default();
        if changes {
            known.push(at);
        } else {
            self.pairs
                .extend(known.iter().map(|earlier| (at, *earlier)));
        }
    }

    /// Notes the effect of an operation on a lock: a refusal depends on the calls that had it, and a
    /// call that slept on those that had it meanwhile.
    pub fn locks(&mut self, ops: &[PlanOp], at: u32, change: &Change, before: &Before) {
        let (key, owner) = change.hold.held_by();
        let refused = before.ended.iter();
        let refused = refused.filter(|_| change.role == Lock::Refused);
        for earlier in refused.chain(&before.rivals) {
            self.note(at, *earlier);
        }
        match change.role {
            Lock::Refused => return,
            Lock::Release => {
                let own = self.locks.get(&(key, owner)).into_iter().flatten();
                if let Some((taken, _)) = own.rev().find(|(_, gave_up)| !gave_up) {
                    self.given_up
                        .entry(key)
                        .or_default()
                        .push((at, *taken, owner));
                }
            }
            Lock::Exclusive | Lock::Shared if change.blocks => {
                let begun_ns = ops[at as usize].start_ns;
                let meanwhile =
                    |given: &&(u32, u32, Owner)| ops[given.0 as usize].end_ns > begun_ns;
                let given = self.given_up.get(&key).into_iter().flatten().rev();
                let others = given.take_while(meanwhile).filter(|given| given.2 != owner);
                self.pairs.extend(others.map(|given| (at, given.1)));
            }
            Lock::Exclusive | Lock::Shared => {}
        }
        let same = self.locks.entry((key, owner)).or_default();
        same.push((at, change.role == Lock::Release));
    }

    /// Ends the collection, of a plan.
    pub fn done(mut self, plan: &Plan) -> Found {
        self.pairs.sort_unstable();
        self.pairs.dedup();
        let (first, earlier) = grouped(plan.ops().len(), self.pairs.iter().copied());
        let forks = plan.of_kind(|kind| kind == Kind::Fork);
        Found {
            first,
            earlier,
            fork_of: forks.map(|(at, op)| (op.arg as u32, at)).collect(),
            opened: self.opened,
            closers: self.closers,
            locks: self.locks.into_values().collect(),
        }
    }
}

/// Returns whether a call closes descriptors of its process, which goes on.
fn closes(op: &PlanOp) -> bool {
    let dups = semantics::kind(op) == Kind::Dup2 && semantics::makes_fd(op);
    dups || matches!(semantics::kind(op), Kind::Close | Kind::CloseRange)
}

/// Dependencies of each operation of a plan.
#[derive(Debug)]
pub struct Found {
    /// First dependency of each operation.
    first: Vec<u32>,
    earlier: Vec<u32>,
    opened: Vec<u32>,
    /// The operation that forked each thread.
    pub fork_of: HashMap<u32, u32>,
    /// Operations that close descriptors, each with those that made them.
    pub closers: Vec<(u32, Vec<u32>)>,
    /// For each lock and owner the operations that took it or, if true, gave it up.
    pub locks: Vec<Vec<(u32, bool)>>,
}

impl Found {
    /// Returns the operation that made the descriptor that one works on.
    pub fn opened(&self, at: u32) -> Option<u32> {
        let made = self.opened.get(at as usize).copied();
        made.filter(|made| *made != NONE)
    }

    /// Returns the operations that one depends on.
    pub fn of(&self, at: u32) -> &[u32] {
        let [from, to] = [at, at + 1].map(|at| self.first[at as usize] as usize);
        &self.earlier[from..to]
    }
}
