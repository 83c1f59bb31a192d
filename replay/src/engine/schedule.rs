//! The plan as each task reads it: its own stream of operations, and what each waits for.

use anyhow::Result;
use spoolscope_traces::records::{NONE, PLAN_FORK};

use crate::engine::control::Control;
use crate::engine::gate::Gate;
use crate::engine::outcomes::Outcomes;
use crate::engine::pace::Pace;
use crate::grouped::grouped;
use crate::memory::shared;
use crate::plan::Plan;
use crate::semantics::{self, Kind, Lease};

/// A call that must have had a lock before the call of a slot gets it.
#[derive(Clone, Copy, Debug)]
pub struct Rival {
    slot: u32,
    pub thread: u32,
    /// Operations that `thread` must have finished by then.
    pub finished: u32,
    /// The rival asked for the lock before that call did.
    pub asked_first: bool,
}

/// A thread that may sleep until the call of a slot has ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Follower {
    pub after: u32,
    pub thread: u32,
}

/// Everything a task needs, in memory shared by all of them.
#[derive(Debug)]
pub struct Schedule {
    pub plan: &'static Plan,
    pub pace: Pace,
    /// Operations are not executed: measures the engine alone.
    pub noop: bool,
    /// Threads do not wait for each other.
    pub unordered: bool,
    /// Tasks have real-time priority while CPUs are free.
    pub realtime: bool,
    /// First slot of each thread; one more than there are threads.
    first: &'static [u32],
    /// Operation of each slot.
    ops: &'static [u32],
    /// First edge of each slot; one more than there are slots.
    first_edge: &'static [u32],
    /// Edges by slot: (thread, operations it must have finished).
    edges: &'static [(u32, u32)],
    /// By slot; only calls that waited for a lock have any.
    rivals: &'static [Rival],
    /// By slot.
    followers: &'static [Follower],
    pub gates: &'static [Gate],
    control: &'static [Control],
    pub outcomes: Outcomes,
    /// Size of the descriptor table of a process.
    pub n_fds: usize,
    pub longest_read: i64,
    /// Some call asks for a lease: an open of its file may then sleep.
    pub leases: bool,
}

impl Schedule {
    pub fn new(
        plan: &'static Plan,
        waits: &[(u32, u32, u32)],
        rivals: &[(u32, u32, u32)],
        pace: Pace,
        noop: bool,
    ) -> Result<Self> {
        let ops = plan.ops();
        let n_threads = plan.threads().len();
        let (first, slots, slot_of) = streams(plan);
        let (first_edge, edges) = edges_by_slot(waits, &slot_of);
        let own_first = shared::copy(&first)?;
        let reads = ops.iter().filter(|op| semantics::kind(op) != Kind::Write);
        Ok(Self {
            plan,
            pace,
            noop,
            unordered: false,
            realtime: false,
            first: own_first,
            ops: shared::copy(&slots)?,
            first_edge: shared::copy(&first_edge)?,
            edges: shared::copy(&edges)?,
            rivals: shared::copy(&by_slot(rivals, plan, &first, &slots, &slot_of))?,
            followers: shared::copy(&followers(&[waits, rivals], plan, &first))?,
            gates: shared::array(n_threads)?,
            control: shared::array(1)?,
            outcomes: Outcomes::new(own_first)?,
            n_fds: highest_fd(plan) + 1,
            leases: plan
                .of_kind(|kind| kind == Kind::Fcntl)
                .any(|(_, op)| semantics::lease(op) == Some(Lease::Asks)),
            longest_read: reads
                .map(|op| op.size)
                .max()
                .unwrap_or(0)
                .clamp(4096, 1 << 30),
        })
    }

    pub fn control(&self) -> &'static Control {
        &self.control[0]
    }

    pub fn n_ops(&self, thread: u32) -> u32 {
        self.first[thread as usize + 1] - self.first[thread as usize]
    }

    pub fn slot(&self, thread: u32, position: u32) -> usize {
        (self.first[thread as usize] + position) as usize
    }

    /// Returns the index of the operation in the plan.
    pub fn op_at(&self, slot: usize) -> u32 {
        self.ops[slot]
    }

    pub fn edges(&self, slot: usize) -> &'static [(u32, u32)] {
        &self.edges[self.first_edge[slot] as usize..self.first_edge[slot + 1] as usize]
    }

    /// Returns the rivals of one slot, the first to have the lock first.
    pub fn rivals(&self, slot: usize) -> &'static [Rival] {
        let from = self
            .rivals
            .partition_point(|rival| (rival.slot as usize) < slot);
        let count = self.rivals[from..].partition_point(|rival| rival.slot as usize == slot);
        &self.rivals[from..from + count]
    }

    /// Returns the followers of all slots of one thread, by slot.
    pub fn followers(&self, thread: u32) -> &'static [Follower] {
        let [from, to] = [thread, thread + 1].map(|thread| {
            let slot = self.first[thread as usize];
            self.followers.partition_point(|one| one.after < slot)
        });
        &self.followers[from..to]
    }

    pub fn n_edges(&self) -> usize {
        self.edges.len()
    }
}

/// Returns first slot per thread, operation per slot, and slot per operation.
pub fn streams(plan: &Plan) -> (Vec<u32>, Vec<u32>, Vec<u32>) {
    let actors = plan.actors().iter().copied();
    let (first, slots) = grouped(plan.threads().len(), actors.zip(0_u32..));
    let mut slot_of = vec![0; slots.len()];
    for (slot, at) in (0..).zip(&slots) {
        slot_of[*at as usize] = slot;
    }
    (first, slots, slot_of)
}

pub fn edges_by_slot(found: &[(u32, u32, u32)], slot_of: &[u32]) -> (Vec<u32>, Vec<(u32, u32)>) {
    let edge =
        |(op, thread, finished): &(u32, u32, u32)| (slot_of[*op as usize], (*thread, *finished));
    grouped(slot_of.len(), found.iter().map(edge))
}

fn by_slot(
    rivals: &[(u32, u32, u32)],
    plan: &Plan,
    first: &[u32],
    ops: &[u32],
    slot_of: &[u32],
) -> Vec<Rival> {
    let start = |op: u32| plan.ops()[op as usize].start_ns;
    // The call that would have closed a circle came last, however little time lay between.
    let asked = |op: u32| match semantics::was_deadlock(&plan.ops()[op as usize]) {
        true => i64::MAX,
        false => start(op),
    };
    let of = |(op, thread, finished): &(u32, u32, u32)| Rival {
        slot: slot_of[*op as usize],
        thread: *thread,
        finished: *finished,
        asked_first: start(ops[(first[*thread as usize] + finished - 1) as usize]) <= asked(*op),
    };
    let mut found: Vec<Rival> = rivals.iter().map(of).collect();
    found.sort_by_key(|rival| rival.slot);
    found
}

fn followers(waits: &[&[(u32, u32, u32)]], plan: &Plan, first: &[u32]) -> Vec<Follower> {
    let of = |(op, thread, finished): &(u32, u32, u32)| Follower {
        after: first[*thread as usize] + finished - 1,
        thread: plan.actors()[*op as usize],
    };
    let mut found: Vec<Follower> = waits.iter().copied().flatten().map(of).collect();
    found.sort_unstable();
    found.dedup();
    found
}

fn highest_fd(plan: &Plan) -> usize {
    let made = plan
        .ops()
        .iter()
        .filter(|op| semantics::makes_fd(op))
        .map(|op| op.ret as i32);
    let used = plan.ops().iter().flat_map(|op| [op.fd, op.fd2]);
    let open = plan.fds().iter().map(|fd| fd.fd);
    made.chain(used).chain(open).max().unwrap_or(0).max(0) as usize
}

/// Returns the threads that a thread forks; if it dies, they are never born.
pub fn children(plan: &Plan, thread: u32) -> impl Iterator<Item = u32> + '_ {
    let forks = plan
        .ops()
        .iter()
        .filter(move |op| op.op == PLAN_FORK && op.thread == thread);
    forks
        .filter(|op| op.arg != i64::from(NONE))
        .map(|op| op.arg as u32)
}
