//! Names that a directory had when it was listed, where the trace shows them.
//!
//! A trace does not hold the names that getdents returned, but the walk knows those a directory
//! had. A listing is predicted if one thread read it through one descriptor from the beginning to
//! the end, if no name came or went since that was opened or rewound (POSIX, readdir: it is
//! unspecified whether later names are shown; btrfs shows none), and if all names at the beginning
//! are known.

use foldhash::{HashMap, HashMapExt};
use serde::{Deserialize, Serialize};
use spoolscope_traces::records::{Outcome, PlanOp, REASON_NAMES, VERDICT_SAME};
use std::borrow::Cow;
use std::hash::{DefaultHasher, Hash, Hasher};

use crate::model::state::listed::{is_listed, is_shown, last_part};
use crate::model::state::slots::Slot;
use crate::model::state::world::World;
use crate::semantics::{self, Kind};

/// A set of names in any order: their number and the sum of their hashes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct NameSet {
    pub count: u64,
    pub hash: u64,
}

impl NameSet {
    pub fn add(&mut self, name: &[u8]) {
        self.count = self.count.wrapping_add(1);
        self.hash = self.hash.wrapping_add(hash(name));
    }

    fn remove(&mut self, name: &[u8]) {
        self.count = self.count.wrapping_sub(1);
        self.hash = self.hash.wrapping_sub(hash(name));
    }
}

fn hash(name: &[u8]) -> u64 {
    let mut hasher = DefaultHasher::new();
    name.hash(&mut hasher);
    hasher.finish()
}

/// A listing whose names are known.
#[derive(Clone, Copy, Debug, Serialize, Deserialize)]
pub struct Listing {
    /// Its first and last getdents.
    pub first: u32,
    pub last: u32,
    pub names: NameSet,
}

/// The listings that a replay can compare.
#[derive(Debug, Default, Serialize, Deserialize)]
pub struct Listings {
    pub known: Cow<'static, [Listing]>,
    /// (getdents, place of its listing), sorted.
    pub calls: Cow<'static, [(u32, u32)]>,
    /// Listings that were read in part, or by several threads.
    pub partial: u64,
    /// Listings while names came or went.
    pub overlapping: u64,
    /// Listings of directories that were not looked at when the recording began.
    pub unknown: u64,
}

impl Listings {
    /// Returns the listing that a getdents belongs to, if its names are known.
    pub fn of(&self, op: u32) -> Option<(u32, &Listing)> {
        let at = self.calls.binary_search_by_key(&op, |(call, _)| *call);
        let (_, listing) = self.calls[at.ok()?];
        Some((listing, &self.known[listing as usize]))
    }

    /// Returns the result of a listing in a replay, if `op` is its last call.
    pub fn judged(&self, op: u32, outcome: &Outcome) -> Option<Judged> {
        let (_, listing) = self.of(op)?;
        (listing.last == op).then_some(match (outcome.verdict, outcome.reason) {
            (VERDICT_SAME, _) => Judged::Same,
            (_, REASON_NAMES) => Judged::OtherNames,
            _ => Judged::NotEnded,
        })
    }
}

/// The result of a listing in a replay.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Judged {
    Same,
    OtherNames,
    NotEnded,
}

/// A descriptor through which a directory is being read.
#[derive(Debug)]
struct Reading {
    thread: u32,
    /// The operation that opened or rewound it.
    begun: u32,
    calls: Vec<u32>,
    ended: bool,
}

/// A name that came or went in a directory, or a listing of it, in the order of the walk.
#[derive(Clone, Copy, Debug)]
enum Event {
    Came { name: u32, op: u32 },
    Went { name: u32, op: u32 },
    Listed(u32),
}

/// Follows listings through the walk.
#[derive(Debug, Default)]
pub struct Watch {
    /// By process and number. A copy of a descriptor ends its reading, so no other number is of the
    /// same open file, and none outlives its descriptor.
    readings: HashMap<(u32, i32), Reading>,
    events: HashMap<u32, Vec<Event>>,
    /// The operation that began each listing, and its getdents.
    done: Vec<(u32, Vec<u32>)>,
    found: Listings,
}

impl Watch {
    /// Takes the next operation of the order, after its effects.
    pub fn note(&mut self, at: u32, op: &PlanOp, world: &mut World) {
        if world.listed().is_empty() {
            return;
        }
        for (name, came) in world.take_changes() {
            if let Some(directory) = world.names().directory(name) {
                let event = match came {
                    true => Event::Came { name, op: at },
                    false => Event::Went { name, op: at },
                };
                self.events.entry(directory).or_default().push(event);
            }
        }
        self.follow(at, op, world);
    }

    fn follow(&mut self, at: u32, op: &PlanOp, world: &World) {
        let process = world.leader(op.thread);
        let fresh = Reading {
            thread: op.thread,
            begun: at,
            calls: Vec::new(),
            ended: false,
        };
        match semantics::kind(op) {
            Kind::Open if op.ret >= 0 => {
                self.readings.insert((process, op.ret as i32), fresh);
            }
            Kind::Seek if op.ret == 0 && op.cmd == libc::SEEK_SET => {
                self.readings.insert((process, op.fd), fresh);
            }
            Kind::Seek | Kind::Close => {
                self.readings.remove(&(process, op.fd));
            }
            Kind::Getdents => self.read(at, op, process, world),
            _ if semantics::makes_fd(op) => {
                self.readings.remove(&(process, op.fd));
                self.readings.remove(&(process, op.ret as i32));
            }
            _ => {}
        }
    }

    fn read(&mut self, at: u32, op: &PlanOp, process: u32, world: &World) {
        let key = (process, op.fd);
        let alone = world.shared_position(op).is_none();
        let reading = self.readings.get_mut(&key).filter(|reading| {
            let own = reading.thread == op.thread || reading.calls.is_empty();
            alone && own && op.ret >= 0
        });
        let Some(reading) = reading else {
            self.readings.remove(&key);
            self.found.partial += u64::from(op.ret == 0);
            return;
        };
        if reading.ended {
            return;
        }
        reading.thread = op.thread;
        reading.calls.push(at);
        if op.ret > 0 {
            return;
        }
        reading.ended = true;
        let done = (reading.begun, std::mem::take(&mut reading.calls));
        if !is_known(op, world) {
            self.found.unknown += 1;
            return;
        }
        let events = self.events.entry(op.path).or_default();
        events.push(Event::Listed(self.done.len() as u32));
        self.done.push(done);
    }

    /// Returns the listings with their names, once the walk knows what was there at the beginning.
    pub fn finish(mut self, ops: &[PlanOp], world: &World) -> Listings {
        let mut first = names_at_start(world, &self.events);
        let (mut known, mut calls) = (Vec::new(), Vec::new());
        let mut by_directory: Vec<_> = self.events.iter().collect();
        // The order of a plan is the same file each time.
        by_directory.sort_unstable_by_key(|(directory, _)| **directory);
        for (directory, events) in by_directory {
            let mut names = first.remove(directory).unwrap_or_default();
            let spans = Spans::new(ops, events);
            for event in events {
                match event {
                    Event::Came { name, .. } => names.add(last_part(world.names(), *name)),
                    Event::Went { name, .. } => names.remove(last_part(world.names(), *name)),
                    Event::Listed(done) => {
                        let (begun, read) = &self.done[*done as usize];
                        let (start, end) = (read[0], read[read.len() - 1]);
                        if spans.overlap(ops[*begun as usize].start_ns, ops[end as usize].end_ns) {
                            self.found.overlapping += 1;
                            continue;
                        }
                        let place = known.len() as u32;
                        known.push(Listing {
                            first: start,
                            last: end,
                            names,
                        });
                        calls.extend(read.iter().map(|call| (*call, place)));
                    }
                }
            }
        }
        calls.sort_unstable();
        (self.found.known, self.found.calls) = (known.into(), calls.into());
        self.found
    }
}

/// Changes of names in a directory, sorted by end, with the earliest start from there on.
struct Spans(Vec<(i64, i64)>);

impl Spans {
    fn new(ops: &[PlanOp], events: &[Event]) -> Self {
        let changes = events.iter().filter_map(|event| match event {
            Event::Came { op, .. } | Event::Went { op, .. } => Some(&ops[*op as usize]),
            Event::Listed(_) => None,
        });
        let mut spans: Vec<(i64, i64)> = changes.map(|op| (op.end_ns, op.start_ns)).collect();
        spans.sort_unstable();
        let mut earliest = i64::MAX;
        for (_, start) in spans.iter_mut().rev() {
            earliest = earliest.min(*start);
            *start = earliest;
        }
        Self(spans)
    }

    fn overlap(&self, start: i64, end: i64) -> bool {
        let at = self.0.partition_point(|(ended, _)| *ended <= start);
        self.0.get(at).is_some_and(|(_, earliest)| *earliest < end)
    }
}

/// Returns whether all names of a directory are known: it was made, or looked at when the recording
/// began.
fn is_known(op: &PlanOp, world: &World) -> bool {
    let Slot::Present(object) = world.slot(op.path) else {
        return false;
    };
    let directory = world.object(object);
    let seen = world.first_entry(object).is_some_and(is_listed);
    directory.ino() == op.ino
        && op.ino != 0
        && (!directory.was_there() || seen)
        && !world.names().is_unsure()
}

fn names_at_start(world: &World, listed: &HashMap<u32, Vec<Event>>) -> HashMap<u32, NameSet> {
    let mut found: HashMap<u32, NameSet> = HashMap::new();
    let mut add = |path: u32, mode: u32| {
        let directory = world
            .names()
            .directory(path)
            .filter(|at| listed.contains_key(at));
        if let Some(directory) = directory.filter(|_| is_shown(world.names(), path, mode)) {
            let names = found.entry(directory).or_default();
            names.add(last_part(world.names(), path));
        }
    };
    for (path, slot) in (0..).zip(world.slots().at_start()) {
        if let Slot::Present(object) = slot
            && let Some(start) = world.object(*object).at_start()
        {
            add(path, start.attributes.mode);
        }
    }
    for entry in world.untouched() {
        add(entry.path, entry.mode);
    }
    found
}
