//! A part of a plan that begins later: what happened before becomes the state at its start.
//!
//! The cut is one moment of the one order that explains all results. A call that was in flight then
//! belongs to the side on which it took effect, so each call finds what it saw.

mod restore;
#[cfg(test)]
mod tests;

use foldhash::{HashMap, HashMapExt, HashSet, HashSetExt};
use serde_json::{Value, json};
use spoolscope_traces::records::{
    ENTRY_LISTED, NONE, PLAN_FORK, PlanEntry, PlanOp, PlanThread, PlanXattr,
};
use std::collections::BTreeMap;

use crate::assemble::{Draft, pseudo};
use crate::model::expect::open_files::{Holdings, Process};
use crate::model::expect::tree::Tree;
use crate::model::order::one_order::Linear;
use crate::model::state::effects;
use crate::model::state::locks::Locks;
use crate::model::state::slots::Slot;
use crate::model::state::world::World;
use crate::model::state::xattrs::Named;
use crate::plan::Plan;

/// Keeps only the operations that take effect between two moments, in ns of the plan.
///
/// Returns the plan, and a summary of what was restored at its start.
pub fn cut(plan: &Plan, from_ns: i64, to_ns: i64) -> (Draft, Value) {
    let ops = plan.ops();
    let order = Linear::walk(plan).order;
    let reached = |ns: i64| {
        let first = order.iter().position(|at| ops[*at as usize].start_ns >= ns);
        first.unwrap_or(order.len())
    };
    let (first, past) = (reached(from_ns), reached(to_ns.max(from_ns)));
    let (mut world, mut locks) = (World::new(plan), Locks::default());
    let mut holdings = Holdings::new(plan, &world);
    for at in &order[..first] {
        let op = &ops[*at as usize];
        world.take_fd(*at, op);
        locks.apply(&holdings.counted_from_begin(op, &world), &world);
        effects::change_names(&mut world, op);
        effects::change_objects(&mut world, *at, op);
        holdings.apply(*at, op, &world);
    }
    let mut chosen = order[first..past].to_vec();
    chosen.sort_unstable();
    let mut cutter = Cutter::new(plan, &world, &holdings, &locks, from_ns);
    cutter.take_threads(&chosen);
    cutter.take_tree();
    cutter.take_processes();
    cutter.take_ops(&chosen);
    let in_flight = chosen
        .iter()
        .filter(|at| ops[**at as usize].start_ns < from_ns);
    let last_ns = ops.iter().map(|op| op.end_ns).max();
    let last_ns = last_ns.unwrap_or(0).max(plan.duration_ns());
    cutter.draft.duration_ns = (to_ns.min(last_ns) - from_ns).max(0);
    let facts = json!({
        "before": first,
        "after": order.len() - past,
        "in_flight": in_flight.count(),
        "open_files": cutter.draft.fds.len(),
        "threads": cutter.draft.threads.len(),
        "bytes": cutter.draft.tree_bytes(),
        "duration_ns": cutter.draft.duration_ns,
        "skipped": cutter.skipped,
    });
    (cutter.draft, facts)
}

struct Cutter<'a> {
    plan: &'a Plan,
    world: &'a World<'a>,
    holdings: &'a Holdings,
    locks: &'a Locks,
    from_ns: i64,
    draft: Draft,
    /// New index of each thread.
    threads: HashMap<u32, u32>,
    /// By the leader that each process had, the thread that stands for it at the start.
    roots: BTreeMap<u32, u32>,
    /// Forks that start further threads of these.
    forks: Vec<PlanOp>,
    /// Name of each object.
    names: HashMap<u32, u32>,
    /// Objects without a name: the one they get to be opened by, and the thread that opens them.
    nameless: BTreeMap<u32, (u32, u32)>,
    /// Open files whose listing is repeated.
    listed: HashSet<u32>,
    /// How many things that processes had cannot be restored.
    skipped: u64,
}

impl<'a> Cutter<'a> {
    fn new(
        plan: &'a Plan,
        world: &'a World<'a>,
        holdings: &'a Holdings,
        locks: &'a Locks,
        from_ns: i64,
    ) -> Self {
        let mut new = Self {
            plan,
            world,
            holdings,
            locks,
            from_ns,
            draft: Draft::default(),
            threads: HashMap::new(),
            roots: BTreeMap::new(),
            forks: Vec::new(),
            names: HashMap::new(),
            nameless: BTreeMap::new(),
            listed: HashSet::new(),
            skipped: 0,
        };
        for (path, slot) in (0..).zip(world.slots().now()) {
            if let Slot::Present(object) = slot {
                let name = new.draft.string(world.names().bytes(path));
                new.names.entry(*object).or_insert(name);
            }
        }
        new
    }

    /// Takes threads that live when the cut begins or are born in it. Each process that lives then
    /// is a root, and starts its further threads first of all.
    fn take_threads(&mut self, chosen: &[u32]) {
        let (ops, recorded) = (self.plan.ops(), self.plan.threads());
        let chosen = chosen.iter().map(|at| &ops[*at as usize]);
        let forks = chosen
            .clone()
            .filter(|op| op.op == PLAN_FORK && op.arg != i64::from(NONE));
        let forks: Vec<(u32, u32)> = forks.map(|op| (op.thread, op.arg as u32)).collect();
        let born: HashSet<u32> = forks.iter().map(|(_, child)| *child).collect();
        let acting: HashSet<u32> = chosen.map(|op| op.thread).collect();
        let there = |at: &u32| self.holdings.alive[*at as usize] || acting.contains(at);
        let there = (0..recorded.len() as u32).filter(there);
        let mut living: Vec<u32> = there.filter(|at| !born.contains(at)).collect();
        living.sort_by_key(|at| (self.world.leader(*at) != *at, *at));
        for at in living {
            self.take_living(at);
        }
        for (parent, child) in forks {
            let mut thread = self.late(&recorded[child as usize]);
            thread.parent = self.threads[&parent];
            self.push(child, thread);
        }
    }

    /// Takes a living thread: the first one of a process is its root, and forks the others.
    fn take_living(&mut self, at: u32) {
        let leader = self.world.leader(at);
        let process = self.holdings.processes.get(&leader);
        let mut thread = self.late(&self.plan.threads()[at as usize]);
        thread.cwd = process.map_or(NONE, |process| self.cwd_of(process));
        (thread.uid, thread.gid) = self.world.processes().ids(at);
        thread.umask = self.world.processes().umask(at);
        let root = self.roots.get(&leader).copied();
        thread.parent = root.unwrap_or(NONE);
        let new = self.push(at, thread);
        match root {
            None => drop(self.roots.insert(leader, new)),
            Some(root) => self.forks.push(PlanOp {
                arg: i64::from(new),
                ..pseudo(root, PLAN_FORK)
            }),
        }
    }

    /// Returns a thread with its times and strings moved; the parent is still to be set.
    fn late(&mut self, thread: &PlanThread) -> PlanThread {
        PlanThread {
            start_ns: thread.start_ns.saturating_sub(self.from_ns as u64),
            cwd: self.draft.taken(self.plan, thread.cwd),
            ..*thread
        }
    }

    fn push(&mut self, old: u32, thread: PlanThread) -> u32 {
        let new = self.draft.threads.len() as u32;
        self.draft.threads.push(thread);
        self.threads.insert(old, new);
        new
    }

    fn cwd_of(&mut self, process: &Process) -> u32 {
        match process.cwd {
            None => NONE,
            Some((Some(object), _)) => self.names.get(&object).copied().unwrap_or(NONE),
            Some((None, path)) => self.draft.taken(self.plan, path),
        }
    }

    fn take_tree(&mut self) {
        let tree = Tree::expected(self.plan, self.world);
        let mut done = HashSet::new();
        for (name, at) in &tree.names {
            let thing = &tree.things[*at];
            let path = self.draft.string(name);
            if done.insert(*at) {
                self.take_xattrs(path, &thing.xattrs);
            }
            let entry = PlanEntry {
                ino: thing.ino,
                size: thing.attributes.size,
                holes: (thing.attributes.size - thing.takes).max(0),
                mtime_ns: thing.attributes.mtime_ns,
                path,
                target: match thing.attributes.mode & libc::S_IFMT {
                    libc::S_IFLNK => self.draft.string(&thing.target),
                    _ => NONE,
                },
                mode: thing.attributes.mode,
                uid: thing.attributes.uid,
                gid: thing.attributes.gid,
                flags: if thing.listed { ENTRY_LISTED } else { 0 },
            };
            self.draft.entries.push(entry);
        }
        if tree.lost_and_found {
            let path = self.draft.string(b"lost+found");
            self.draft.entries.push(PlanEntry {
                path,
                target: NONE,
                mode: libc::S_IFDIR | 0o700,
                ..PlanEntry::default()
            });
        }
    }

    fn take_xattrs(&mut self, path: u32, xattrs: &Named) {
        let there = xattrs
            .iter()
            .filter_map(|(name, xattr)| Some((name, xattr.length?)));
        for (name, length) in there {
            let name = self.draft.string(name);
            self.draft.xattrs.push(PlanXattr {
                path,
                name,
                length,
                ..PlanXattr::default()
            });
        }
    }

    fn take_ops(&mut self, chosen: &[u32]) {
        for at in chosen {
            let op = &self.plan.ops()[*at as usize];
            let start_ns = (op.start_ns - self.from_ns).max(0);
            let arg = match op.op {
                PLAN_FORK if op.arg != i64::from(NONE) => i64::from(self.threads[&(op.arg as u32)]),
                _ => op.arg,
            };
            let moved = PlanOp {
                start_ns,
                end_ns: (op.end_ns - self.from_ns).max(start_ns),
                arg,
                thread: self.threads[&op.thread],
                ..self.draft.renamed(self.plan, op)
            };
            self.draft.ops.push(moved);
        }
    }
}
