//! Rivals for names: operations that compete and are put in order together.

use foldhash::{HashMap, HashSet, HashSetExt};
use smallvec::SmallVec;
use spoolscope_traces::records::PlanOp;
use std::cmp::Reverse;
use std::collections::BinaryHeap;

use crate::model::order::edges::is_change;
use crate::model::order::search::MOST;
use crate::model::state::names::Names;
use crate::model::state::required_names;
use crate::plan::Plan;
use crate::touches;

/// Later operations on the same names whose results show how a contest ended.
const WITNESSES: usize = 16;
/// Number of the first ones of them, which may last long and need witnesses of their own.
const NEAREST: usize = 4;

/// Returns the names an operation depends on; true if it changes them.
pub fn keys(names: &Names, op: &PlanOp) -> SmallVec<[(u32, bool); 4]> {
    let mut keys = SmallVec::new();
    for touch in required_names::telling(op) {
        let above = names.above(&touch).iter();
        keys.extend(above.map(|path| (*path, false)));
        if names.changes(touch.path) {
            keys.push((touch.path, is_change(&touch)));
        }
    }
    keys
}

/// Returns whether an operation depends on one of some names, and either side changes it.
pub fn conflict(names: &Names, one: &[(u32, bool)], other: &PlanOp) -> bool {
    let other = keys(names, other);
    let met = |(path, changes): &(u32, bool)| {
        let mut same = other.iter().filter(|(other, _)| other == path);
        same.any(|(_, changed)| *changes || *changed)
    };
    one.iter().any(met)
}

/// The operations on each name, in order of their start.
#[derive(Debug, Default)]
pub struct ByName {
    all: HashMap<u32, Vec<u32>>,
    changing: HashMap<u32, Vec<u32>>,
}

impl ByName {
    pub fn new(names: &Names, plan: &Plan) -> Self {
        let mut new = Self::default();
        for (at, op) in plan.of_kind(touches::may_name) {
            for (path, changes) in keys(names, op) {
                new.all.entry(path).or_default().push(at);
                if changes {
                    new.changing.entry(path).or_default().push(at);
                }
            }
        }
        new
    }

    /// Returns operations on a name that began before one of them, and after it.
    pub fn around(&self, path: u32, at: u32) -> (&[u32], &[u32]) {
        let list = self.all.get(&path).map_or(&[][..], |list| list);
        let (before, rest) = list.split_at(list.partition_point(|other| *other < at));
        (before, rest.strip_prefix(&[at]).unwrap_or(rest))
    }

    /// Returns operations from `first` on that conflict with one that uses, or changes, a name.
    fn from(&self, path: u32, changes: bool, first: u32) -> &[u32] {
        let lists = if changes { &self.all } else { &self.changing };
        let list = lists.get(&path).map_or(&[][..], |list| list);
        &list[list.partition_point(|at| *at < first)..]
    }
}

/// Operations that overlap, directly or through others, in a conflict over names; and some that
/// came later on the same names.
#[derive(Debug)]
pub struct Rivals {
    /// In order of their start.
    pub members: Vec<u32>,
    /// The operations on these names that began before this are all members.
    pub complete_until_ns: i64,
    /// The place of members that end later may depend on others, which are not members.
    pub sure_until_ns: i64,
}

impl Rivals {
    /// Collects the rivals of `at`, not earlier than `first`, among operations that are `free`. The
    /// number looked at is taken off `allowance`; `None` once that is used up.
    pub fn gather(
        names: &Names,
        by_name: &ByName,
        ops: &[PlanOp],
        (at, first): (u32, u32),
        free: impl Fn(u32) -> bool,
        allowance: &mut u64,
    ) -> Option<Self> {
        let mut members = vec![at];
        let mut known: HashSet<u32> = HashSet::from_iter([at]);
        let mut followed: HashSet<(u32, bool)> = HashSet::new();
        let mut lists: BinaryHeap<Reverse<(u32, &[u32])>> = BinaryHeap::new();
        let mut newest = at;
        loop {
            for (path, changes) in keys(names, &ops[newest as usize]) {
                if let Some((next, rest)) = by_name.from(path, changes, first).split_first()
                    && followed.insert((path, changes))
                {
                    lists.push(Reverse((*next, rest)));
                }
            }
            let next = loop {
                let Some(Reverse((next, rest))) = lists.pop() else {
                    break None;
                };
                *allowance = allowance.checked_sub(1)?;
                if let Some((after, rest)) = rest.split_first() {
                    lists.push(Reverse((*after, rest)));
                }
                if free(next) && !known.contains(&next) {
                    break Some(next);
                }
            };
            let Some(next) = next else {
                return Some(Self::close(ops, members, at, None));
            };
            let beyond = next > members[members.len() - 1];
            let enough = members.len() >= 2 * MOST || beyond && has_witnesses(ops, &members, at);
            if enough {
                return Some(Self::close(ops, members, at, Some(next)));
            }
            known.insert(next);
            members.insert(members.partition_point(|member| *member < next), next);
            newest = next;
        }
    }

    /// Returns the members that can be searched at once: all before the first that was left out.
    fn close(ops: &[PlanOp], mut members: Vec<u32>, at: u32, left_out: Option<u32>) -> Self {
        members.sort_unstable();
        let first_out = members.get(MOST).copied().into_iter().chain(left_out).min();
        if let Some(first_out) = first_out {
            members.retain(|member| *member < first_out);
        }
        let core = core(ops, &members, at);
        let start = |index: usize| ops[members[index] as usize].start_ns;
        let sure_until_ns = match first_out {
            None => i64::MAX,
            Some(_) if members.len() >= core + WITNESSES => start(core),
            Some(_) => start(members.len().saturating_sub(WITNESSES)),
        };
        Self {
            members,
            complete_until_ns: first_out.map_or(i64::MAX, |out| ops[out as usize].start_ns),
            sure_until_ns,
        }
    }
}

/// Returns how many members, sorted by start, belong to the overlap that holds `at`.
fn core(ops: &[PlanOp], members: &[u32], at: u32) -> usize {
    first_gap(
        ops,
        members,
        members.partition_point(|member| *member <= at),
    )
}

/// Returns the first index from `least` on whose member began after all before it had ended.
fn first_gap(ops: &[PlanOp], members: &[u32], least: usize) -> usize {
    let mut end_ns = i64::MIN;
    for (index, member) in members.iter().enumerate() {
        let op = &ops[*member as usize];
        if op.start_ns >= end_ns && index >= least {
            return index;
        }
        end_ns = end_ns.max(op.end_ns);
    }
    members.len()
}

/// Returns whether enough operations came after the overlap that holds `at`, and after those that
/// overlap the first ones of them.
fn has_witnesses(ops: &[PlanOp], members: &[u32], at: u32) -> bool {
    let nearest = core(ops, members, at) + NEAREST;
    members.len() >= first_gap(ops, members, nearest) + WITNESSES
}

#[cfg(test)]
mod tests {
    use super::{ByName, Rivals};
    use crate::model::state::names::Names;
    use crate::testing::plan;

    #[test]
    fn who_may_look_no_further_tells_no_rivals() {
        let plan = plan(
            "A 0-10 openat t flags=301 = 3
             A 100-900 rename t hot = 0
             B 200-300 unlink hot = 0
             C 250-350 unlink hot = -2",
        );
        let names = Names::new(&plan);
        let by_name = ByName::new(&names, &plan);
        let found = |mut allowance| {
            let met = &mut allowance;
            let all = |_| true;
            Rivals::gather(&names, &by_name, plan.ops(), (1, 0), all, met).map(|it| it.members)
        };
        let enough = (0..100).find(|allowance| found(*allowance).is_some());
        assert!(enough > Some(2), "{enough:?}");
        assert_eq!(found(100), Some(vec![0, 1, 2, 3]));
    }
}
