//! Path names: parents, ancestors that change, and names born by renaming a directory.

use foldhash::{HashMap, HashMapExt};
use spoolscope_traces::records::{NONE, PlanOp};
use std::cell::OnceCell;
use std::collections::BTreeMap;

use crate::plan::Plan;
use crate::semantics::{self, Kind};
use crate::touches::{self, Makes, Need, Touch};

/// The plan's strings as paths, extended by names that only a moved directory makes.
#[derive(Debug)]
pub struct Names<'a> {
    plan: &'a Plan,
    extra: Vec<Vec<u8>>,
    index: HashMap<&'a [u8], u32>,
    extra_index: BTreeMap<Vec<u8>, u32>,
    /// The strings of the plan, sorted at first use.
    sorted: OnceCell<Vec<u32>>,
    /// Directories that are made, moved or removed; index = path.
    changing: Vec<bool>,
    /// True if names came or went that the trace does not show, or that were reached through a
    /// symlink to their directory.
    pub(super) unsure: bool,
    ancestors: Vec<Box<[u32]>>,
    /// As `ancestors`, for names that were given with dots: all directories that they lead through.
    ways: HashMap<u32, Box<[u32]>>,
    /// The directory of each of the plan's names; NONE if the plan does not name it.
    directories: Vec<u32>,
}

impl<'a> Names<'a> {
    pub fn new(plan: &'a Plan) -> Self {
        let index: HashMap<&[u8], u32> = (0..plan.n_strings())
            .map(|at| (plan.string(at), at))
            .collect();
        let mut names = Self {
            plan,
            extra: Vec::new(),
            index,
            extra_index: BTreeMap::new(),
            sorted: OnceCell::new(),
            changing: vec![false; plan.n_strings() as usize],
            unsure: false,
            ancestors: Vec::new(),
            ways: HashMap::new(),
            directories: Vec::new(),
        };
        names.find_changing();
        names.ancestors = (0..plan.n_strings())
            .map(|at| names.find_ancestors(at))
            .collect();
        names.find_ways();
        names.directories = (0..plan.n_strings())
            .map(|at| names.find(directory_of(plan.string(at))).unwrap_or(NONE))
            .collect();
        names
    }

    fn find_changing(&mut self) {
        for (_, op) in self.plan.of_kind(touches::changes_names) {
            self.unsure |= is_unknown_change(op);
            for touch in touches::of(op).into_iter().flatten() {
                // A directory can be removed or not depending on all that is made in it.
                if touch.makes != Makes::Same || touch.need == Need::Full {
                    self.changing[touch.path as usize] = true;
                }
            }
        }
    }

    fn find_ancestors(&self, path: u32) -> Box<[u32]> {
        let bytes = self.bytes(path);
        let mut found = Vec::new();
        for (at, _) in bytes.iter().enumerate().filter(|(_, byte)| **byte == b'/') {
            match self.index.get(&bytes[..at]) {
                Some(parent) if self.changing[*parent as usize] => found.push(*parent),
                _ => {}
            }
        }
        found.into()
    }

    /// Finds the ways of names with dots, and makes names for parts of them that have none yet.
    fn find_ways(&mut self) {
        for (_, op) in self.plan.of_kind(touches::may_name) {
            for given in [op.given, op.given2].into_iter().filter(|at| *at != NONE) {
                if !self.ways.contains_key(&given) {
                    let found = self.led_through(self.plan.string(given));
                    self.ways.insert(given, found.into());
                }
            }
        }
    }

    fn led_through(&mut self, given: &[u8]) -> Vec<u32> {
        let named = |part: &&[u8]| !part.is_empty() && *part != b".";
        let mut parts = given.split(|byte| *byte == b'/').filter(named).peekable();
        let (mut done, mut found) = (Vec::new(), Vec::new());
        while let Some(part) = parts.next() {
            match part {
                b".." => done.truncate(parent_of(&done).map_or(0, <[u8]>::len)),
                _ if done.is_empty() => done.extend(part),
                _ => done.extend([b"/", part].concat()),
            }
            let Some(next) = parts.peek().filter(|_| !done.is_empty()) else {
                continue;
            };
            let known = match *next == b".." {
                true => Some(self.intern(done.clone())),
                false => self.find(&done).filter(|name| self.changes(*name)),
            };
            found.extend(known.filter(|name| !found.contains(name)));
        }
        found
    }

    /// Returns whether names came or went that are not known.
    pub fn is_unsure(&self) -> bool {
        self.unsure
    }

    pub fn len(&self) -> usize {
        self.plan.n_strings() as usize + self.extra.len()
    }

    pub fn bytes(&self, path: u32) -> &[u8] {
        match (path as usize).checked_sub(self.plan.n_strings() as usize) {
            Some(extra) if path != NONE => &self.extra[extra],
            _ => self.plan.string(path),
        }
    }

    /// Returns the names that are no strings of the plan; their ids follow those of the strings.
    pub fn extra(&self) -> &[Vec<u8>] {
        &self.extra
    }

    pub fn find(&self, bytes: &[u8]) -> Option<u32> {
        self.index
            .get(bytes)
            .or_else(|| self.extra_index.get(bytes))
            .copied()
    }

    /// Returns the id of a name, made if it is new.
    pub fn intern(&mut self, bytes: Vec<u8>) -> u32 {
        if let Some(known) = self.find(&bytes) {
            return known;
        }
        let id = self.len() as u32;
        self.extra.push(bytes.clone());
        self.extra_index.insert(bytes, id);
        id
    }

    pub fn parent(&self, path: u32) -> Option<u32> {
        self.find(parent_of(self.bytes(path))?)
    }

    /// Returns the directory that a name lies in; the spool itself lies in none.
    pub fn directory(&self, path: u32) -> Option<u32> {
        match self.directories.get(path as usize) {
            _ if self.bytes(path).is_empty() => None,
            Some(known) if *known != NONE => Some(*known),
            _ => self.find(directory_of(self.bytes(path))),
        }
    }

    /// Returns proper ancestors that some operation makes, moves or removes.
    pub fn ancestors(&self, path: u32) -> &[u32] {
        self.ancestors.get(path as usize).map_or(&[], |found| found)
    }

    /// Returns such ancestors on the way by which a call was given a name.
    pub fn above(&self, touch: &Touch) -> &[u32] {
        match touch.given {
            NONE => self.ancestors(touch.path),
            given => self.ways.get(&given).map_or(&[], |found| found),
        }
    }

    /// Returns whether any operation makes, moves or removes this name.
    pub fn changes(&self, path: u32) -> bool {
        self.changing.get(path as usize).copied().unwrap_or(true)
    }

    /// Returns every name below a directory, in order.
    pub fn below(&self, directory: u32) -> Vec<u32> {
        let mut found: Vec<u32> = self.unsorted_below(directory).collect();
        found.sort_unstable_by(|a, b| self.bytes(*a).cmp(self.bytes(*b)));
        found
    }

    /// Returns every name directly in a directory, in no order.
    pub fn directly_below(&self, directory: u32) -> impl Iterator<Item = u32> + '_ {
        let depth = self.bytes(directory).len() + 1;
        let direct = move |path: &u32| !self.bytes(*path)[depth..].contains(&b'/');
        self.unsorted_below(directory).filter(direct)
    }

    fn unsorted_below(&self, directory: u32) -> impl Iterator<Item = u32> + '_ {
        let sorted = self.sorted.get_or_init(|| {
            let mut sorted: Vec<u32> = (0..self.plan.n_strings()).collect();
            sorted.sort_unstable_by(|a, b| self.bytes(*a).cmp(self.bytes(*b)));
            sorted
        });
        let prefix = [self.bytes(directory), b"/"].concat();
        let first = sorted.partition_point(|path| self.bytes(*path) < prefix.as_slice());
        let extra = self.extra_index.range(prefix.clone()..);
        let extra = extra.map(|(_, id)| *id).take_while({
            let prefix = prefix.clone();
            move |path| self.bytes(*path).starts_with(&prefix)
        });
        let known = sorted[first..].iter().copied();
        known
            .take_while(move |path| self.bytes(*path).starts_with(&prefix))
            .chain(extra)
    }
}

fn is_unknown_change(op: &PlanOp) -> bool {
    op.ret >= 0
        && match semantics::kind(op) {
            Kind::Unlink | Kind::Rmdir => op.path == NONE,
            Kind::Rename => op.path == NONE || op.path2 == NONE,
            Kind::Link => op.path2 == NONE,
            _ => semantics::creates(op) && op.path == NONE,
        }
}

fn directory_of(path: &[u8]) -> &[u8] {
    parent_of(path).unwrap_or(b"")
}

/// Returns the directory part of a path; `None` for names directly below the spool.
pub fn parent_of(path: &[u8]) -> Option<&[u8]> {
    path.iter()
        .rposition(|byte| *byte == b'/')
        .map(|at| &path[..at])
}

/// Returns what follows a directory in a name below it, with the slash.
pub fn rest_below<'a>(name: &'a [u8], directory: &[u8]) -> Option<&'a [u8]> {
    name.strip_prefix(directory)
        .filter(|rest| rest.first() == Some(&b'/'))
}
