//! Which operation waits for which: conflicts on one object, in linearised order.
//!
//! An edge exists where two operations of different threads conflict and either did not overlap
//! in the recording, or overlapped with a result that tells their order. Locks that may block
//! wait for the kernel, not for an edge, except for the turn among rivals: a rival that got the
//! lock first is let in first, or later edges could wait for a process stuck behind the wrong
//! holder. All edges agree with one order, so they cannot form a cycle.

use spoolscope_traces::records::{PLAN_FORK, PlanOp};
use std::collections::{HashMap, HashSet};

use crate::model::locks::LockKey;
use crate::model::needs;
use crate::model::sizes::{Seen, changes_size};
use crate::model::world::World;
use crate::plan::Plan;
use crate::semantics::{self, Kind, Lock};
use crate::touches::{self, Makes, Need, Touch};

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
enum Key {
    Name(u32),
    Data(u64),
    Lock(LockKey),
    /// A descriptor of a process with several threads.
    Fd(u32, i32),
    Cwd(u32),
    /// The position of an open file that processes share.
    Position(u32),
}

#[derive(Clone, Copy, Debug)]
struct Access {
    op: u32,
    writes: bool,
    /// The result tells the order even among overlapping operations.
    definite: bool,
    /// A lock that may sleep in the kernel.
    blocks: bool,
}

#[derive(Debug, Default)]
struct Track {
    writers: Vec<Access>,
    readers: Vec<Access>,
}

/// What an operation waits for, collected in linearised order.
#[derive(Debug)]
pub struct Edges<'a> {
    ops: &'a [PlanOp],
    /// Position of each operation in its thread.
    pub position: Vec<u32>,
    tracks: HashMap<Key, Track>,
    written: HashSet<u64>,
    threaded: Vec<bool>,
    waited: Vec<HashMap<u32, u32>>,
    /// (operation, thread waited for, operations it must have finished).
    pub found: Vec<(u32, u32, u32)>,
    current: HashMap<u32, u32>,
}

impl<'a> Edges<'a> {
    pub fn new(plan: &'a Plan) -> Self {
        let ops = plan.ops();
        let n_threads = plan.threads().len();
        let mut counts = vec![0_u32; n_threads];
        let position = ops
            .iter()
            .map(|op| {
                counts[op.thread as usize] += 1;
                counts[op.thread as usize] - 1
            })
            .collect();
        let mut per_process: HashMap<u32, u32> = HashMap::new();
        for thread in plan.threads() {
            *per_process.entry(thread.pid).or_default() += 1;
        }
        Self {
            ops,
            position,
            tracks: HashMap::new(),
            written: ops
                .iter()
                .filter(|op| changes_size(op))
                .map(|op| op.ino)
                .collect(),
            threaded: plan
                .threads()
                .iter()
                .map(|t| per_process[&t.pid] > 1)
                .collect(),
            waited: vec![HashMap::new(); n_threads],
            found: Vec::new(),
            current: HashMap::new(),
        }
    }

    /// Adds the next operation of the order; `locks` are those it touched.
    pub fn add(&mut self, at: u32, world: &World, locks: Vec<(LockKey, Lock)>) {
        let op = &self.ops[at as usize];
        self.add_names(at, op, world);
        self.add_data(at, op);
        if let Some(file) = world
            .shared_position(op)
            .filter(|_| semantics::moves_position(op))
        {
            self.access(
                Key::Position(file),
                Access {
                    op: at,
                    writes: true,
                    definite: false,
                    blocks: false,
                },
            );
        }
        let blocks = semantics::lock(op).is_some_and(|(_, blocks)| blocks);
        for (key, role) in locks {
            let writes = matches!(role, Lock::Exclusive | Lock::Release);
            self.access(
                Key::Lock(key),
                Access {
                    op: at,
                    writes,
                    definite: true,
                    blocks,
                },
            );
        }
        if self.threaded[op.thread as usize] {
            self.add_shared(at, op, world.leader(op.thread));
        }
        self.close_op(at, op.thread);
    }

    fn add_names(&mut self, at: u32, op: &PlanOp, world: &World) {
        for touch in touches::of(op).into_iter().flatten() {
            let known = op.ret >= 0 || needs::is_evidence(op, &touch);
            for above in world.names.ancestors(touch.path) {
                self.access(
                    Key::Name(*above),
                    Access {
                        op: at,
                        writes: false,
                        definite: known,
                        blocks: false,
                    },
                );
            }
            if world.names.changes(touch.path) {
                let writes = is_change(&touch);
                let definite = needs::is_evidence(op, &touch);
                self.access(
                    Key::Name(touch.path),
                    Access {
                        op: at,
                        writes,
                        definite,
                        blocks: false,
                    },
                );
            }
        }
    }

    fn add_data(&mut self, at: u32, op: &PlanOp) {
        if op.ino == 0 || op.ret < 0 || !self.written.contains(&op.ino) {
            return;
        }
        let writes = changes_size(op);
        let seen = Seen::by(op);
        let reads =
            seen.is_some() || matches!(semantics::kind(op), Kind::Read | Kind::Map | Kind::Fault);
        if writes || reads {
            let definite = match seen {
                Some(Seen::AtLeast(_)) | None => writes,
                Some(_) => true,
            };
            self.access(
                Key::Data(op.ino),
                Access {
                    op: at,
                    writes,
                    definite,
                    blocks: false,
                },
            );
        }
    }

    /// Descriptors and the working directory that threads of one process share.
    fn add_shared(&mut self, at: u32, op: &PlanOp, process: u32) {
        let access = |writes| Access {
            op: at,
            writes,
            definite: false,
            blocks: false,
        };
        if semantics::makes_fd(op) {
            self.access(Key::Fd(process, op.ret as i32), access(true));
        }
        let closes = semantics::kind(op) == Kind::Close;
        for fd in [op.fd, op.fd2, op.dirfd, op.dirfd2]
            .into_iter()
            .filter(|fd| *fd >= 0)
        {
            self.access(Key::Fd(process, fd), access(closes));
        }
        let moves = matches!(semantics::kind(op), Kind::Chdir | Kind::Fchdir);
        if moves || semantics::uses_path(op) || op.op == PLAN_FORK {
            self.access(Key::Cwd(process), access(moves));
        }
    }

    fn access(&mut self, key: Key, next: Access) {
        let track = self.tracks.entry(key).or_default();
        let ops = self.ops;
        let mut subsumed = None;
        for before in &track.writers {
            if ordered(ops, before, &next) {
                note(ops, &self.position, &mut self.current, before.op, next.op);
                subsumed = Some(before.op);
            }
        }
        if next.writes {
            for before in &track.readers {
                if ordered(ops, before, &next) {
                    note(ops, &self.position, &mut self.current, before.op, next.op);
                }
            }
            track
                .readers
                .retain(|before| !precedes(ops, before.op, next.op));
        }
        if let Some(last) = subsumed {
            track
                .writers
                .retain(|before| before.op == last || !precedes(ops, before.op, last));
        }
        match next.writes {
            true => track.writers.push(next),
            false => track.readers.push(next),
        }
    }

    /// Keeps of this operation's edges those that its thread has not waited for already.
    fn close_op(&mut self, at: u32, thread: u32) {
        let waited = &mut self.waited[thread as usize];
        for (other, finished) in self.current.drain() {
            let known = waited.entry(other).or_default();
            if *known < finished && other != thread {
                *known = finished;
                self.found.push((at, other, finished));
            }
        }
    }
}

fn note(ops: &[PlanOp], position: &[u32], current: &mut HashMap<u32, u32>, before: u32, at: u32) {
    let thread = ops[before as usize].thread;
    if thread == ops[at as usize].thread {
        return;
    }
    let finished = position[before as usize] + 1;
    let known = current.entry(thread).or_default();
    *known = finished.max(*known);
}

fn precedes(ops: &[PlanOp], before: u32, after: u32) -> bool {
    ops[before as usize].end_ns <= ops[after as usize].start_ns
}

/// Whether the later one of two conflicting operations must wait for the earlier one.
fn ordered(ops: &[PlanOp], before: &Access, next: &Access) -> bool {
    if precedes(ops, before.op, next.op) {
        return true;
    }
    // A waiting lock is woken by the release itself: waiting for it here would hide the wait.
    let releases = |op: u32| !matches!(semantics::lock(&ops[op as usize]), Some((role, _)) if role != Lock::Release);
    let sleeps = next.blocks && releases(before.op);
    before.definite && next.definite && !sleeps
}

/// Whether a call conflicts with all that reads the name: who found a directory full depends on
/// every name in it, and those calls read the directory.
pub fn is_change(touch: &Touch) -> bool {
    touch.makes != Makes::Same || touch.need == Need::Full
}
