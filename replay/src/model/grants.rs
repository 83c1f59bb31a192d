//! Who must have a lock before whom.
//!
//! A call that had its lock at once waits for the release that made way for it, as for anything
//! else. A call that slept is issued while the lock is held, and the kernel makes it wait; but it
//! does not make all wait in the recorded order. So those who got the lock while the call slept
//! are its *rivals*: when it has the lock, they must have had it (`engine/turn.rs`).

use foldhash::HashMap;
use smallvec::SmallVec;
use spoolscope_traces::records::PlanOp;

use crate::model::locks::{Change, LockKey, was_refused};
use crate::semantics::Lock;

#[derive(Clone, Copy, Debug)]
struct Access {
    op: u32,
    change: Change,
}

/// What an operation on a lock comes after.
#[derive(Debug, Default)]
pub struct Before {
    /// Operations that must have ended before it is issued.
    pub ended: Vec<u32>,
    /// Calls that must have had the lock when it has it, the first one first.
    pub rivals: Vec<u32>,
}

/// Operations on each lock, in order, as far as later ones may have to come after them.
#[derive(Debug, Default)]
pub struct Grants {
    tracks: HashMap<LockKey, Track>,
}

#[derive(Debug, Default)]
struct Track {
    accesses: Vec<Access>,
    /// So many were left when it was last thinned out.
    left: usize,
}

impl Grants {
    /// Adds the next operation of the order on a lock; none that comes later in it began before
    /// `horizon_ns`.
    pub fn add(&mut self, ops: &[PlanOp], at: u32, change: Change, horizon_ns: i64) -> Before {
        let track = self.tracks.entry(change.hold.key).or_default();
        let next = Access { op: at, change };
        let before = track.before(ops, &next);
        if change.role != Lock::Refused || was_refused(&ops[at as usize]) {
            track.accesses.push(next);
        }
        if track.accesses.len() > 2 * track.left + 8 {
            track.thin_out(ops, horizon_ns);
        }
        before
    }
}

impl Track {
    fn before(&self, ops: &[PlanOp], next: &Access) -> Before {
        let mut found = Before::default();
        let mut awaited: SmallVec<[&Access; 16]> = SmallVec::new();
        for access in self.accesses.iter().rev() {
            if awaited.iter().any(|later| implies(ops, later, access)) {
                awaited.push(access);
                continue;
            }
            match relation(ops, access, next) {
                Relation::Ended => {
                    found.ended.push(access.op);
                    awaited.push(access);
                }
                Relation::Rival => found.rivals.push(access.op),
                Relation::None => {}
            }
        }
        found.rivals.reverse();
        found
    }

    /// Forgets what everything to come waits for by waiting for a later one.
    fn thin_out(&mut self, ops: &[PlanOp], horizon_ns: i64) {
        let past = |access: &Access| ops[access.op as usize].end_ns <= horizon_ns;
        let mut kept: Vec<Access> = Vec::new();
        // Also what is forgotten: a lock by its release, and that by the release of another.
        let mut awaited: Vec<Access> = Vec::new();
        for access in self.accesses.drain(..).rev() {
            let implied = awaited.iter().any(|later| implies(ops, later, &access));
            if implied || past(&access) {
                awaited.push(access);
            }
            if !implied {
                kept.push(access);
            }
        }
        kept.reverse();
        self.left = kept.len();
        self.accesses = kept;
    }
}

enum Relation {
    None,
    Ended,
    Rival,
}

fn relation(ops: &[PlanOp], earlier: &Access, next: &Access) -> Relation {
    let (before, after) = (&earlier.change, &next.change);
    let ended = ops[earlier.op as usize].end_ns <= ops[next.op as usize].start_ns;
    let excludes = before.hold.excludes(&after.hold);
    let own = before.hold.same_owner(&after.hold) && before.hold.overlaps(&after.hold);
    match (before.role, after.role) {
        // Who slept until a signal came did so while others were granted it.
        (Lock::Exclusive | Lock::Shared, Lock::Refused) if excludes && after.blocks && !ended => {
            Relation::Rival
        }
        (Lock::Exclusive | Lock::Shared, Lock::Refused) if excludes => Relation::Ended,
        (Lock::Exclusive | Lock::Shared, _) if own => Relation::Ended,
        (_, Lock::Refused) => Relation::None,
        (Lock::Refused, Lock::Release) if excludes => Relation::Ended,
        (Lock::Refused, _) => Relation::None,
        (Lock::Release, Lock::Release) if ended && before.hold.overlaps(&after.hold) => {
            Relation::Ended
        }
        (_, Lock::Release) => Relation::None,
        (Lock::Release, _) if excludes && (ended || !after.blocks) => Relation::Ended,
        (Lock::Release, _) => Relation::None,
        _ if !excludes => Relation::None,
        _ if ended || !before.blocks || !after.blocks || keeps(after) => Relation::Ended,
        _ => Relation::Rival,
    }
}

/// Whether a call has its lock without giving up the one that it turns into it; it could not give
/// the new one back. Only flock lets go first.
fn keeps(change: &Change) -> bool {
    change.converts && !change.hold.is_flock()
}

/// Whether whoever waits for the later one waits for the earlier one by that.
fn implies(ops: &[PlanOp], later: &Access, earlier: &Access) -> bool {
    let (after, before) = (&later.change, &earlier.change);
    let released = after.role == Lock::Release
        && match before.role {
            Lock::Release => ops[earlier.op as usize].end_ns <= ops[later.op as usize].start_ns,
            Lock::Exclusive | Lock::Shared => before.hold.same_owner(&after.hold),
            Lock::Refused => false,
        };
    after.hold.covers(&before.hold) && (after.role == Lock::Exclusive || released)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::locks::Locks;
    use crate::model::world::World;
    use crate::testing::plan;

    /// As Cyrus has mailboxes.db: everybody reads, hardly anybody ever writes.
    #[test]
    fn shared_locks_of_many_leave_no_more_than_a_few_to_look_at() {
        let script: String = (0..2_000)
            .flat_map(|i| {
                let (who, at) = (["A", "B", "C", "D"][i % 4], i * 10);
                ["0", "2"].into_iter().enumerate().map(move |(n, lock)| {
                    let (from, to) = (at + 2 * n, at + 2 * n + 1);
                    format!("{who} {from}-{to} fcntl fd=3 ino=4 cmd=7 lock={lock} = 0\n")
                })
            })
            .collect();
        let plan = plan(&script);
        let world = World::new(&plan);
        let (mut locks, mut grants) = (Locks::default(), Grants::default());
        for (at, op) in plan.ops().iter().enumerate() {
            for change in locks.apply(op, &world).0 {
                grants.add(plan.ops(), at as u32, change, op.start_ns);
            }
        }
        let most = grants
            .tracks
            .values()
            .map(|track| track.accesses.len())
            .max();
        assert!(most.is_some_and(|most| most < 40), "{most:?}");
    }
}
