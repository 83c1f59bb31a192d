//! Places in contests for names, of operations that are not in the order of the trace yet.

use foldhash::HashMap;
use spoolscope_traces::records::PlanOp;

use crate::model::order::rivals::{self, conflict};
use crate::model::state::names::Names;
use crate::semantics;

/// The place of an operation in the order found for a contest.
#[derive(Clone, Copy, Debug)]
struct Turn {
    contest: u32,
    index: usize,
    /// False if it left the names of the contest as they were.
    changes: bool,
    /// Its neighbours in that order among those that are not placed.
    previous: Option<u32>,
    next: Option<u32>,
}

/// The turns of all contests.
#[derive(Debug, Default)]
pub struct Turns {
    of: HashMap<u32, Turn>,
    /// Contests that were searched.
    pub contests: u32,
}

impl Turns {
    pub fn is_empty(&self) -> bool {
        self.of.is_empty()
    }

    pub fn has(&self, at: u32) -> bool {
        self.of.contains_key(&at)
    }

    /// Keeps the order found for a contest: operations, and whether each changes its names.
    pub fn keep(&mut self, found: &[(u32, bool)]) {
        self.contests += 1;
        let neighbour = |index: usize| found.get(index).map(|(op, _)| *op);
        for (index, (op, changes)) in found.iter().copied().enumerate() {
            let turn = Turn {
                contest: self.contests,
                index,
                changes,
                previous: index.checked_sub(1).and_then(neighbour),
                next: neighbour(index + 1),
            };
            self.of.insert(op, turn);
        }
    }

    /// Takes away the turn of an operation that gets its place.
    pub fn end(&mut self, at: u32) {
        let Some(turn) = self.of.remove(&at) else {
            return;
        };
        if let Some(before) = turn.previous.and_then(|it| self.of.get_mut(&it)) {
            before.next = turn.next;
        }
        if let Some(after) = turn.next.and_then(|it| self.of.get_mut(&it)) {
            after.previous = turn.previous;
        }
    }

    /// Returns an operation, after those without a place that its contest needs before it, directly
    /// or for others. Two that leave each other's names alone may change places: sizes, attributes
    /// and locks tell their order.
    pub fn chain(&self, at: u32, names: &Names, ops: &[PlanOp]) -> Vec<u32> {
        let mut chain = vec![at];
        let before = |of: &u32| self.of.get(of).and_then(|turn| turn.previous);
        for other in std::iter::successors(before(&at), before) {
            let kept = |later: &u32| self.is_kept(other, *later, names, ops);
            if chain.iter().any(kept) {
                chain.push(other);
            }
        }
        chain.reverse();
        chain
    }

    /// Returns whether two operations of one contest keep the order that it gave them.
    fn is_kept(&self, one: u32, later: u32, names: &Names, ops: &[PlanOp]) -> bool {
        let changes = |at: u32| self.of.get(&at).is_some_and(|turn| turn.changes);
        let op = &ops[later as usize];
        match (changes(one), changes(later)) {
            (false, false) => false,
            // A new file may have the number of one that went before.
            (true, _) if semantics::is_birth(op) => true,
            _ => conflict(names, &rivals::keys(names, op), &ops[one as usize]),
        }
    }

    /// Returns whether a contest needs `at` before `other`.
    pub fn is_held_back(&self, other: u32, at: u32, names: &Names, ops: &[PlanOp]) -> bool {
        let is_later = match (self.of.get(&other), self.of.get(&at)) {
            (Some(other), Some(at)) => other.contest == at.contest && other.index > at.index,
            _ => false,
        };
        is_later && self.chain(other, names, ops).contains(&at)
    }
}
