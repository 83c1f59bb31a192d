//! Search for an order of a few overlapping operations in which each has its recorded result.
//!
//! The search is depth first over the operations that may come next: those that began before any
//! remaining one ended. An operation that changes nothing and fits is taken at once; a state that
//! led nowhere is not tried again.

use foldhash::{HashSet, HashSetExt};
use std::collections::hash_map::DefaultHasher;
use std::hash::{Hash, Hasher};

use crate::touches::Need;

/// Most operations that are searched at once; hundreds may begin and end during one call.
pub const MOST: usize = 1_024;
/// Operations tried before a search is given up.
const BUDGET: u64 = 20_000;

/// The state of a name.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Cell {
    /// Not known yet: the first result shows it. An object there may have this inode number.
    Unknown(u64),
    Absent,
    There(Thing),
}

/// Knowledge about the object at a name.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Thing {
    /// 0 fits every identity.
    pub ino: u64,
    pub directory: Option<bool>,
    /// True if a directory holds names besides those searched.
    pub others: Option<bool>,
}

impl Thing {
    pub fn unknown(ino: u64) -> Self {
        Self {
            ino,
            directory: None,
            others: None,
        }
    }
}

/// A condition for the recorded result.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Check {
    Is(u16, Need),
    /// One of the two is absent.
    Either(u16, u16),
    /// Nothing is there, or this object.
    OnlyThis(u16, u64),
    /// No name has this object: its number is given to a new one.
    Unnamed(u64),
    /// If `others`, a directory holds names besides some of its cells; else it does not.
    Holds {
        directory: u16,
        besides: Vec<u16>,
        others: bool,
    },
}

/// The change that an operation makes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Effect {
    Nothing,
    Gone(u16),
    Make(u16, Thing),
    /// From, to, and the names below that move along.
    Move(u16, u16, Vec<(u16, u16)>),
    Link(u16, u16),
    Swap(u16, u16, Vec<(u16, u16)>),
}

/// One operation, with its names as indices of cells.
#[derive(Clone, Debug)]
pub struct Step {
    pub start_ns: i64,
    pub end_ns: i64,
    /// The step of the same thread before it.
    pub previous: Option<usize>,
    pub checks: Vec<Check>,
    pub effect: Effect,
}

/// Steps, and the state of the names before them.
#[derive(Debug, Default)]
pub struct Question {
    /// Sorted by their end.
    pub steps: Vec<Step>,
    /// Number of first steps that need a place; the rest may depend on operations not among them.
    pub required: usize,
    pub cells: Vec<Cell>,
    /// The cells directly below each cell.
    pub children: Vec<Vec<u16>>,
}

/// Finds an order of the steps, as their indices; true if a step changed a cell.
///
/// Up to `faults` results may stay unexplained; the steps tried are taken off `allowance`.
pub fn order(question: &Question, faults: u32, allowance: &mut u64) -> Option<Vec<(usize, bool)>> {
    let steps = &question.steps;
    debug_assert!(steps.len() <= MOST && steps.is_sorted_by_key(|step| step.end_ns));
    let budget = BUDGET.min(*allowance);
    let mut search = Search {
        steps,
        required: question.required,
        children: &question.children,
        cells: question.cells.clone(),
        undo: Vec::new(),
        order: Vec::with_capacity(steps.len()),
        dead: HashSet::new(),
        state: 0,
        budget,
    };
    let found = search.descend(Placed::default(), faults);
    *allowance -= budget - search.budget;
    found.then_some(search.order)
}

struct Search<'a> {
    steps: &'a [Step],
    required: usize,
    children: &'a [Vec<u16>],
    cells: Vec<Cell>,
    undo: Vec<(u16, Cell)>,
    order: Vec<(usize, bool)>,
    /// States that led nowhere.
    dead: HashSet<(Placed, u64, u32)>,
    /// Fingerprint of the cells, apart from that at the start.
    state: u64,
    budget: u64,
}

impl Search<'_> {
    /// Places all steps that need it and are not in `placed`; undoes everything if it cannot.
    fn descend(&mut self, placed: Placed, faults: u32) -> bool {
        if placed.first_left() >= self.required {
            return true;
        }
        let key = (placed, self.state, faults);
        if self.budget == 0 || self.dead.contains(&key) {
            return false;
        }
        self.budget -= 1;
        let next = self.candidates(&placed);
        let harmless = |at: &&usize| self.steps[**at].effect == Effect::Nothing;
        let at_once: Vec<usize> = next.iter().filter(harmless).copied().collect();
        for at in at_once {
            let mark = self.undo.len();
            if self.check(at) && self.undo.len() == mark {
                return self.attempt(placed, (at, false), faults);
            }
            self.back_to(mark);
        }
        for at in &next {
            let mark = self.undo.len();
            if self.check(*at) && self.act_and_go_on(placed, *at, faults) {
                return true;
            }
            self.back_to(mark);
        }
        for at in next.into_iter().filter(|_| faults > 0) {
            let mark = self.undo.len();
            self.act(at);
            let changes = self.undo.len() > mark;
            if self.attempt(placed, (at, changes), faults - 1) {
                return true;
            }
            self.back_to(mark);
        }
        self.dead.insert(key);
        false
    }

    fn act_and_go_on(&mut self, placed: Placed, at: usize, faults: u32) -> bool {
        let mark = self.undo.len();
        self.act(at) && self.attempt(placed, (at, self.undo.len() > mark), faults)
    }

    fn attempt(&mut self, placed: Placed, step: (usize, bool), faults: u32) -> bool {
        self.order.push(step);
        let found = self.descend(placed.with(step.0), faults);
        if !found {
            self.order.pop();
        }
        found
    }

    /// Returns the steps that no remaining one must come before, earliest end first.
    fn candidates(&self, placed: &Placed) -> Vec<usize> {
        let left = |at: &usize| !placed.holds(*at);
        let first = placed.first_left();
        let first_end = self.steps[first].end_ns;
        let began = |at: &usize| {
            let step = &self.steps[*at];
            let free = step.start_ns < first_end || step.end_ns == first_end;
            free && step.previous.is_none_or(|before| !left(&before))
        };
        let remaining = (first..self.steps.len()).filter(left);
        remaining.filter(began).collect()
    }

    fn set(&mut self, at: u16, cell: Cell) {
        let before = self.put(at, cell);
        self.undo.push((at, before));
    }

    fn put(&mut self, at: u16, cell: Cell) -> Cell {
        let before = std::mem::replace(&mut self.cells[usize::from(at)], cell);
        self.state ^= fingerprint(at, before) ^ fingerprint(at, cell);
        before
    }

    fn back_to(&mut self, mark: usize) {
        while self.undo.len() > mark {
            if let Some((at, cell)) = self.undo.pop() {
                self.put(at, cell);
            }
        }
    }

    /// Returns whether a step would have its result now; fills in what was unknown.
    fn check(&mut self, at: usize) -> bool {
        let steps = self.steps;
        steps[at].checks.iter().all(|check| match check {
            Check::Is(cell, need) => self.is(*cell, *need),
            Check::Either(one, other) => {
                let absent = |cell: u16| self.cells[usize::from(cell)] == Cell::Absent;
                absent(*one) || absent(*other) || self.is(*one, Need::Absent)
            }
            Check::OnlyThis(cell, ino) => match self.cells[usize::from(*cell)] {
                Cell::There(thing) => same(thing.ino, *ino),
                _ => true,
            },
            Check::Unnamed(ino) => !self.cells.iter().any(|cell| match cell {
                Cell::There(thing) => thing.ino == *ino,
                _ => false,
            }),
            Check::Holds {
                directory,
                besides,
                others,
            } => self.holds(*directory, besides, *others),
        })
    }

    fn is(&mut self, at: u16, need: Need) -> bool {
        match (self.cells[usize::from(at)], need) {
            (_, Need::Any) => true,
            (Cell::Absent, need) => need == Need::Absent,
            (Cell::Unknown(_), Need::Absent) => {
                self.set(at, Cell::Absent);
                true
            }
            (Cell::Unknown(hint), need) => {
                let ino = match need {
                    Need::Present(ino) if ino != 0 => ino,
                    _ => hint,
                };
                self.set(at, Cell::There(Thing::unknown(ino)));
                self.is(at, need)
            }
            (Cell::There(_), Need::Absent) => false,
            (Cell::There(thing), Need::Present(ino)) => same(thing.ino, ino),
            (Cell::There(_), Need::File) => self.learn_kind(at, false),
            (Cell::There(_), Need::Directory) => self.learn_kind(at, true),
            (Cell::There(_), Need::Full) => self.holds(at, &[], true),
            (Cell::There(_), Need::Empty) => self.holds(at, &[], false),
        }
    }

    fn learn_kind(&mut self, at: u16, directory: bool) -> bool {
        self.learn(at, directory, |thing| &mut thing.directory)
    }

    /// Learns a fact about the object at a name; returns whether that fits what is known.
    fn learn(&mut self, at: u16, new: bool, of: fn(&mut Thing) -> &mut Option<bool>) -> bool {
        let Cell::There(mut thing) = self.cells[usize::from(at)] else {
            return false;
        };
        if let Some(known) = *of(&mut thing) {
            return known == new;
        }
        *of(&mut thing) = Some(new);
        self.set(at, Cell::There(thing));
        true
    }

    /// Returns whether a directory may hold names besides some (`others`), or no names besides.
    fn holds(&mut self, at: u16, besides: &[u16], others: bool) -> bool {
        let there = |child: &u16| matches!(self.cells[usize::from(*child)], Cell::There(_));
        let mut children = self.children[usize::from(at)].iter();
        let any = children.any(|child| there(child) && !besides.contains(child));
        self.learn_kind(at, true)
            && match others {
                true => any || self.learn(at, true, |thing| &mut thing.others),
                false => !any && self.learn(at, false, |thing| &mut thing.others),
            }
    }

    /// Does what a step does; returns `false` if that is impossible.
    fn act(&mut self, at: usize) -> bool {
        let steps = self.steps;
        match &steps[at].effect {
            Effect::Nothing => {}
            Effect::Gone(cell) => self.set(*cell, Cell::Absent),
            Effect::Make(cell, thing) => {
                let there = matches!(self.cells[usize::from(*cell)], Cell::There(_));
                if !there || thing.directory == Some(true) {
                    self.set(*cell, Cell::There(*thing));
                }
            }
            Effect::Link(from, to) => self.set(*to, self.cells[usize::from(*from)]),
            Effect::Move(from, to, below) => return self.rename(*from, *to, below),
            Effect::Swap(one, other, below) => {
                for (one, other) in [(*one, *other)].iter().chain(below) {
                    let cell = self.cells[usize::from(*one)];
                    self.set(*one, self.cells[usize::from(*other)]);
                    self.set(*other, cell);
                }
            }
        }
        true
    }

    fn rename(&mut self, from: u16, to: u16, below: &[(u16, u16)]) -> bool {
        let moved = match self.cells[usize::from(from)] {
            Cell::There(moved) => moved,
            _ => Thing::unknown(0),
        };
        if let Cell::There(replaced) = self.cells[usize::from(to)] {
            if from == to || moved.ino != 0 && moved.ino == replaced.ino {
                return true; // two names of one object stay
            }
            let fits = match (moved.directory, replaced.directory) {
                (Some(one), Some(other)) if one != other => false,
                (Some(true), _) => self.is(to, Need::Empty),
                _ => true,
            };
            if !fits {
                return false;
            }
        }
        self.set(to, Cell::There(moved));
        self.set(from, Cell::Absent);
        if moved.directory != Some(false) {
            for (old, new) in below {
                self.set(*new, self.cells[usize::from(*old)]);
                self.set(*old, Cell::Absent);
            }
        }
        true
    }
}

/// Steps that have their place: one bit each.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
struct Placed([u64; MOST / 64]);

impl Default for Placed {
    fn default() -> Self {
        Self([0; MOST / 64])
    }
}

impl Placed {
    fn holds(&self, at: usize) -> bool {
        self.0[at / 64] >> (at % 64) & 1 == 1
    }

    fn with(mut self, at: usize) -> Self {
        self.0[at / 64] |= 1 << (at % 64);
        self
    }

    /// The first step without a place, in order of their end.
    fn first_left(&self) -> usize {
        let full = self.0.iter().take_while(|word| **word == u64::MAX).count();
        let next = self.0.get(full).map_or(0, |word| word.trailing_ones());
        full * 64 + next as usize
    }
}

fn fingerprint(at: u16, cell: Cell) -> u64 {
    let mut hasher = DefaultHasher::new();
    (at, cell).hash(&mut hasher);
    hasher.finish()
}

fn same(one: u64, other: u64) -> bool {
    one == 0 || other == 0 || one == other
}
