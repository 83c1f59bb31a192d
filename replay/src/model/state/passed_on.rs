//! Open files that were passed unseen: descriptors sent through a socket (SCM_RIGHTS).
//!
//! No record shows the sending. If a call works on a file through a number that its process never
//! opened, it is taken to use the open file of the other process that opened that file last.

use foldhash::{HashMap, HashMapExt, HashSet};
use serde::{Deserialize, Serialize};
use spoolscope_traces::records::{NONE, PlanOp};

use crate::model::state::descriptors::Descriptors;
use crate::model::state::processes::Processes;
use crate::plan::Plan;
use crate::semantics::{self, Kind, OpenFlags};

/// Most passes; each takes two descriptors in every process of the replay.
pub const MOST: usize = 128;

/// An open file that is passed from one process to another.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Pass {
    /// The operation that opened it.
    pub opened: u32,
    /// The first operation of another process that uses it.
    pub used: u32,
    /// Its descriptor number there.
    pub fd: i32,
}

/// The passes of a plan.
#[derive(Debug)]
pub struct Passes {
    /// In order of use.
    all: Vec<Pass>,
    /// By operation, the pass that it is the first to use.
    by_use: HashMap<u32, Pass>,
    /// Operations that opened a file that is passed.
    opened: HashSet<u32>,
}

impl Passes {
    pub fn of(plan: &Plan) -> Self {
        let all = find(plan);
        Self {
            by_use: all.iter().map(|pass| (pass.used, *pass)).collect(),
            opened: all.iter().map(|pass| pass.opened).collect(),
            all,
        }
    }

    /// Returns whether other processes get the file that an operation opens.
    pub fn are_given(&self, opened: u32) -> bool {
        self.opened.contains(&opened)
    }

    /// Returns the pass that an operation is the first to use.
    pub fn first_used_by(&self, op: u32) -> Option<Pass> {
        self.by_use.get(&op).copied()
    }

    pub fn take(&mut self) -> Vec<Pass> {
        std::mem::take(&mut self.all)
    }
}

/// Finds files that were passed, in order of use; after the first 128 no more are found.
fn find(plan: &Plan) -> Vec<Pass> {
    let (ops, mut processes) = (plan.ops(), Processes::new(plan.threads()));
    // The object of a descriptor is, here, the operation that opened it.
    let mut tables = Descriptors::default();
    for fd in plan.fds() {
        tables.found(processes.leader(fd.thread), fd, NONE);
    }
    let mut opener: HashMap<u64, u32> = HashMap::new();
    let mut passes = Vec::new();
    for (at, op) in ops.iter().enumerate() {
        let process = processes.leader(op.thread);
        let ends = processes.is_last(op.thread);
        if is_stranger(&tables, process, op)
            && let Some(opened) = opener.get(&op.ino).copied()
            && processes.leader(ops[opened as usize].thread) != process
            && ops[opened as usize].end_ns <= op.start_ns
            && passes.len() < MOST
        {
            passes.push(Pass {
                opened,
                used: at as u32,
                fd: op.fd,
            });
            tables.open(process, op.fd, OpenFlags::default(), Some(opened));
        }
        match semantics::kind(op) {
            Kind::Open if op.ret >= 0 && op.ino != 0 => {
                opener.insert(op.ino, at as u32);
            }
            Kind::Fork if op.arg != i64::from(NONE) => {
                tables.inherit(process, processes.leader(op.arg as u32));
            }
            Kind::Exit => processes.exit(op.thread),
            _ => {}
        }
        tables.track((at as u32, op), process, Some(at as u32), ends);
    }
    passes
}

/// Returns whether a call worked on a file through a number that its process did not have.
fn is_stranger(tables: &Descriptors, process: u32, op: &PlanOp) -> bool {
    let worked = op.ret >= 0 && op.fd >= 0 && op.ino != 0 && semantics::kind(op) != Kind::Fault;
    worked
        && !semantics::is_special(u32::from(op.obj_mode))
        && tables.get(process, op.fd).file.is_none()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::plan;

    #[test]
    fn who_uses_what_it_never_opened_has_it_of_who_opened_it_last() {
        let plan = plan(
            "A 0-10 openat f ino=7 flags=101 = 3
             A 20-30 write fd=3 ino=7 = 10
             B 40-50 write fd=5 ino=7 = 10
             B 60-70 close fd=5 ino=7 = 0",
        );
        let found = find(&plan);
        assert_eq!(
            found,
            [Pass {
                opened: 0,
                used: 2,
                fd: 5
            }]
        );
    }

    #[test]
    fn what_a_process_opened_or_inherited_is_its_own() {
        let plan = plan(
            "A 0-10 openat f ino=7 flags=101 = 3
             A 20-30 FORK B = 0
             B 40-50 write fd=3 ino=7 = 10
             B 60-70 openat f ino=7 = 4
             B 80-90 read fd=4 ino=7 = 10",
        );
        assert_eq!(find(&plan), []);
    }

    #[test]
    fn a_file_that_no_other_process_opened_is_nobodys() {
        let plan = plan("B 40-50 write fd=5 ino=7 = 10");
        assert_eq!(find(&plan), []);
    }
}
