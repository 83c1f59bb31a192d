//! Operations of a plan under construction, by their start: in parts that the kernel can write out.
//!
//! They come in runs that are sorted already: a part of a recording is one, each copy of its users
//! another. Runs are merged while the plan is written, and a part is given back once it is read: as
//! one array, operations would be copied whenever it grows, and sorted in memory.

use spoolscope_traces::records::PlanOp;
use std::cmp::Reverse;
use std::collections::BinaryHeap;

use crate::memory::nameless;

/// Operations of a part: it is long enough for a file of its own.
const PART: usize = 1 << 18;
const _: () = assert!(PART * size_of::<PlanOp>() >= nameless::LARGE);

#[derive(Debug, Default)]
pub struct SortedOps {
    runs: Vec<Vec<Vec<PlanOp>>>,
    last_ns: i64,
    n: usize,
}

impl SortedOps {
    pub fn len(&self) -> usize {
        self.n
    }

    /// Adds an operation; of those with the same start the first one added stays the first.
    pub fn push(&mut self, op: PlanOp) {
        if self.n == 0 || op.start_ns < self.last_ns {
            self.runs.push(vec![Vec::new()]);
        }
        (self.last_ns, self.n) = (op.start_ns, self.n + 1);
        let parts = self.runs.last_mut().expect("one at least");
        match parts.last_mut() {
            Some(part) if part.len() < PART => part.push(op),
            _ => {
                let mut part = Vec::with_capacity(PART);
                part.push(op);
                parts.push(part);
            }
        }
    }

    /// Gives all operations, sorted by their start.
    pub fn in_order(self) -> impl Iterator<Item = PlanOp> {
        let mut runs: Vec<_> = self.runs.into_iter().map(of_run).collect();
        let mut next = BinaryHeap::new();
        let mut firsts: Vec<Option<PlanOp>> = Vec::with_capacity(runs.len());
        for (at, run) in runs.iter_mut().enumerate() {
            let first = run.next();
            next.extend(first.map(|op| Reverse((op.start_ns, at))));
            firsts.push(first);
        }
        std::iter::from_fn(move || {
            let mut top = next.peek_mut()?;
            let at = top.0.1;
            let following = runs[at].next();
            match &following {
                Some(op) => top.0.0 = op.start_ns,
                None => drop(std::collections::binary_heap::PeekMut::pop(top)),
            }
            std::mem::replace(&mut firsts[at], following)
        })
    }
}

impl Extend<PlanOp> for SortedOps {
    fn extend<T: IntoIterator<Item = PlanOp>>(&mut self, ops: T) {
        ops.into_iter().for_each(|op| self.push(op));
    }
}

fn of_run(parts: Vec<Vec<PlanOp>>) -> impl Iterator<Item = PlanOp> {
    parts.into_iter().flat_map(|part| {
        nameless::read_on(&part);
        part
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn operations_with_the_same_start_keep_their_order() {
        let starts = [5, 7, 7, 0, 5, 7, 9, 5];
        let mut ops = SortedOps::default();
        ops.extend((0..).zip(starts).map(|(call, start_ns)| PlanOp {
            call,
            start_ns,
            ..PlanOp::default()
        }));
        assert_eq!(ops.len(), starts.len());
        let got: Vec<(i64, u64)> = ops.in_order().map(|op| (op.start_ns, op.call)).collect();
        let mut wanted: Vec<(i64, u64)> = starts.into_iter().zip(0..).collect();
        wanted.sort();
        assert_eq!(got, wanted);
    }

    #[test]
    fn a_run_may_have_several_parts() {
        let mut ops = SortedOps::default();
        let n = 2 * PART as i64 + 1;
        ops.extend((0..n).map(|start_ns| PlanOp {
            start_ns,
            ..PlanOp::default()
        }));
        assert!(ops.in_order().map(|op| op.start_ns).eq(0..n));
    }
}
