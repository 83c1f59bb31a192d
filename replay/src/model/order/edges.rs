//! Edges: an operation waits for others that conflict on one object, in linearised order.
//!
//! An edge exists where two operations of different threads conflict and either did not overlap in
//! the recording, or overlapped with a result that shows their order. Locks have rules of their own
//! (`grants.rs`). All edges agree with one order, so they cannot form a cycle.

use foldhash::{HashMap, HashMapExt, HashSet};
use smallvec::SmallVec;
use spoolscope_traces::records::{NONE, PlanOp, PlanThread};

use crate::columns::Columns;
use crate::model::order::depends::Depends;
use crate::model::order::grants::{Flight, Grants};
use crate::model::order::keys::{Access, Key, Why};
use crate::model::order::reasons::Reasons;
use crate::model::order::subjects;
use crate::model::state::locks::Change;
use crate::model::state::processes::effective_ns;
use crate::model::state::required_names;
use crate::model::state::sizes::written;
use crate::model::state::world::World;
use crate::plan::Plan;
use crate::semantics::{self, Kind, Lease};
use crate::touches::{Makes, Need, Touch, Touches};

/// By thread, the last operation that took all of something, as a listing takes the names of a
/// directory, and the last that changed some of it. Changes need no order among themselves.
#[derive(Debug, Default)]
struct Whole {
    taken: HashMap<u32, u32>,
    changed: HashMap<u32, u32>,
}

/// Most keys have few of each, which are kept in place.
#[derive(Debug, Default)]
struct Track {
    writers: SmallVec<[Access; 2]>,
    readers: SmallVec<[Access; 2]>,
}

/// Collects what operations wait for, in linearised order.
#[derive(Debug)]
pub struct Edges<'a> {
    ops: &'a [PlanOp],
    /// The few fields that are read of operations that are over.
    columns: &'a Columns,
    threads: &'a [PlanThread],
    /// Position in its thread of each operation that has begun.
    pub position: Vec<u32>,
    /// By thread, the number of operations that have begun.
    begun: Vec<u32>,
    tracks: HashMap<Key, Track>,
    /// Tracks of names; index = path.
    of_names: Vec<Track>,
    wholes: HashMap<Key, Whole>,
    /// Tracks of inodes that may be written to; one that is only read needs none.
    of_data: HashMap<u64, Track>,
    leased: HashSet<u64>,
    /// An object had no room for an attribute: all changes of its others count.
    pub(in crate::model) crowded: bool,
    /// A file may inherit the group of its directory.
    pub(in crate::model) inherits: bool,
    waited: Vec<HashMap<u32, u32>>,
    /// (operation, thread waited for, number of operations it must have finished).
    pub found: Vec<(u32, u32, u32)>,
    /// The same for rivals: they count when the operation gets its lock, not when it is issued.
    pub rivals: Vec<(u32, u32, u32)>,
    grants: Grants,
    /// Kept only if asked for.
    pub why: Option<Reasons>,
    pub depends: Option<Depends>,
    current: Current,
}

impl<'a> Edges<'a> {
    pub fn new(plan: &'a Plan) -> Self {
        let ops = plan.ops();
        let n_threads = plan.threads().len();
        Self {
            ops,
            columns: plan.columns(),
            threads: plan.threads(),
            position: Vec::with_capacity(ops.len()),
            begun: vec![0; n_threads],
            tracks: HashMap::new(),
            of_names: Vec::with_capacity(plan.n_strings() as usize),
            wholes: HashMap::new(),
            of_data: written(plan).map(|ino| (ino, Track::default())).collect(),
            leased: plan
                .of_kind(|kind| kind == Kind::Fcntl)
                .filter(|(_, op)| semantics::lease(op) == Some(Lease::Asks))
                .map(|(_, op)| op.ino)
                .collect(),
            crowded: plan
                .of_kind(|kind| kind == Kind::SetXattr)
                .any(|(_, op)| semantics::lacked_room(op)),
            inherits: subjects::may_be_inherited(plan),
            waited: vec![HashMap::new(); n_threads],
            found: Vec::new(),
            why: None,
            depends: None,
            rivals: Vec::new(),
            grants: Grants::default(),
            current: Current::new(n_threads),
        }
    }

    /// Makes edges that keep their reasons.
    pub fn explained(plan: &'a Plan, why: Reasons) -> Self {
        Self {
            why: Some(why),
            ..Self::new(plan)
        }
    }

    /// Makes edges, and notes what each operation depends on.
    pub fn with_depends(plan: &'a Plan) -> Self {
        Self {
            depends: Some(Depends::default()),
            ..Self::new(plan)
        }
    }

    /// Notes that the next operation of the recording begins.
    pub fn begin(&mut self, thread: u32) {
        let begun = &mut self.begun[thread as usize];
        self.position.push(*begun);
        *begun += 1;
    }

    /// Adds the next operation of the order, before it changes names. `changes` are its effects on
    /// locks; the operations in `flight` come later in the order.
    pub fn add(&mut self, at: u32, world: &World, changes: &[Change], flight: Flight) {
        let op = &self.ops[at as usize];
        let touches = world.touches(op);
        if let Some(depends) = &mut self.depends {
            depends.begin(at, op, world);
            self.add_contents(at, op, &touches, world);
        }
        self.add_names(at, op, &touches, world);
        self.add_listed(at, op, &touches, world);
        self.add_lease(at, op, world);
        if semantics::changes_open_file(op)
            && let Some(file) = world.position_of_several(op)
        {
            let access = Access {
                op: at,
                definite: false,
            };
            self.access(Key::Position(file), true, access);
        }
        for change in changes {
            if let Some(file) = change.ends_for() {
                self.wholes.remove(&Key::Copies(file));
            }
            let before = self.grants.add(self.ops, at, *change, flight);
            if let Some(depends) = &mut self.depends {
                depends.locks(self.ops, at, change, &before);
            }
            for earlier in before.ended {
                let key = Key::Lock(change.hold.key);
                note(
                    self.columns,
                    &self.position,
                    &mut self.current,
                    (earlier, at, true),
                    key,
                );
            }
            for rival in before.rivals {
                let thread = self.columns.threads[rival as usize];
                let finished = self.position[rival as usize] + 1;
                self.rivals.push((at, thread, finished));
            }
        }
        if semantics::was_deadlock(op) {
            self.add_circle(at, flight);
        }
        if world.processes().is_threaded(op.thread) {
            self.add_shared(at, op, world);
        }
    }

    /// Adds the sleepers that a refused lock depends on. The kernel refuses the lock that would
    /// close a circle: all others of the circle sleep by then. Any sleeper may be one of them.
    fn add_circle(&mut self, at: u32, flight: Flight) {
        let op = &self.ops[at as usize];
        for sleeper in flight.ops {
            let other = &self.ops[*sleeper as usize];
            let asleep = other.start_ns < op.end_ns && semantics::may_close_circle(other);
            if asleep && other.thread != op.thread {
                let finished = self.position[*sleeper as usize] + 1;
                if let Some(depends) = &mut self.depends {
                    depends.note(at, *sleeper);
                }
                self.rivals.push((at, other.thread, finished));
            }
        }
    }

    /// Continues `add` once it is known what the names of the operation lead to.
    pub fn add_objects(&mut self, at: u32, world: &World) {
        let op = &self.ops[at as usize];
        self.add_data(at, op, world);
        self.add_xattrs(at, op, world);
        self.add_attributes(at, op, world);
        self.close_op(at, op.thread);
    }

    /// Notes open files with locks of which the next operation to be added closes descriptors. The
    /// operation that closes the last one of a file comes after all others.
    pub fn let_go(&mut self, at: u32, files: &[(u32, bool)]) {
        for (file, last) in files {
            let key = Key::Copies(*file);
            if *last && !self.wholes.contains_key(&key) {
                continue;
            }
            self.meet(at, key, !last);
        }
    }

    /// Notes that the next operation to be added uses a descriptor that `opened` made elsewhere.
    pub fn use_passed(&mut self, at: u32, opened: u32, process: u32) {
        let key = Key::Fd(process, self.ops[at as usize].fd);
        let edge = (opened, at, true);
        if let Some(depends) = &mut self.depends {
            depends.note(at, opened);
        }
        note(self.columns, &self.position, &mut self.current, edge, key);
    }

    fn add_names(&mut self, at: u32, op: &PlanOp, touches: &Touches, world: &World) {
        for touch in touches.iter().flatten() {
            let evidence = required_names::is_evidence(op, touch);
            let access = |definite| Access { op: at, definite };
            for above in world.names().above(touch) {
                self.access(Key::Name(*above), false, access(op.ret >= 0 || evidence));
            }
            if world.names().changes(touch.path) {
                self.access(Key::Name(touch.path), is_change(touch), access(evidence));
            }
            if required_names::went_round(op) {
                for met in world.way_to(touch.name()) {
                    self.access(Key::Name(met), false, access(false));
                }
            }
        }
    }

    /// Notes the names in a directory on which a call depends: one that lists it, finds it empty or
    /// not, or moves it with all that is in it.
    fn add_contents(&mut self, at: u32, op: &PlanOp, touches: &Touches, world: &World) {
        let full = |touch: &&Touch| matches!(touch.need, Need::Full | Need::Empty);
        let found = touches.iter().flatten().filter(full);
        let mut inside: Vec<u32> = Vec::new();
        let lists = semantics::kind(op) == Kind::Getdents;
        let listed = Some(op.path).filter(|path| lists && *path != NONE);
        for directory in found.map(|touch| touch.path).chain(listed) {
            inside.extend(world.names().directly_below(directory));
        }
        if semantics::kind(op) == Kind::Rename && op.ret >= 0 {
            for directory in [op.path, op.path2].into_iter().filter(|at| *at != NONE) {
                inside.extend(world.names().below(directory));
            }
        }
        let Some(depends) = &mut self.depends else {
            return;
        };
        for name in inside {
            if let Some(track) = self.of_names.get(name as usize) {
                depends.uses(at, Key::Name(name), &track.writers);
            }
        }
    }

    /// Orders listings and the changes of names that they show.
    fn add_listed(&mut self, at: u32, op: &PlanOp, touches: &Touches, world: &World) {
        // A getdents with ENOENT shows that its directory was removed.
        let gone = op.ret == -i64::from(libc::ENOENT) && semantics::kind(op) == Kind::Getdents;
        if (op.ret < 0 && !gone) || world.listed().is_empty() {
            return;
        }
        let lists = matches!(
            semantics::kind(op),
            Kind::Getdents | Kind::Open | Kind::Seek
        );
        if lists && world.listed().has(op.path) {
            self.meet(at, Key::Listing(op.path), false);
        }
        for touch in touches.iter().flatten() {
            let there = || world.meets(touch.path, Need::Absent) == Some(false);
            if touch.makes == Makes::Same || touch.makes == Makes::Object && there() {
                continue;
            }
            let directory = world.names().directory(touch.path);
            for listed in directory.into_iter().chain([touch.path]) {
                if world.listed().has(listed) {
                    self.meet(at, Key::Listing(listed), true);
                }
            }
        }
    }

    /// Notes that an operation changes something or, if not, takes it as a whole.
    pub(in crate::model) fn meet(&mut self, at: u32, key: Key, changes: bool) {
        if let Some(depends) = &mut self.depends {
            depends.meets(at, key, changes);
        }
        let known = self.wholes.entry(key).or_default();
        let (own, others) = match changes {
            true => (&mut known.changed, &known.taken),
            false => (&mut known.taken, &known.changed),
        };
        own.insert(self.ops[at as usize].thread, at);
        for before in others.values() {
            // If that operation was under way, only those before it in its thread count.
            let ended_ns = match self.columns.kinds[*before as usize] {
                Kind::Fork => effective_ns(self.threads, &self.ops[*before as usize]),
                _ => self.columns.ends_ns[*before as usize],
            };
            let whole = ended_ns <= self.ops[at as usize].start_ns;
            note(
                self.columns,
                &self.position,
                &mut self.current,
                (*before, at, whole),
                key,
            );
        }
    }

    /// Orders lease calls with those that open and close the file: its open descriptors decide if a
    /// lease is given. An open during a lease waits in the call until that is given up.
    fn add_lease(&mut self, at: u32, op: &PlanOp, world: &World) {
        if self.leased.is_empty() {
            return;
        }
        let role = semantics::lease(op);
        let process = world.leader(op.thread);
        let closed = world.closed_by(op).into_iter();
        let objects = closed.filter_map(|fd| world.descriptors().get(process, fd).object);
        let closed = objects.map(|object| world.object(object).ino());
        let inodes = role.map(|_| op.ino).into_iter().chain(closed);
        let mut leased: Vec<u64> = inodes.filter(|ino| self.leased.contains(ino)).collect();
        leased.sort_unstable();
        leased.dedup();
        for ino in leased {
            let access = Access {
                op: at,
                definite: false,
            };
            self.access(Key::Lease(ino), role == Some(Lease::Asks), access);
        }
    }

    /// Returns whether an operation used this key, which must not be one of names or data.
    pub(in crate::model) fn knows(&self, key: Key) -> bool {
        self.tracks.contains_key(&key)
    }

    pub(in crate::model) fn access(&mut self, key: Key, writes: bool, next: Access) {
        let track = match key {
            Key::Name(path) => {
                let path = path as usize;
                if self.of_names.len() <= path {
                    self.of_names.resize_with(path + 1, Track::default);
                }
                &mut self.of_names[path]
            }
            Key::Data(ino) => match self.of_data.get_mut(&ino) {
                Some(track) => track,
                None => return,
            },
            _ => self.tracks.entry(key).or_default(),
        };
        if let Some(depends) = &mut self.depends {
            depends.uses(next.op, key, &track.writers);
        }
        let (ops, ends_ns) = (self.ops, &self.columns.ends_ns);
        let precedes =
            |before: u32, after: u32| ends_ns[before as usize] <= ops[after as usize].start_ns;
        // The later one of two conflicting operations must wait for the earlier one.
        let ordered =
            |before: &Access| precedes(before.op, next.op) || before.definite && next.definite;
        let mut noted = |before: &Access| {
            let edge = (before.op, next.op, true);
            note(self.columns, &self.position, &mut self.current, edge, key);
        };
        let mut subsumed = None;
        for before in &track.writers {
            if ordered(before) {
                noted(before);
                subsumed = Some(before.op);
            }
        }
        if writes {
            for before in &track.readers {
                if ordered(before) {
                    noted(before);
                }
            }
            track.readers.retain(|before| !precedes(before.op, next.op));
        }
        if let Some(last) = subsumed.filter(|_| track.writers.len() > 1) {
            track
                .writers
                .retain(|before| before.op == last || !precedes(before.op, last));
        }
        match writes {
            true => track.writers.push(next),
            false => track.readers.push(next),
        }
    }

    /// Keeps those edges of this operation that its thread has not waited for already.
    fn close_op(&mut self, at: u32, thread: u32) {
        let waited = &mut self.waited[thread as usize];
        for (other, (finished, key)) in self.current.drain() {
            let known = waited.entry(other).or_default();
            let waits = *known < finished;
            if waits {
                *known = finished;
                self.found.push((at, other, finished));
            }
            if let Some(why) = &mut self.why {
                why.push(&Why {
                    op: at,
                    thread: other,
                    finished,
                    key: Some(key),
                    waits,
                });
            }
        }
    }
}

/// Threads that an operation waits for: how many operations each must have finished, and why.
#[derive(Debug)]
struct Current {
    of_thread: Vec<Option<(u32, Key)>>,
    /// Threads of which something is known.
    threads: Vec<u32>,
}

impl Current {
    fn new(n_threads: usize) -> Self {
        Self {
            of_thread: vec![None; n_threads],
            threads: Vec::new(),
        }
    }

    fn raise(&mut self, thread: u32, finished: u32, key: Key) {
        let known = &mut self.of_thread[thread as usize];
        match known {
            None => self.threads.push(thread),
            Some(known) if known.0 >= finished => return,
            Some(_) => {}
        }
        *known = Some((finished, key));
    }

    fn drain(&mut self) -> impl Iterator<Item = (u32, (u32, Key))> + '_ {
        // The same plan has the same edges in the same order each time.
        self.threads.sort_unstable();
        let of_thread = &mut self.of_thread;
        let threads = self.threads.drain(..);
        threads.filter_map(|thread| Some((thread, of_thread[thread as usize].take()?)))
    }
}

/// Notes that `at` waits for the thread of `before`: for `before` if `whole`, else for the
/// operation before that. Only the last one of each thread counts.
fn note(
    columns: &Columns,
    position: &[u32],
    current: &mut Current,
    (before, at, whole): (u32, u32, bool),
    key: Key,
) {
    let thread = columns.threads[before as usize];
    let finished = position[before as usize] + u32::from(whole);
    if thread != columns.threads[at as usize] && finished > 0 {
        current.raise(thread, finished, key);
    }
}

/// Returns whether a call conflicts with all calls that read the name. A call that found a
/// directory full depends on every name in it, and calls with those names read the directory.
pub fn is_change(touch: &Touch) -> bool {
    touch.makes != Makes::Same || touch.need == Need::Full
}
