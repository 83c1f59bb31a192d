//! Threads grouped by process, and what they share besides descriptors.

use spoolscope_traces::records::{PLAN_FORK, PlanOp, PlanThread};

use crate::semantics;

/// Recorded processes. Each is named by its leader: the first thread with its pid in the same life.
#[derive(Debug)]
pub struct Processes {
    leaders: Vec<u32>,
    /// By leader.
    umasks: Vec<u32>,
    /// User and group, by thread.
    ids: Vec<(u32, u32)>,
    /// By leader.
    n_threads: Vec<u32>,
    /// By leader: number of threads whose exit has not come.
    exits_left: Vec<u32>,
}

impl Processes {
    pub fn new(threads: &[PlanThread]) -> Self {
        let leaders = leaders(threads);
        let mut exits_left = vec![0; threads.len()];
        for leader in &leaders {
            exits_left[*leader as usize] += 1;
        }
        Self {
            leaders,
            umasks: threads
                .iter()
                .map(|thread| semantics::umask(thread.umask))
                .collect(),
            ids: threads
                .iter()
                .map(|thread| (thread.uid, thread.gid))
                .collect(),
            n_threads: exits_left.clone(),
            exits_left,
        }
    }

    pub fn leader(&self, thread: u32) -> u32 {
        self.leaders[thread as usize]
    }

    pub fn umask(&self, thread: u32) -> u32 {
        self.umasks[self.leader(thread) as usize]
    }

    pub fn set_umask(&mut self, thread: u32, mask: u32) {
        let leader = self.leader(thread);
        self.umasks[leader as usize] = semantics::umask(mask);
    }

    /// Returns the user and the group that files made by a thread belong to.
    pub fn ids(&self, thread: u32) -> (u32, u32) {
        self.ids[thread as usize]
    }

    pub fn change_ids(&mut self, op: &PlanOp) {
        let known = &mut self.ids[op.thread as usize];
        *known = semantics::identity(op, *known);
    }

    pub fn is_threaded(&self, thread: u32) -> bool {
        self.n_threads[self.leader(thread) as usize] > 1
    }

    /// Returns whether the exit of this thread ends its process.
    pub fn is_last(&self, thread: u32) -> bool {
        self.exits_left[self.leader(thread) as usize] == 1
    }

    pub fn exit(&mut self, thread: u32) {
        let leader = self.leader(thread);
        let left = &mut self.exits_left[leader as usize];
        *left = left.saturating_sub(1);
    }
}

/// Returns the leader of each thread's process.
fn leaders(threads: &[PlanThread]) -> Vec<u32> {
    (0..threads.len() as u32)
        .map(|thread| leader(threads, thread))
        .collect()
}

fn leader(threads: &[PlanThread], thread: u32) -> u32 {
    let mut at = thread;
    loop {
        let parent = threads[at as usize].parent;
        match threads.get(parent as usize) {
            Some(above) if above.pid == threads[at as usize].pid => at = parent,
            _ => return at,
        }
    }
}

/// Returns when an operation has had its effect: for a fork, when the child is there. vfork returns
/// only when the child has executed a program, but other threads do not wait for that.
pub fn effective_ns(threads: &[PlanThread], op: &PlanOp) -> i64 {
    let child = threads.get(op.arg as usize).filter(|_| op.op == PLAN_FORK);
    match child.map_or(0, |child| child.start_ns as i64) {
        ..=0 => op.end_ns,
        born_ns => born_ns.clamp(op.start_ns, op.end_ns),
    }
}
