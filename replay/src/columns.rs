//! Members of the operations that most passes over a plan read, in arrays of their own.
//!
//! An operation has over a hundred bytes. If the plan is larger than memory, every pass would read
//! them from the file again, and also where it looks back.

use spoolscope_traces::records::PlanOp;

use crate::semantics::{self, Kind};

/// One element for each operation.
#[derive(Debug, Default)]
pub struct Columns {
    pub kinds: Vec<Kind>,
    pub threads: Vec<u32>,
    pub ends_ns: Vec<i64>,
}

impl Columns {
    pub fn with_room(n_ops: usize) -> Self {
        Self {
            kinds: Vec::with_capacity(n_ops),
            threads: Vec::with_capacity(n_ops),
            ends_ns: Vec::with_capacity(n_ops),
        }
    }

    pub fn push(&mut self, op: &PlanOp) {
        self.kinds.push(semantics::kind(op));
        self.threads.push(op.thread);
        self.ends_ns.push(op.end_ns);
    }

    /// Returns the place of every operation among those of its thread.
    pub fn positions(&self, n_threads: usize) -> Vec<u32> {
        let mut next = vec![0; n_threads];
        let of = |thread: &u32| {
            let place = next[*thread as usize];
            next[*thread as usize] += 1;
            place
        };
        self.threads.iter().map(of).collect()
    }
}
