//! Who holds which file lock, so that locks are taken again in the order they were.

use spoolscope_traces::records::PlanOp;
use std::collections::{HashMap, HashSet};

use crate::model::world::World;
use crate::semantics::{self, Kind, Lock};

/// flock and fcntl locks do not see each other.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct LockKey {
    pub ino: u64,
    pub flock: bool,
}

/// Holders of every lock: process (leader thread) and whether it excludes others.
#[derive(Debug, Default)]
pub struct Locks {
    holders: HashMap<LockKey, Vec<(u32, bool)>>,
    of_process: HashMap<u32, HashSet<LockKey>>,
}

impl Locks {
    /// Whether a lock's result agrees with what is held; unknown holders are no contradiction.
    pub fn fits(&self, op: &PlanOp, process: u32) -> bool {
        let Some((role, _)) = semantics::lock(op).filter(|_| op.ino != 0) else {
            return true;
        };
        match role {
            Lock::Exclusive => !self.others(key(op), process, false),
            Lock::Shared => !self.others(key(op), process, true),
            Lock::Refused if was_refused(op) => self.is_held(key(op)),
            Lock::Refused | Lock::Release => true,
        }
    }

    fn is_held(&self, key: LockKey) -> bool {
        let holders = self.holders.get(&key);
        holders.is_some_and(|holders| !holders.is_empty())
    }

    fn others(&self, key: LockKey, process: u32, only_exclusive: bool) -> bool {
        let holders = self.holders.get(&key).map_or(&[][..], |holders| holders);
        holders
            .iter()
            .any(|(holder, exclusive)| *holder != process && (*exclusive || !only_exclusive))
    }

    /// Whether `cause` gives up a lock that `op` got, or takes the one that `op` was refused.
    pub fn explained_by(&self, op: &PlanOp, cause: &PlanOp, world: &World) -> bool {
        let took = || {
            let role = semantics::lock(cause).map(|(role, _)| role);
            matches!(role, Some(Lock::Exclusive | Lock::Shared)) && key(cause) == key(op)
        };
        !self.fits(op, world.leader(op.thread))
            && match was_refused(op) {
                true => took(),
                false => self.releases(cause, key(op), world),
            }
    }

    /// Whether `op` gives up the lock that `before` was refused for.
    pub fn spoils(&self, op: &PlanOp, before: &PlanOp, world: &World) -> bool {
        let refused = matches!(semantics::lock(before), Some((Lock::Refused, _)));
        refused && before.ino != 0 && self.releases(op, key(before), world)
    }

    fn releases(&self, op: &PlanOp, key: LockKey, world: &World) -> bool {
        let held = || {
            let held = self.of_process.get(&world.leader(op.thread));
            held.is_some_and(|held| held.contains(&key))
        };
        match semantics::kind(op) {
            Kind::Close => op.ino == key.ino && held(),
            Kind::Fcntl | Kind::Flock => {
                let role = semantics::lock(op).map(|(role, _)| role);
                role == Some(Lock::Release) && self::key(op) == key
            }
            Kind::Exit | Kind::Exec => held(),
            _ => false,
        }
    }

    /// Takes or gives up locks; returns every lock touched, with its role.
    pub fn apply(&mut self, op: &PlanOp, process: u32) -> Vec<(LockKey, Lock)> {
        if let Some((role, _)) = semantics::lock(op) {
            if op.ino == 0 {
                return Vec::new();
            }
            self.change(key(op), process, role);
            return vec![(key(op), role)];
        }
        let given_up: Vec<LockKey> = match semantics::kind(op) {
            Kind::Close => self.held(process).filter(|key| key.ino == op.ino).collect(),
            Kind::Exit | Kind::Exec => self.held(process).collect(),
            _ => return Vec::new(),
        };
        if semantics::kind(op) != Kind::Exec {
            given_up
                .iter()
                .for_each(|key| self.change(*key, process, Lock::Release));
        }
        given_up
            .into_iter()
            .map(|key| (key, Lock::Release))
            .collect()
    }

    fn held(&self, process: u32) -> impl Iterator<Item = LockKey> + '_ {
        self.of_process.get(&process).into_iter().flatten().copied()
    }

    fn change(&mut self, key: LockKey, process: u32, role: Lock) {
        if role == Lock::Refused {
            return;
        }
        let holders = self.holders.entry(key).or_default();
        holders.retain(|(holder, _)| *holder != process);
        let held = self.of_process.entry(process).or_default();
        if role == Lock::Release {
            held.remove(&key);
        } else {
            holders.push((process, role == Lock::Exclusive));
            held.insert(key);
        }
    }
}

/// Whether a try failed because somebody held the lock.
fn was_refused(op: &PlanOp) -> bool {
    op.ret == -i64::from(libc::EAGAIN) || op.ret == -i64::from(libc::EACCES)
}

/// The lock an fcntl or flock call is about.
pub fn key(op: &PlanOp) -> LockKey {
    LockKey {
        ino: op.ino,
        flock: semantics::kind(op) == Kind::Flock,
    }
}
