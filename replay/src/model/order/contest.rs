//! Search for an order of overlapping operations that compete for the same names.

use foldhash::{HashMap, HashMapExt, HashSet, HashSetExt};
use spoolscope_traces::records::PlanOp;

use crate::model::order::moved_directories::{Held, held};
use crate::model::order::rivals::{ByName, Rivals};
use crate::model::order::search::{self, Cell, Check, Effect, Question, Step, Thing};
use crate::model::state::names::{parent_of, rest_below};
use crate::model::state::required_names;
use crate::model::state::slots::Slot;
use crate::model::state::world::World;
use crate::semantics::{self, Kind};
use crate::touches::{self, Makes, Need};

/// Results that may stay unexplained, as when an unrecorded process interfered.
const FAULTS: u32 = 2;
/// Names that moved directories may add before the search is not worth it.
const MOST_NAMES: usize = 4_096;

/// Returns an order of rivals that explains their results, as far as it is certain; true if one
/// changed a name there: an open with `O_CREAT` may have found its file.
///
/// The order reaches at least to `at`; no operation comes before its `earliest_ns`; the steps tried
/// are taken off `allowance`.
pub fn settle(
    world: &World,
    ops: &[PlanOp],
    by_name: &ByName,
    rivals: &Rivals,
    at: u32,
    earliest_ns: impl FnMut(u32) -> i64,
    allowance: &mut u64,
) -> Option<Vec<(u32, bool)>> {
    let mut board = Board::new(world, ops, by_name, &rivals.members, earliest_ns)?;
    let ended = |member: &&u32| ops[**member as usize].end_ns <= rivals.complete_until_ns;
    board.question.required = rivals.members.iter().filter(ended).count();
    let mut tried = |board: &Board, faults| search::order(&board.question, faults, allowance);
    let found = tried(&board, 0).or_else(|| {
        board.forget_presumed(ops);
        (0..=FAULTS).find_map(|faults| tried(&board, faults))
    })?;
    let steps = found.into_iter();
    let mut order: Vec<(u32, bool)> = steps
        .map(|(step, changes)| (board.ops[step], changes))
        .collect();
    let unsure = |(at, _): &(u32, bool)| ops[*at as usize].end_ns > rivals.sure_until_ns;
    let sure = order.iter().position(unsure).unwrap_or(order.len());
    let own = order.iter().position(|(other, _)| *other == at)? + 1;
    order.truncate(sure.max(own));
    Some(order)
}

/// Marks an inode number in a cell: by now it belongs to another object.
const GONE: u64 = 1 << 63;

/// The names of a contest as cells, its operations as steps over them.
struct Board<'a> {
    world: &'a World<'a>,
    index: HashMap<Vec<u8>, u16>,
    names: Vec<Vec<u8>>,
    question: Question,
    /// The operation of each step.
    ops: Vec<u32>,
    /// Cells that only the snapshot shows.
    presumed: Vec<u16>,
    /// Directories for which it matters whether they are empty.
    emptied: HashSet<u32>,
    /// Contents of moved directories, by the operation that moved them.
    held: HashMap<u32, Held>,
}

impl<'a> Board<'a> {
    /// `None` if there are too many names.
    fn new(
        world: &'a World,
        all: &[PlanOp],
        by_name: &ByName,
        members: &[u32],
        mut earliest_ns: impl FnMut(u32) -> i64,
    ) -> Option<Self> {
        let mut ops = members.to_vec();
        ops.sort_by_key(|at| (all[*at as usize].end_ns, *at));
        let mut board = Self {
            world,
            index: HashMap::new(),
            names: Vec::new(),
            question: Question::default(),
            ops: Vec::new(),
            presumed: Vec::new(),
            emptied: HashSet::new(),
            held: HashMap::new(),
        };
        for at in &ops {
            board.add_names(&all[*at as usize]);
            board.add_held(by_name, all, *at);
        }
        board.add_moved(ops.iter().map(|at| &all[*at as usize]))?;
        board.fill();
        let mut last: HashMap<u32, usize> = HashMap::new();
        for (index, at) in ops.iter().enumerate() {
            let op = &all[*at as usize];
            let previous = last.insert(op.thread, index);
            let mut step = board.step(op, earliest_ns(*at), previous);
            if let Some(held) = board.held.get(at) {
                step.checks.extend(board.held_checks(op, held));
            }
            board.question.steps.push(step);
        }
        board.ops = ops;
        Some(board)
    }

    fn add_names(&mut self, op: &PlanOp) {
        let world = self.world;
        for touch in required_names::telling(op) {
            for above in world.names().above(&touch) {
                self.add(world.names().bytes(*above));
            }
            self.add(world.names().bytes(touch.path));
            let renames = semantics::kind(op) == Kind::Rename;
            if renames || matches!(touch.need, Need::Full | Need::Empty) {
                self.emptied.insert(touch.path);
            }
        }
    }

    /// Adds what a directory held that an operation moves, and cells for its names.
    fn add_held(&mut self, by_name: &ByName, all: &[PlanOp], at: u32) {
        let op = &all[at as usize];
        if !moves(op) || touches::of(op)[1].is_none_or(|touch| touch.makes != Makes::Moved) {
            return;
        }
        let names = self.world.names();
        let held = held(names, by_name, all, at);
        for (name, _) in &held.names {
            self.add(&[names.bytes(op.path), name].concat());
        }
        self.held.insert(at, held);
    }

    fn add(&mut self, name: &[u8]) {
        if !self.index.contains_key(name) {
            self.index.insert(name.to_vec(), self.names.len() as u16);
            self.names.push(name.to_vec());
        }
    }

    fn cell_of(&self, path: u32) -> u16 {
        self.index[self.world.names().bytes(path)]
    }

    /// Adds names that exist only because a directory above them moves; `None` if too many.
    fn add_moved<'o>(&mut self, ops: impl Iterator<Item = &'o PlanOp>) -> Option<()> {
        let mut pairs: Vec<(&[u8], &[u8])> = Vec::new();
        for op in ops.filter(|op| moves(op)) {
            let names = self.world.names();
            let (old, new) = (names.bytes(op.path), names.bytes(op.path2));
            pairs.push((old, new));
            if touches::of(op)[0].is_some_and(|touch| touch.makes == Makes::Swapped) {
                pairs.push((new, old));
            }
        }
        pairs.sort_unstable();
        pairs.dedup();
        let mut from = 0;
        while from < self.names.len() {
            let name = self.names[from].clone();
            for (old, new) in &pairs {
                if let Some(rest) = rest_below(&name, old) {
                    self.add(&[new, rest].concat());
                }
            }
            from += 1;
            if self.names.len() > MOST_NAMES {
                return None;
            }
        }
        Some(())
    }

    fn fill(&mut self) {
        let mut children = vec![Vec::new(); self.names.len()];
        for (at, name) in self.names.iter().enumerate() {
            if let Some(parent) = parent_of(name).and_then(|parent| self.index.get(parent)) {
                children[usize::from(*parent)].push(at as u16);
            }
        }
        let mut cells: Vec<Cell> = self.names.iter().map(|name| self.cell(name)).collect();
        for (at, cell) in cells.iter_mut().enumerate() {
            if *cell == Cell::Unknown(0) {
                *cell = self.presume(&self.names[at]);
                self.presumed.push(at as u16);
            }
        }
        self.question.cells = cells;
        self.question.children = children;
    }

    /// Returns what the snapshot shows at a name that no call has shown.
    fn presume(&self, name: &[u8]) -> Cell {
        let path = self.world.names().find(name);
        match path.and_then(|path| self.world.recorded().at(path)) {
            None => Cell::Absent,
            Some(entry) => Cell::There(Thing {
                ino: entry.ino,
                directory: (entry.mode != 0).then(|| semantics::is_directory(entry.mode)),
                others: None,
            }),
        }
    }

    /// Makes presumed cells unknown: the snapshot may show only effects of later calls.
    fn forget_presumed(&mut self, all: &[PlanOp]) {
        let world = self.world;
        for at in &self.presumed {
            let path = world.names().find(&self.names[usize::from(*at)]);
            let shown = path.and_then(|path| world.recorded().at(path).map(|entry| entry.ino));
            self.question.cells[usize::from(*at)] = Cell::Unknown(shown.unwrap_or(0));
        }
        let moving = self.ops.iter().map(|at| &all[*at as usize]);
        for op in moving.filter(|op| semantics::has_second_path(op)) {
            let Some(at) = self.index.get(world.names().bytes(op.path)) else {
                continue;
            };
            let cell = &mut self.question.cells[usize::from(*at)];
            if *cell == Cell::Unknown(0) {
                *cell = Cell::Unknown(world.moved_ino(op));
            }
        }
    }

    fn cell(&self, name: &[u8]) -> Cell {
        let Some(path) = self.world.names().find(name) else {
            return Cell::Unknown(0);
        };
        let index = match self.world.slot(path) {
            Slot::Unknown => return Cell::Unknown(0),
            Slot::Absent => return Cell::Absent,
            Slot::Present(object) => object,
        };
        let object = self.world.object(index);
        let directory = object.is_directory();
        Cell::There(Thing {
            ino: match self.world.objects().is_gone(index) {
                _ if object.is_symlink() => 0,
                true => object.ino() ^ GONE,
                false => object.ino(),
            },
            directory: Some(directory),
            others: match directory {
                true if self.emptied.contains(&path) => self.holds_others(path),
                true => None,
                false => Some(false),
            },
        })
    }

    /// Returns whether a directory holds names that are not cells; `None` if only the snapshot
    /// shows some.
    fn holds_others(&self, directory: u32) -> Option<bool> {
        let mut sure = Some(false);
        for path in self.world.names().directly_below(directory) {
            let is_cell = self.index.contains_key(self.world.names().bytes(path));
            match self.world.slot(path) {
                _ if is_cell => {}
                Slot::Present(_) => return Some(true),
                Slot::Unknown if self.world.recorded().has(path) => sure = None,
                _ => {}
            }
        }
        sure
    }

    fn step(&self, op: &PlanOp, start_ns: i64, previous: Option<usize>) -> Step {
        let names = self.world.names();
        let mut checks = Vec::new();
        required_names::any_need(self.world, op, |path, need| {
            if need != Need::Any {
                checks.push(Check::Is(self.cell_of(path), self.known(op, need)));
            }
            false
        });
        if let Some((one, other)) = required_names::missing_either(names, op) {
            checks.push(Check::Either(self.cell_of(one), self.cell_of(other)));
        }
        let effect = self.effect(op);
        if let (Effect::Make(cell, thing), Kind::Open) = (&effect, semantics::kind(op)) {
            checks.push(Check::OnlyThis(*cell, thing.ino));
        }
        if semantics::is_birth(op) && op.ino != 0 {
            checks.push(Check::Unnamed(op.ino));
        }
        Step {
            start_ns,
            end_ns: op.end_ns,
            previous,
            checks,
            effect,
        }
    }

    /// Returns what must have held in the directory that an operation moves.
    fn held_checks(&self, op: &PlanOp, held: &Held) -> Vec<Check> {
        let directory = self.world.names().bytes(op.path);
        let cell = |name: &Vec<u8>| self.index[[directory, name].concat().as_slice()];
        let named = held.names.iter();
        let mut checks: Vec<Check> = named
            .map(|(name, need)| Check::Is(cell(name), self.known(op, *need)))
            .collect();
        checks.extend(held.others.map(|others| Check::Holds {
            directory: self.cell_of(op.path),
            besides: held.gone.iter().map(cell).collect(),
            others,
        }));
        checks
    }

    /// Returns the need of a call; if it overlapped the making of its file, it may have found the
    /// one that had the number before, so any file fits.
    fn known(&self, op: &PlanOp, need: Need) -> Need {
        match need {
            Need::Present(ino) if !self.world.objects().means_the_last(op, ino) => Need::Present(0),
            _ => need,
        }
    }

    fn effect(&self, op: &PlanOp) -> Effect {
        let (first, second) = match touches::of(op) {
            [Some(first), second] => (first, second),
            // It was moved here from a place that is not known.
            [None, Some(to)] if to.makes != Makes::Same => {
                return Effect::Make(self.cell_of(to.path), Thing::unknown(op.ino));
            }
            [None, _] => return Effect::Nothing,
        };
        let pair = || (self.cell_of(op.path), self.cell_of(op.path2));
        match (first.makes, second.map(|touch| touch.makes)) {
            (Makes::Swapped, _) => {
                let (one, other) = pair();
                Effect::Swap(one, other, self.below(op.path, op.path2))
            }
            (_, Some(Makes::Moved)) => {
                let (from, to) = pair();
                Effect::Move(from, to, self.below(op.path, op.path2))
            }
            (_, Some(Makes::Linked)) => {
                let (from, to) = pair();
                Effect::Link(from, to)
            }
            (Makes::Gone, _) => Effect::Gone(self.cell_of(op.path)),
            (Makes::Object, _) => Effect::Make(
                self.cell_of(op.path),
                Thing {
                    ino: op.ino,
                    directory: Some(semantics::kind(op) == Kind::Mkdir),
                    others: Some(false),
                },
            ),
            _ => Effect::Nothing,
        }
    }

    /// Returns pairs of cells below two names that have the same rest.
    fn below(&self, from: u32, to: u32) -> Vec<(u16, u16)> {
        let (from, to) = (self.world.names().bytes(from), self.world.names().bytes(to));
        let pair = |(at, name): (usize, &Vec<u8>)| {
            let rest = rest_below(name, from)?;
            let new = self.index.get([to, rest].concat().as_slice())?;
            Some((at as u16, *new))
        };
        self.names.iter().enumerate().filter_map(pair).collect()
    }
}

/// Returns whether a call moved a known name to another known name.
fn moves(op: &PlanOp) -> bool {
    let both = touches::of(op).iter().all(Option::is_some);
    op.ret >= 0 && both && semantics::kind(op) == Kind::Rename
}
