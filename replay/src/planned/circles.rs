//! Finds edges that make operations wait for each other in a circle, by a run without calls.
//!
//! Edges that a walk explains make none. Those of a plan that no kernel made, or of an order that
//! no walk made, may.

use foldhash::{HashMap, HashSet, HashSetExt};
use spoolscope_traces::records::NONE;
use std::cmp::Reverse;
use std::collections::BinaryHeap;

use crate::engine::schedule::{edges_by_slot, streams};
use crate::plan::Plan;
use crate::planned::parts::Edge;
use crate::semantics::Kind;

/// Returns one edge of each circle: without them all operations come to an end.
pub fn closing(plan: &Plan, edges: &[Edge]) -> HashSet<Edge> {
    let (mut walk, mut closing) = (Walk::new(plan, edges), HashSet::new());
    walk.go_on();
    while let Some((thread, edge)) = walk.stuck() {
        closing.insert(edge);
        walk.next[thread as usize] += 1;
        walk.ready.push(thread);
        walk.go_on();
    }
    closing
}

/// Progress of all threads.
struct Walk<'a> {
    plan: &'a Plan,
    /// First slot of each thread, operation of each slot.
    first: Vec<u32>,
    ops: Vec<u32>,
    edges: Vec<(u32, u32)>,
    /// First edge of each slot.
    first_edge: Vec<u32>,
    /// The thread that an operation forks.
    forks: HashMap<u32, u32>,
    born: Vec<bool>,
    /// Operations finished by each thread.
    finished: Vec<u32>,
    /// The edge that each thread comes to next.
    next: Vec<u32>,
    /// (operations that a thread must have finished, thread that waits for it), by thread.
    waiting: Vec<BinaryHeap<Reverse<(u32, u32)>>>,
    ready: Vec<u32>,
}

impl<'a> Walk<'a> {
    fn new(plan: &'a Plan, edges: &[Edge]) -> Self {
        let threads = plan.threads();
        let (first, ops, slot_of) = streams(plan);
        let (first_edge, edges) = edges_by_slot(edges, &slot_of);
        let roots = (0..).zip(threads);
        let roots = roots.filter(|(_, thread)| thread.parent == NONE);
        let slots = first[..threads.len()].iter();
        let forks = plan.of_kind(|kind| kind == Kind::Fork);
        let forks = forks.filter(|(_, op)| op.arg != i64::from(NONE));
        Self {
            plan,
            ready: roots.map(|(at, _)| at).collect(),
            forks: forks.map(|(at, op)| (at, op.arg as u32)).collect(),
            born: threads.iter().map(|thread| thread.parent == NONE).collect(),
            finished: vec![0; threads.len()],
            next: slots.map(|slot| first_edge[*slot as usize]).collect(),
            waiting: vec![BinaryHeap::new(); threads.len()],
            first,
            ops,
            edges,
            first_edge,
        }
    }

    /// Lets threads finish what they can.
    fn go_on(&mut self) {
        while let Some(thread) = self.ready.pop() {
            while let Some(slot) = self.slot(thread) {
                if let Some((other, wanted)) = self.waits_for(thread, slot) {
                    self.waiting[other as usize].push(Reverse((wanted, thread)));
                    break;
                }
                self.finish(thread, slot);
            }
        }
    }

    /// Returns the slot that a thread is at, if one is left.
    fn slot(&self, thread: u32) -> Option<u32> {
        let at = thread as usize;
        let slot = self.first[at] + self.finished[at];
        (slot < self.first[at + 1]).then_some(slot)
    }

    /// Returns the first edge of a slot that is not kept yet.
    fn waits_for(&mut self, thread: u32, slot: u32) -> Option<(u32, u32)> {
        let next = &mut self.next[thread as usize];
        while *next < self.first_edge[slot as usize + 1] {
            let (other, wanted) = self.edges[*next as usize];
            if self.finished[other as usize] < wanted {
                return Some((other, wanted));
            }
            *next += 1;
        }
        None
    }

    /// Ends an operation: the threads that waited for it, or that it forks, go on.
    fn finish(&mut self, thread: u32, slot: u32) {
        let at = thread as usize;
        self.finished[at] += 1;
        if let Some(child) = self.forks.get(&self.ops[slot as usize]) {
            self.born[*child as usize] = true;
            self.ready.push(*child);
        }
        while let Some(Reverse((wanted, waiter))) = self.waiting[at].peek().copied()
            && wanted <= self.finished[at]
        {
            self.waiting[at].pop();
            self.ready.push(waiter);
        }
    }

    /// Returns a thread of a circle in which none can go on, and the edge that holds it.
    fn stuck(&mut self) -> Option<(u32, Edge)> {
        let all = 0..self.born.len() as u32;
        let mut left = all.filter(|at| self.born[*at as usize] && self.slot(*at).is_some());
        let mut thread = left.next()?;
        // After so many steps the thread is in the circle, and does not only wait for it.
        for _ in 0..self.born.len() {
            thread = self.held_by(thread)?;
        }
        while !self.born[thread as usize] {
            thread = self.held_by(thread)?;
        }
        let slot = self.slot(thread)?;
        let (other, wanted) = self.waits_for(thread, slot)?;
        Some((thread, (self.ops[slot as usize], other, wanted)))
    }

    /// Returns the thread that one waits for; for an unborn one its parent.
    fn held_by(&mut self, thread: u32) -> Option<u32> {
        if !self.born[thread as usize] {
            return Some(self.plan.threads()[thread as usize].parent);
        }
        let slot = self.slot(thread)?;
        self.waits_for(thread, slot).map(|(other, _)| other)
    }
}
