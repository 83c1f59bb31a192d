//! One order of all operations that explains their recorded results.
//!
//! Every operation takes effect at one moment between its recorded start and end. The trace is
//! walked in time. An operation gets its place when it ends, unless a result asks for another: an
//! operation that saw the state before a change goes before it, one that saw the state after pulls
//! the change forward. Operations that overlapped in a contest for the same names are put in order
//! by a search. Only operations that overlapped in the recording can be moved.

use foldhash::HashMap;
use smallvec::SmallVec;
use spoolscope_traces::records::{PLAN_FORK, PlanOp};
use std::cmp::Reverse;
use std::collections::BinaryHeap;

use crate::model::expect::listings::{Listings, Watch};
use crate::model::order::arrivals::Arrivals;
use crate::model::order::contest;
use crate::model::order::contest_turns::Turns;
use crate::model::order::depends::Found;
use crate::model::order::edges::Edges;
use crate::model::order::grants::Flight;
use crate::model::order::inode_reuse;
use crate::model::order::reasons::Reasons;
use crate::model::order::refusals;
use crate::model::order::rivals::{self, ByName, Rivals, conflict};
use crate::model::order::seen_sizes;
use crate::model::order::seen_xattrs;
use crate::model::state::effects;
use crate::model::state::locks::Locks;
use crate::model::state::processes::effective_ns;
use crate::model::state::required_names::any_need;
use crate::model::state::world::World;
use crate::plan::Plan;
use crate::semantics::{self, Kind};
use crate::touches::{self, Makes, Need, Touch};

const DEEPEST: usize = 16;
/// Number of operations that all searches together may try or look at, so that the walk ends even
/// if no order explains the trace.
const ALLOWANCE: u64 = 1_000_000;
const ALLOWANCE_PER_OP: u64 = 20;

/// The walk over the trace; `world` ends as the expected final state.
#[derive(Debug)]
pub struct Linear<'a> {
    plan: &'a Plan,
    ops: &'a [PlanOp],
    pub world: World<'a>,
    pub locks: Locks,
    pub edges: Edges<'a>,
    in_flight: Vec<u32>,
    in_flight_of: Vec<Option<u32>>,
    fork_of: HashMap<u32, u32>,
    placed: Vec<bool>,
    busy: Vec<u32>,
    /// The first operation that has not begun.
    next: u32,
    pub turns: Turns,
    by_name: Option<ByName>,
    arrivals: Arrivals,
    /// Operations that searches may still try, and that the gathering of rivals may still meet.
    allowance: u64,
    rivals_allowance: u64,
    watch: Watch,
    /// Listings whose names are known.
    pub listings: Listings,
    /// Operations in the order found.
    pub order: Vec<u32>,
    /// Results that no order of the overlapping operations explains.
    pub unexplained: Vec<u32>,
}

impl<'a> Linear<'a> {
    /// Orders the whole plan.
    pub fn walk(plan: &'a Plan) -> Self {
        Self::ordered(plan, Edges::new(plan))
    }

    /// As `walk`, and keeps why each operation waits.
    pub fn explained(plan: &'a Plan, why: Reasons) -> Self {
        Self::ordered(plan, Edges::explained(plan, why))
    }

    /// Returns the order of the whole plan, and what each operation depends on.
    pub fn with_depends(plan: &'a Plan) -> (Vec<u32>, Found) {
        let linear = Self::ordered(plan, Edges::with_depends(plan));
        let depends = linear.edges.depends.unwrap_or_default();
        (linear.order, depends.done(plan))
    }

    fn ordered(plan: &'a Plan, edges: Edges<'a>) -> Self {
        let ops = plan.ops();
        let forks = plan.of_kind(|kind| kind == Kind::Fork);
        let allowance = ALLOWANCE + ALLOWANCE_PER_OP * ops.len() as u64;
        let mut linear = Self {
            plan,
            ops,
            world: World::new(plan),
            locks: Locks::default(),
            edges,
            in_flight: Vec::new(),
            in_flight_of: vec![None; plan.threads().len()],
            fork_of: forks.map(|(at, op)| (op.arg as u32, at)).collect(),
            placed: vec![false; ops.len()],
            busy: Vec::new(),
            next: 0,
            turns: Turns::default(),
            by_name: None,
            arrivals: Arrivals::new(allowance),
            allowance,
            rivals_allowance: allowance,
            watch: Watch::default(),
            listings: Listings::default(),
            order: Vec::with_capacity(ops.len()),
            unexplained: Vec::new(),
        };
        linear.run();
        linear
    }

    fn run(&mut self) {
        let mut ends: BinaryHeap<Reverse<(i64, u32)>> = BinaryHeap::new();
        for (at, op) in (0..).zip(self.ops) {
            while let Some(Reverse((end, ended))) = ends.peek().copied()
                && end <= op.start_ns
            {
                ends.pop();
                self.place(ended);
            }
            self.start(at);
            let next_ns = self.ops.get(at as usize + 1).map(|next| next.start_ns);
            let end_ns = match op.op == PLAN_FORK && self.world.processes().is_threaded(op.thread) {
                true => effective_ns(self.plan.threads(), op),
                false => op.end_ns,
            };
            let is_first = ends.peek().is_none_or(|first| first.0 > (end_ns, at));
            // Most operations end before the next one begins.
            match is_first && next_ns.is_some_and(|next_ns| end_ns <= next_ns) {
                true => self.place(at),
                false => ends.push(Reverse((end_ns, at))),
            }
        }
        while let Some(Reverse((_, ended))) = ends.pop() {
            self.place(ended);
        }
        self.world.fill_full();
        self.listings = std::mem::take(&mut self.watch).finish(self.ops, &self.world);
    }

    /// Begins an operation: a thread does one thing at a time, and nothing before its fork.
    fn start(&mut self, at: u32) {
        self.next = at + 1;
        let thread = self.ops[at as usize].thread;
        self.edges.begin(thread);
        match self.in_flight_of[thread as usize].replace(at) {
            Some(previous) => self.place(previous),
            None => {
                if let Some(fork) = self.fork_of.remove(&thread) {
                    self.place(fork);
                }
            }
        }
        self.in_flight.push(at);
    }

    fn place(&mut self, at: u32) {
        if self.placed[at as usize] || self.busy.contains(&at) || self.busy.len() > DEEPEST {
            return;
        }
        self.settle(at);
        if !self.turns.has(at) {
            return self.place_next(at);
        }
        for earlier in self.turns_up_to(at) {
            self.place_next(earlier);
        }
    }

    /// Puts the rivals of an operation for its names in order.
    fn settle(&mut self, at: u32) {
        if self.in_flight.len() < 2 || self.turns.has(at) {
            return;
        }
        // A call that sleeps for a lock competes for no name.
        let may_name = |other: &u32| touches::may_name(semantics::kind(&self.ops[*other as usize]));
        let is_rival = |other: &u32| *other != at && may_name(other);
        if self.turns.is_empty() && !self.in_flight.iter().any(is_rival) {
            return;
        }
        let own = rivals::keys(self.world.names(), &self.ops[at as usize]);
        if own.is_empty() {
            return;
        }
        self.place_settled(&own);
        let (ops, names) = (self.ops, self.world.names());
        let free = |other: u32| {
            let open = !self.placed[other as usize] && !self.turns.has(other);
            open && !self.busy.contains(&other)
        };
        let fights = |other: &u32| {
            *other != at && free(*other) && conflict(names, &own, &ops[*other as usize])
        };
        if !self.in_flight.iter().any(fights) {
            return;
        }
        let first = self.in_flight.iter().copied().min().unwrap_or(at);
        let by_name = self
            .by_name
            .get_or_insert_with(|| ByName::new(names, self.plan));
        let met = &mut self.rivals_allowance;
        let Some(rivals) = Rivals::gather(names, by_name, ops, (at, first), free, met) else {
            return;
        };
        let arrivals = &mut self.arrivals;
        let earliest_ns = |other| arrivals.earliest_ns(names, by_name, ops, other);
        let allowance = &mut self.allowance;
        let found = contest::settle(
            &self.world,
            ops,
            by_name,
            &rivals,
            at,
            earliest_ns,
            allowance,
        );
        self.turns.keep(&found.unwrap_or_default());
    }

    /// Places what an earlier contest put in order before an operation that was left over and
    /// depends on these names.
    fn place_settled(&mut self, own: &[(u32, bool)]) {
        if self.turns.is_empty() {
            return;
        }
        let (ops, names) = (self.ops, self.world.names());
        let settled = |other: &&u32| {
            let open = self.turns.has(**other) && !self.busy.contains(other);
            open && conflict(names, own, &ops[**other as usize])
        };
        let settled: Vec<u32> = self.in_flight.iter().filter(settled).copied().collect();
        for other in settled {
            self.place(other);
        }
    }

    /// Returns an operation, after those that must precede it if all of them have begun.
    fn turns_up_to(&self, at: u32) -> Vec<u32> {
        let chain = self.turns.chain(at, self.world.names(), self.ops);
        match chain.iter().any(|before| *before >= self.next) {
            true => vec![at],
            false => chain,
        }
    }

    fn place_next(&mut self, at: u32) {
        if self.placed[at as usize] || self.busy.contains(&at) {
            return;
        }
        self.busy.push(at);
        for freed in inode_reuse::freed_by(&self.world, self.ops, &self.in_flight, at) {
            self.place(freed);
        }
        self.explain(at);
        self.flush_before(at);
        self.busy.pop();
        self.apply(at);
    }

    fn is_held_back(&self, other: u32, at: u32) -> bool {
        let names = self.world.names();
        self.turns.is_held_back(other, at, names, self.ops)
    }

    /// Pulls forward the overlapping operations that this result depends on.
    fn explain(&mut self, at: u32) {
        let mut fits = self.fits(at);
        for _ in 0..DEEPEST {
            if fits == Some(true) {
                return;
            }
            let Some(cause) = self.find_cause(at) else {
                break;
            };
            self.place(cause);
            fits = self.fits(at);
            if !self.placed[cause as usize] {
                break;
            }
        }
        // Groups and capabilities permit or deny something, too.
        let refused = !refusals::is_missing(&self.world, &self.ops[at as usize]);
        if fits == Some(false) && refused && self.locks_fit(at) {
            self.unexplained.push(at);
        }
    }

    fn find_cause(&self, at: u32) -> Option<u32> {
        let waiting = |other: &&u32| {
            let free = !self.placed[**other as usize] && !self.busy.contains(other);
            **other != at && free && !self.is_held_back(**other, at)
        };
        self.in_flight
            .iter()
            .filter(waiting)
            .copied()
            .find(|other| self.would_explain(*other, at))
    }

    /// Returns whether `other` makes something true that `at` needs and that does not hold yet.
    fn would_explain(&self, other: u32, at: u32) -> bool {
        let (op, cause) = (&self.ops[at as usize], &self.ops[other as usize]);
        let touches = self.world.touches(cause);
        let named = any_need(&self.world, op, |path, need| {
            let state = self.world.meets(path, need);
            let made = touches.iter().flatten().find(|touch| touch.path == path);
            match (state, made) {
                (Some(true), _) | (_, None) => false,
                (Some(false), Some(touch)) => self.outcome_meets(cause, touch, need),
                (None, Some(touch)) => {
                    let sure = touch.need != Need::Any || self.is_news(cause, path, need);
                    sure && self.outcome_meets(cause, touch, need)
                }
            }
        });
        // A contest has taken all rivals for names into account already.
        named && !self.turns.has(at)
            || seen_sizes::explained_by(&self.world, op, cause)
            || seen_xattrs::explained_by(&self.world, op, cause)
            || self.locks.explained_by(op, cause, &self.world)
            || refusals::explained_by(&self.world, op, cause)
    }

    /// Returns whether a name that no operation touched yet cannot have been so before `cause`.
    fn is_news(&self, cause: &PlanOp, path: u32, need: Need) -> bool {
        let moved = self.world.moved_ino(cause);
        match (self.world.recorded().at(path).map(|entry| entry.ino), need) {
            (None, _) => true,
            (Some(shown), Need::Present(ino)) if ino != 0 => shown != ino || moved == ino,
            (Some(shown), _) => moved != 0 && shown == moved,
        }
    }

    fn outcome_meets(&self, cause: &PlanOp, touch: &Touch, need: Need) -> bool {
        match (touch.makes, need) {
            (Makes::Same, _) | (_, Need::Any) => false,
            (Makes::Gone, need) => need == Need::Absent,
            (_, Need::Absent) => false,
            (_, Need::Present(0)) => true,
            (Makes::Object, Need::Present(ino)) => cause.ino == 0 || cause.ino == ino,
            (Makes::Object, need) => {
                (need == Need::File) != (semantics::kind(cause) == Kind::Mkdir)
            }
            (Makes::Moved | Makes::Linked, Need::Present(ino)) => {
                let moved = self.world.moved_ino(cause);
                moved == 0 || moved == ino
            }
            _ => true,
        }
    }

    /// Returns whether the present state explains the result; `None` if too little is known.
    fn fits(&self, at: u32) -> Option<bool> {
        let op = &self.ops[at as usize];
        let mut sure = true;
        let contradicted = any_need(&self.world, op, |path, need| {
            let met = self.world.meets(path, need);
            sure &= met.is_some();
            met == Some(false)
        });
        let refused = !refusals::is_missing(&self.world, op);
        let seen = seen_sizes::fits(&self.world, op) && seen_xattrs::fits(&self.world, op);
        match !contradicted && refused && seen && self.locks_fit(at) {
            false => Some(false),
            true => sure.then_some(true),
        }
    }

    fn locks_fit(&self, at: u32) -> bool {
        let op = &self.ops[at as usize];
        self.locks.fits(op, &self.world)
    }

    /// Places operations in flight that saw the state before this change.
    fn flush_before(&mut self, at: u32) {
        if self.in_flight.len() < 2 || !effects::changes_anything(&self.ops[at as usize]) {
            return;
        }
        let waiting: SmallVec<[u32; 32]> = SmallVec::from_slice(&self.in_flight);
        for other in waiting {
            let skip = other == at || self.placed[other as usize] || self.busy.contains(&other);
            if !skip && !self.is_held_back(other, at) && self.must_precede(other, at) {
                self.place(other);
            }
        }
    }

    fn must_precede(&self, other: u32, at: u32) -> bool {
        let (op, before) = (&self.ops[at as usize], &self.ops[other as usize]);
        let named = || !self.turns.has(at) && self.spoils_name(op, before);
        let spoils = named()
            || seen_sizes::spoilt_by(&self.world, before, op)
            || seen_xattrs::spoilt_by(&self.world, before, op)
            || self.locks.spoils(op, before, &self.world)
            || refusals::spoilt_by(&self.world, before, op);
        spoils && self.fits(other) != Some(false)
    }

    fn spoils_name(&self, op: &PlanOp, before: &'a PlanOp) -> bool {
        let changed = self.world.touches(op);
        let mut changed = changed
            .iter()
            .flatten()
            .filter(|touch| touch.makes != Makes::Same);
        changed.any(|touch| {
            let fresh = touch.makes == Makes::Object
                && self.world.meets(touch.path, Need::Absent) == Some(false);
            let spoils = |need| need != Need::Any && !self.outcome_meets(op, touch, need);
            let is_spoilt = |path, need| path == touch.path && spoils(need);
            !fresh && any_need(&self.world, before, is_spoilt)
        })
    }

    fn apply(&mut self, at: u32) {
        let op = &self.ops[at as usize];
        self.placed[at as usize] = true;
        self.turns.end(at);
        self.in_flight.retain(|other| *other != at);
        let (changes, closed) = self.locks.apply(op, &self.world);
        self.edges.let_go(at, &closed);
        if let Some(opened) = self.world.take_fd(at, op) {
            self.edges
                .use_passed(at, opened, self.world.leader(op.thread));
        }
        let flight = Flight {
            ops: &self.in_flight,
            now_ns: self.ops[self.next as usize - 1].start_ns,
        };
        self.edges.add(at, &self.world, &changes, flight);
        self.order.push(at);
        effects::change_names(&mut self.world, op);
        self.edges.add_objects(at, &self.world);
        effects::change_objects(&mut self.world, at, op);
        self.watch.note(at, op, &mut self.world);
    }
}
