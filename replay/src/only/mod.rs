//! A part of a plan: the chosen calls, and those of all others that they depend on.
//!
//! A call that is not chosen is kept, as given, if it changes or locks something that a kept call
//! uses at that time or later; with it come the calls that made its descriptors, moved their
//! positions and forked its thread. What happened to an inode number before it was given to a new
//! file is not needed. The result holds more than is needed, never less.

#[cfg(test)]
mod tests;

use foldhash::{HashMap, HashMapExt};
use serde_json::{Value, json};
use spoolscope_traces::records::{NONE, PLAN_FORK, PlanEntry, PlanFd, PlanOp, PlanXattr};

use crate::assemble::Draft;
use crate::model::names::Names;
use crate::model::needs;
use crate::model::world::World;
use crate::plan::Plan;
use crate::semantics::{self, Kind};
use crate::touches::{self, Makes, Need, Touch};

/// Keeps the chosen operations (one flag for each) and those they depend on.
///
/// Returns the plan, and how many operations were chosen, given and left out.
pub fn only(plan: &Plan, chosen: &[bool]) -> (Draft, Value) {
    let world = World::new(plan);
    let uses = Uses::of(plan, &world);
    let mut closure = Closure {
        ops: plan.ops(),
        names: &world.names,
        uses: &uses,
        kept: vec![false; plan.ops().len()],
        acting: vec![false; plan.threads().len()],
        open: Vec::new(),
    };
    let all = (0..plan.ops().len() as u32).zip(chosen);
    all.filter(|(_, chosen)| **chosen)
        .for_each(|(at, _)| closure.take(at));
    closure.close();
    let calls = plan.ops().iter().zip(closure.kept.iter().zip(chosen));
    let calls = calls.filter(|(op, _)| op.call != u64::MAX);
    let count = |kept: bool, chosen: bool| {
        let same = |(_, (was, of)): &(&PlanOp, (&bool, &bool))| (**was, **of) == (kept, chosen);
        calls.clone().filter(same).count()
    };
    let (chosen, given, left_out) = (count(true, true), count(true, false), count(false, false));
    let draft = draft(plan, &closure);
    let told = json!({
        "chosen": chosen,
        "given": given,
        "left_out": left_out,
        "threads": draft.threads.len(),
    });
    (draft, told)
}

/// Something that operations share: an operation that uses it depends on all that change it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
enum Thing {
    Name(u32),
    Inode(u64),
    /// The position and flags of an open file.
    File(u32),
    /// The parts of an inode that a process has mapped.
    Mapping(u32, u64),
}

/// A descriptor: the operation that made it, if one did, and the open file.
#[derive(Clone, Copy, Debug)]
struct Made {
    by: Option<u32>,
    file: u32,
}

/// The things that each operation uses, and the operations that change each thing.
#[derive(Debug, Default)]
struct Uses {
    /// Operations that made the descriptors an operation uses.
    makers: Vec<Vec<u32>>,
    things: Vec<Vec<Thing>>,
    /// In the order in which they began; each also uses what it changes.
    changers: HashMap<Thing, Vec<u32>>,
    /// Operations that close descriptors, with those that made them.
    closers: Vec<(u32, Vec<u32>)>,
    /// The operation that forked each thread.
    fork_of: HashMap<u32, u32>,
}

type Table = HashMap<i32, Made>;

impl Uses {
    fn of(plan: &Plan, world: &World) -> Self {
        let mut uses = Self::default();
        let mut tables: HashMap<u32, Table> = HashMap::new();
        let mut files = 0;
        for fd in plan.fds() {
            files += 1;
            // Numbers of files that are shared at start lie above those given here.
            let file = if fd.file == NONE {
                files
            } else {
                u32::MAX / 2 + fd.file % (u32::MAX / 2)
            };
            let table = tables.entry(world.leader(fd.thread)).or_default();
            table.insert(fd.fd, Made { by: None, file });
        }
        for (at, op) in (0..).zip(plan.ops()) {
            let leader = world.leader(op.thread);
            let table = tables.entry(leader).or_default();
            let used = [op.fd, op.fd2, op.dirfd, op.dirfd2];
            let used: Vec<Made> = used
                .iter()
                .filter_map(|fd| table.get(fd))
                .copied()
                .collect();
            uses.makers
                .push(used.iter().filter_map(|made| made.by).collect());
            uses.add_things(at, op, leader, &used, plan, world);
            if op.ret < 0 {
                continue;
            }
            files += 1;
            uses.follow(at, op, table, files);
            if op.op == PLAN_FORK && op.arg != i64::from(NONE) {
                let child = op.arg as u32;
                uses.fork_of.insert(child, at);
                if world.leader(child) == child {
                    let copy = table.clone();
                    tables.insert(child, copy);
                }
            }
        }
        uses
    }

    fn add_things(
        &mut self,
        at: u32,
        op: &PlanOp,
        leader: u32,
        used: &[Made],
        plan: &Plan,
        world: &World,
    ) {
        let mut things = Vec::new();
        let mut changed = Vec::new();
        for touch in touches::of(op).into_iter().flatten() {
            let above = world.names.above(&touch).iter();
            things.extend(above.map(|path| Thing::Name(*path)));
            things.push(Thing::Name(touch.path));
            if op.ret >= 0 && (touch.makes != Makes::Same || changes_named(op)) {
                changed.push(Thing::Name(touch.path));
            }
            // The cause of a refusal, or of a loop, may be anywhere on its way.
            if semantics::was_denied(op) || needs::went_round(op) {
                things.extend(world.way_to(touch.name()).into_iter().map(Thing::Name));
            }
        }
        let clones = semantics::kind(op) == Kind::Clone;
        let second = clones || semantics::is_copy(semantics::kind(op));
        let inodes = [op.ino].into_iter().chain(used.iter().filter_map(|made| {
            let maker = made.by.map(|by| plan.ops()[by as usize].ino);
            maker.filter(|_| second)
        }));
        // The result of a close does not depend on what was done to the file.
        let closes = semantics::kind(op) == Kind::Close;
        for ino in inodes.filter(|ino| *ino != 0 && !closes) {
            things.push(Thing::Inode(ino));
            // The source of a clone is only read.
            let reads = clones && ino != op.ino;
            if op.ret >= 0 && changes_inode(op) && !reads {
                changed.push(Thing::Inode(ino));
            }
            let mapping = Thing::Mapping(leader, ino);
            match semantics::kind(op) {
                Kind::Map if op.ret >= 0 => {
                    things.push(mapping);
                    changed.push(mapping);
                }
                Kind::Fault | Kind::Unmap | Kind::Msync => things.push(mapping),
                _ => {}
            }
        }
        let moves = semantics::moves_position(op) || op.cmd == libc::F_SETFL && is_fcntl(op);
        if moves && op.ret >= 0 {
            let files = used.iter().map(|made| Thing::File(made.file));
            let files: Vec<Thing> = files.collect();
            things.extend(&files);
            changed.extend(&files);
        }
        for thing in changed {
            self.changers.entry(thing).or_default().push(at);
        }
        self.things.push(things);
    }

    /// Follows the descriptors of a process; `file` is the number of a new open file.
    fn follow(&mut self, at: u32, op: &PlanOp, table: &mut Table, file: u32) {
        let mut closed = |made: Option<Made>| {
            if let Some(by) = made.and_then(|made| made.by) {
                self.closers.push((at, vec![by]));
            }
        };
        match semantics::kind(op) {
            Kind::Close => closed(table.remove(&op.fd)),
            Kind::CloseRange => {
                let (fds, marks) = semantics::fd_range(op);
                let inside = table.iter().filter(|(fd, _)| fds.contains(fd));
                let makers = inside.filter_map(|(_, made)| made.by).collect();
                self.closers.push((at, makers));
                table.retain(|fd, _| marks || !fds.contains(fd));
            }
            Kind::Open if semantics::makes_fd(op) => {
                table.insert(op.ret as i32, Made { by: Some(at), file });
            }
            _ if semantics::makes_fd(op) => {
                let source = table.get(&op.fd).copied();
                let old = table.remove(&(op.ret as i32));
                if let Some(source) = source {
                    table.insert(
                        op.ret as i32,
                        Made {
                            by: Some(at),
                            ..source
                        },
                    );
                }
                closed(old);
            }
            _ => {}
        }
    }
}

fn is_fcntl(op: &PlanOp) -> bool {
    semantics::kind(op) == Kind::Fcntl
}

/// Returns whether a call changes the object at its name: such calls have no inode recorded.
fn changes_named(op: &PlanOp) -> bool {
    matches!(
        semantics::kind(op),
        Kind::Chmod | Kind::Chown | Kind::SetXattr | Kind::Truncate | Kind::Touch
    )
}

/// Returns whether others that use the object may see a difference, or have to wait.
fn changes_inode(op: &PlanOp) -> bool {
    match semantics::kind(op) {
        Kind::Write | Kind::Truncate | Kind::Ftruncate | Kind::Fallocate | Kind::Clone => true,
        Kind::Chmod | Kind::Chown | Kind::SetXattr | Kind::Mkdir | Kind::Mknod => true,
        Kind::Rename | Kind::Link | Kind::Unlink | Kind::Flock => true,
        Kind::Open => semantics::open_flags(op) & (libc::O_CREAT | libc::O_TRUNC) != 0,
        Kind::Fcntl => semantics::is_lock_command(op.cmd),
        kind => semantics::is_copy(kind),
    }
}

/// The operations kept, grown until nothing is missing.
struct Closure<'a> {
    ops: &'a [PlanOp],
    names: &'a Names<'a>,
    uses: &'a Uses,
    kept: Vec<bool>,
    /// Threads with a kept operation.
    acting: Vec<bool>,
    /// Operations that are kept, but not looked at yet.
    open: Vec<u32>,
}

impl Closure<'_> {
    fn take(&mut self, at: u32) {
        if !std::mem::replace(&mut self.kept[at as usize], true) {
            self.open.push(at);
        }
    }

    fn close(&mut self) {
        loop {
            while let Some(at) = self.open.pop() {
                self.follow(at);
            }
            self.take_lives();
            if self.open.is_empty() {
                return;
            }
        }
    }

    fn follow(&mut self, at: u32) {
        let (op, uses) = (&self.ops[at as usize], self.uses);
        self.acting[op.thread as usize] = true;
        uses.makers[at as usize]
            .iter()
            .for_each(|maker| self.take(*maker));
        for thing in &uses.things[at as usize] {
            self.want(*thing, at);
        }
        // A call that lists a directory, or finds it empty or not, depends on every name in it.
        let listed = Some(op.path).filter(|_| semantics::kind(op) == Kind::Getdents);
        let full = |touch: &Touch| matches!(touch.need, Need::Full | Need::Empty);
        let touches = touches::of(op);
        let met = touches
            .iter()
            .flatten()
            .filter(|touch| full(touch))
            .map(|touch| touch.path);
        for directory in met.chain(listed).filter(|path| *path != NONE) {
            let below: Vec<u32> = self.names.directly_below(directory).collect();
            below
                .into_iter()
                .for_each(|path| self.want(Thing::Name(path), at));
        }
        // Names in a directory under its old name are in it under the new one.
        if semantics::kind(op) == Kind::Rename && op.ret >= 0 {
            for path in [op.path, op.path2].into_iter().filter(|path| *path != NONE) {
                let below = self.names.below(path);
                below
                    .into_iter()
                    .for_each(|path| self.want(Thing::Name(path), at));
            }
        }
        if let Some(fork) = uses.fork_of.get(&op.thread) {
            self.take(*fork);
        }
    }

    /// Takes the operations that changed a thing before `by`, which uses it, had ended.
    fn want(&mut self, thing: Thing, by: u32) {
        let Some(changers) = self.uses.changers.get(&thing) else {
            return;
        };
        let user = &self.ops[by as usize];
        let inode = matches!(thing, Thing::Inode(_));
        if inode && semantics::is_birth(user) {
            return;
        }
        let begun = |at: &u32| self.ops[*at as usize].start_ns <= user.end_ns;
        let before = changers.partition_point(begun);
        for at in changers[..before].iter().filter(|at| **at != by).rev() {
            let change = &self.ops[*at as usize];
            let born = inode && semantics::is_birth(change);
            let overlaps = born && change.end_ns > user.start_ns;
            // A kept operation uses the thing as well: those before it are kept, or will be.
            let enough = born || self.kept[*at as usize];
            self.take(*at);
            if enough && !overlaps {
                return;
            }
        }
    }

    /// Takes also what later calls of acting threads depend on without using it: working directory,
    /// umask, user, exec and exit, and the closing of descriptors that are kept.
    fn take_lives(&mut self) {
        for (at, op) in (0..).zip(self.ops) {
            let lives = matches!(
                semantics::kind(op),
                Kind::Chdir | Kind::Fchdir | Kind::Umask | Kind::Identity | Kind::Exec | Kind::Exit
            );
            if lives && self.acting[op.thread as usize] {
                self.take(at);
            }
        }
        for (at, makers) in &self.uses.closers {
            let acts = self.acting[self.ops[*at as usize].thread as usize];
            if acts && makers.iter().any(|maker| self.kept[*maker as usize]) {
                self.take(*at);
            }
        }
    }
}

fn draft(plan: &Plan, closure: &Closure) -> Draft {
    let mut draft = Draft::default();
    let mut threads: HashMap<u32, u32> = HashMap::new();
    let acting = (0..)
        .zip(plan.threads())
        .filter(|(at, _)| closure.acting[*at as usize]);
    for (new, (at, _)) in (0..).zip(acting.clone()) {
        threads.insert(at, new);
    }
    for (_, thread) in acting {
        let mut thread = *thread;
        thread.parent = threads.get(&thread.parent).copied().unwrap_or(NONE);
        thread.cwd = draft.taken(plan, thread.cwd);
        draft.threads.push(thread);
    }
    let kept = plan
        .ops()
        .iter()
        .zip(&closure.kept)
        .filter(|(_, kept)| **kept);
    for (op, _) in kept {
        let child = || threads.get(&(op.arg as u32)).copied().unwrap_or(NONE);
        let op = PlanOp {
            thread: threads[&op.thread],
            arg: if op.op == PLAN_FORK {
                i64::from(child())
            } else {
                op.arg
            },
            ..draft.renamed(plan, op)
        };
        draft.ops.push(op);
    }
    for fd in plan.fds() {
        if let Some(thread) = threads.get(&fd.thread) {
            let path = draft.taken(plan, fd.path);
            draft.fds.push(PlanFd {
                thread: *thread,
                path,
                ..*fd
            });
        }
    }
    for entry in plan.entries() {
        let (path, target) = (
            draft.taken(plan, entry.path),
            draft.taken(plan, entry.target),
        );
        draft.entries.push(PlanEntry {
            path,
            target,
            ..*entry
        });
    }
    for xattr in plan.xattrs() {
        let (path, name) = (draft.taken(plan, xattr.path), draft.taken(plan, xattr.name));
        draft.xattrs.push(PlanXattr {
            path,
            name,
            ..*xattr
        });
    }
    draft.duration_ns = plan.duration_ns();
    draft
}
