//! The order in which calls must be granted a contended lock.
//!
//! A call that got its lock at once waits for the release that freed it, as for anything else. A
//! call that slept is issued while the lock is held, and the kernel makes it wait, but not always
//! in the recorded order. So the calls that got the lock while it slept are its *rivals*: they must
//! have had the lock before it gets it (`engine/turn.rs`).

use foldhash::HashMap;
use smallvec::SmallVec;
use spoolscope_traces::records::PlanOp;
use std::collections::VecDeque;

use crate::model::state::locks::{Change, LockKey, was_refused};
use crate::semantics::Lock;

#[derive(Clone, Copy, Debug)]
struct Access {
    op: u32,
    change: Change,
}

/// The operations that an operation on a lock comes after.
#[derive(Debug, Default)]
pub struct Before {
    /// Operations that must have ended before it is issued.
    pub ended: Vec<u32>,
    /// Calls that must have had the lock before it gets it, the first one first.
    pub rivals: Vec<u32>,
}

/// Operations that have begun and have no place in the order yet.
#[derive(Clone, Copy, Debug)]
pub struct Flight<'a> {
    pub ops: &'a [u32],
    /// No other operation without a place began, or will begin, before this.
    pub now_ns: i64,
}

impl Flight<'_> {
    /// No operation on this lock that comes later in the order began before the time returned.
    /// Operations that sleep in another lock, or in none, do not count.
    fn horizon_ns(&self, ops: &[PlanOp], key: LockKey) -> i64 {
        let waiting = self.ops.iter().map(|at| &ops[*at as usize]);
        let starts = waiting
            .filter(|op| key.may_be_changed_by(op))
            .map(|op| op.start_ns);
        starts.min().unwrap_or(i64::MAX).min(self.now_ns)
    }
}

/// Operations on each lock, in order, as far as later ones may have to come after them.
#[derive(Debug, Default)]
pub struct Grants {
    tracks: HashMap<LockKey, Track>,
}

/// The last part serves operations that begin from now on; the parts before it serve those that
/// have slept in this lock for longer.
#[derive(Debug, Default)]
struct Track {
    parts: VecDeque<Part>,
}

/// A stretch of the operations on a lock.
#[derive(Debug)]
struct Part {
    /// All before the stretch, except those that any operation begun at `since_ns` or later waits
    /// for anyway, by waiting for a later one.
    before: Vec<Access>,
    since_ns: i64,
    own: Vec<Access>,
}

impl Grants {
    /// Adds the next operation of the order on a lock.
    pub fn add(&mut self, ops: &[PlanOp], at: u32, change: Change, flight: Flight) -> Before {
        let track = self.tracks.entry(change.hold.key).or_default();
        let next = Access { op: at, change };
        let before = track.before(ops, &next);
        if change.role != Lock::Refused || was_refused(&ops[at as usize]) {
            track.push(ops, next, flight);
        }
        before
    }
}

impl Track {
    /// Returns what an operation begun at `start_ns` may have to come after, the last one first.
    fn until(&self, start_ns: i64) -> impl Iterator<Item = &Access> {
        let has_all = |part: &Part| part.since_ns <= start_ns;
        let first = self.parts.iter().rposition(has_all).unwrap_or(0);
        let parts = self.parts.range(first..);
        let oldest = self.parts.get(first).into_iter();
        let all = oldest.flat_map(|part| &part.before);
        all.chain(parts.flat_map(|part| &part.own)).rev()
    }

    fn before(&self, ops: &[PlanOp], next: &Access) -> Before {
        let mut found = Before::default();
        let mut awaited: SmallVec<[&Access; 16]> = SmallVec::new();
        for access in self.until(ops[next.op as usize].start_ns) {
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

    /// Adds an operation, and ends a stretch that has become long.
    fn push(&mut self, ops: &[PlanOp], next: Access, flight: Flight) {
        if self.parts.is_empty() {
            self.parts.push_back(Part {
                before: Vec::new(),
                since_ns: i64::MIN,
                own: Vec::new(),
            });
        }
        let Some(last) = self.parts.back_mut() else {
            return;
        };
        last.own.push(next);
        if last.own.len() <= 2 * last.before.len() + 8 {
            return;
        }
        let before = thinned_out(ops, last.before.iter().chain(&last.own), flight.now_ns);
        self.parts.push_back(Part {
            before,
            since_ns: flight.now_ns,
            own: Vec::new(),
        });
        let horizon_ns = flight.horizon_ns(ops, next.change.hold.key);
        let serves_all = |part: &Part| part.since_ns <= horizon_ns;
        let first = self.parts.iter().rposition(serves_all).unwrap_or(0);
        self.parts.drain(..first);
    }
}

/// Leaves out what any operation begun at `since_ns` or later awaits by waiting for a later one.
fn thinned_out<'a>(
    ops: &[PlanOp],
    accesses: impl DoubleEndedIterator<Item = &'a Access>,
    since_ns: i64,
) -> Vec<Access> {
    let past = |access: &Access| ops[access.op as usize].end_ns <= since_ns;
    let mut kept: Vec<Access> = Vec::new();
    // Also what is left out: a release implies its lock, and another release implies that release.
    let mut awaited: Vec<&Access> = Vec::new();
    for access in accesses.rev() {
        let implied = awaited.iter().any(|later| implies(ops, later, access));
        if implied || past(access) {
            awaited.push(access);
        }
        if !implied {
            kept.push(*access);
        }
    }
    kept.reverse();
    kept
}

enum Relation {
    None,
    Ended,
    Rival,
}

fn relation(ops: &[PlanOp], earlier: &Access, next: &Access) -> Relation {
    #[cfg(test)]
    tests::COMPARED.set(tests::COMPARED.get() + 1);
    let (before, after) = (&earlier.change, &next.change);
    let ended = ops[earlier.op as usize].end_ns <= ops[next.op as usize].start_ns;
    let excludes = before.hold.excludes(&after.hold);
    let own = before.hold.same_owner(&after.hold) && before.hold.overlaps(&after.hold);
    match (before.role, after.role) {
        // A call that slept until a signal came did so while others were granted the lock.
        (Lock::Exclusive | Lock::Shared, Lock::Refused) if excludes && after.blocks && !ended => {
            Relation::Rival
        }
        (Lock::Exclusive | Lock::Shared, Lock::Refused) if excludes => Relation::Ended,
        (Lock::Exclusive | Lock::Shared, _) if own => Relation::Ended,
        (_, Lock::Refused) => Relation::None,
        (Lock::Refused, Lock::Release) if excludes => Relation::Ended,
        (Lock::Refused, _) if makes_way(after, before) => Relation::Ended,
        (Lock::Refused, _) => Relation::None,
        (Lock::Release, Lock::Release) if ended && before.hold.overlaps(&after.hold) => {
            Relation::Ended
        }
        (_, Lock::Release) => Relation::None,
        (Lock::Release, _) if excludes && (ended || !after.blocks) => Relation::Ended,
        (Lock::Release, _) => Relation::None,
        // A lock that its owner shares from now on made way as a release does.
        _ if makes_way(before, after) && (ended || !after.blocks) => Relation::Ended,
        _ if !excludes => Relation::None,
        _ if ended || !before.blocks || !after.blocks || keeps(after) => Relation::Ended,
        _ => Relation::Rival,
    }
}

/// Returns whether a lock that is shared from now on makes way for another shared one.
fn makes_way(yielding: &Change, other: &Change) -> bool {
    let shared = !other.hold.exclusive && !yielding.hold.same_owner(&other.hold);
    yielding.yields && shared && yielding.hold.overlaps(&other.hold)
}

/// Returns whether a call keeps the lock that it converts until it has the new one, which it could
/// not give back then. Only flock releases first.
fn keeps(change: &Change) -> bool {
    change.converts && !change.hold.is_flock()
}

/// Returns whether waiting for the later one implies waiting for the earlier one.
fn implies(ops: &[PlanOp], later: &Access, earlier: &Access) -> bool {
    #[cfg(test)]
    tests::COMPARED.set(tests::COMPARED.get() + 1);
    let (after, before) = (&later.change, &earlier.change);
    let (last, first) = (&ops[later.op as usize], &ops[earlier.op as usize]);
    let own = before.hold.same_owner(&after.hold);
    let more = match (after.role, before.role) {
        (Lock::Exclusive, _) => true,
        (Lock::Release, Lock::Release) => first.end_ns <= last.start_ns,
        (Lock::Release, Lock::Exclusive | Lock::Shared) => own,
        // An owner may ask for the same lock again and again.
        (Lock::Shared, Lock::Shared) => own,
        (Lock::Refused, Lock::Refused) => first.thread == last.thread,
        _ => false,
    };
    // A shared lock that ends makes way for no other shared one, which thus does not wait for it.
    let as_much = after.hold.exclusive || !(before.hold.exclusive || before.yields);
    more && as_much && after.hold.covers(&before.hold)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::order::one_order::Linear;
    use crate::model::state::locks::Locks;
    use crate::model::state::world::World;
    use crate::testing::plan;
    use std::cell::Cell;

    thread_local! {
        /// How often two accesses were compared.
        pub static COMPARED: Cell<u64> = const { Cell::new(0) };
    }

    /// Locks as of mailboxes.db in Cyrus, which is read all the time and hardly ever written.
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
                let flight = Flight {
                    ops: &[],
                    now_ns: op.start_ns,
                };
                grants.add(plan.ops(), at as u32, change, flight);
            }
        }
        let most = grants
            .tracks
            .values()
            .map(|track| track.until(i64::MIN).count())
            .max();
        assert!(most.is_some_and(|most| most < 40), "{most:?}");
    }

    /// Returns a script of processes that sleep long in a lock, which goes round among them, and of
    /// others that work two at a time; `work` makes each call from its number.
    fn with_sleepers(calls: usize, lock: &str, work: impl Fn(usize) -> String) -> String {
        let (sleepers, workers) = (20, 10);
        let mut script = format!("I0 1-2 {lock} lock=1 = 0\n");
        let mut asked = vec![3; sleepers];
        let turn = calls / sleepers;
        for call in 0..calls {
            let (who, at) = (call / 2 % workers, 1_000 + call * 10);
            script += &format!("W{who} {at}-{} {}\n", at + 14, work(call));
            if call % turn == turn - 1 {
                let (had, next) = (call / turn % sleepers, (call / turn + 1) % sleepers);
                let from = asked[next];
                script += &format!("I{had} {at}-{} {lock} lock=2 = 0\n", at + 1);
                script += &format!("I{next} {from}-{} {lock} lock=1 = 0\n", at + 3);
                asked[had] = at + 5;
            }
        }
        script
    }

    fn taken_and_given_back(call: usize, lock: &str) -> String {
        format!("{lock} lock={} = 0", [0, 2][call % 2])
    }

    /// Returns how often two accesses are compared in a shape of `calls` calls.
    fn compared(shape: impl Fn(usize) -> String, calls: usize) -> u64 {
        let plan = plan(&shape(calls));
        COMPARED.set(0);
        let linear = Linear::walk(&plan);
        assert!(linear.unexplained.is_empty());
        COMPARED.get()
    }

    #[test]
    fn what_sleeps_for_long_costs_the_others_nothing() {
        const ACCEPT: &str = "fcntl fd=3 ino=5 cmd=7";
        const BYTE: &str = "fcntl fd=4 ino=4 cmd=7 off=9 size=1";
        const DATABASE: &str = "fcntl fd=4 ino=4 cmd=7 off=0 size=5";
        let in_another_lock = |n| taken_and_given_back(n, DATABASE);
        let refused = |_| "fcntl fd=3 ino=5 cmd=6 lock=1 = -11".into();
        let shapes: [(&str, &dyn Fn(usize) -> String); 3] = [
            (ACCEPT, &in_another_lock),
            (BYTE, &in_another_lock),
            (ACCEPT, &refused),
        ];
        for (lock, work) in shapes {
            let [few, many] = [10_000, 40_000]
                .map(|calls| compared(|calls| with_sleepers(calls, lock, work), calls));
            assert!(few > 10_000 && many < 5 * few, "{few} {many}");
        }
    }
}
