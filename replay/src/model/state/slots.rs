//! Objects that names lead to, now and before the first operation; index = path.

use foldhash::{HashMap, HashMapExt};

/// The known state of a name.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Slot {
    /// No operation has shown it yet.
    Unknown,
    Absent,
    /// Index into the objects.
    Present(u32),
}

/// The state of all names.
#[derive(Debug)]
pub struct Slots {
    now: Vec<Slot>,
    at_start: Vec<Slot>,
    /// Names that a call reached with success, so their directories existed.
    reached: Vec<bool>,
    /// The name at start of objects that were there.
    first_names: HashMap<u32, u32>,
}

impl Slots {
    pub fn new(n: usize) -> Self {
        Self {
            now: vec![Slot::Unknown; n],
            at_start: vec![Slot::Unknown; n],
            reached: vec![false; n],
            first_names: HashMap::new(),
        }
    }

    /// Makes room for so many names in all; the new ones lead to nothing, nor did at the start.
    pub fn grow(&mut self, n: usize) {
        self.now.resize(n, Slot::Absent);
        self.at_start.resize(n, Slot::Absent);
    }

    pub fn now(&self) -> &[Slot] {
        &self.now
    }

    pub fn at_start(&self) -> &[Slot] {
        &self.at_start
    }

    /// Returns the present state of a name; one without an index leads to nothing.
    pub fn get(&self, path: u32) -> Slot {
        let slot = self.now.get(path as usize);
        slot.copied().unwrap_or(Slot::Absent)
    }

    /// Changes the present state of a name; returns that before.
    pub fn set(&mut self, path: u32, slot: Slot) -> Slot {
        std::mem::replace(&mut self.now[path as usize], slot)
    }

    pub fn set_at_start(&mut self, path: u32, slot: Slot) {
        self.at_start[path as usize] = slot;
    }

    pub fn swap(&mut self, one: u32, other: u32) {
        self.now.swap(one as usize, other as usize);
    }

    pub fn is_unknown(&self, path: u32) -> bool {
        self.get(path) == Slot::Unknown
    }

    pub fn is_present(&self, path: u32) -> bool {
        matches!(self.get(path), Slot::Present(_))
    }

    pub fn was_present(&self, path: u32) -> bool {
        matches!(self.at_start[path as usize], Slot::Present(_))
    }

    /// Returns the first name that leads to an object.
    pub fn name_of(&self, object: u32) -> Option<u32> {
        let at = self.now.iter().position(|at| *at == Slot::Present(object));
        at.map(|path| path as u32)
    }

    /// Returns the name at start of an object that was there.
    pub fn first_name(&self, object: u32) -> Option<u32> {
        self.first_names.get(&object).copied()
    }

    /// Notes that an object had a name at the start.
    pub fn begin(&mut self, path: u32, object: u32) {
        self.set_at_start(path, Slot::Present(object));
        self.first_names.entry(object).or_insert(path);
    }

    /// Notes that a call found its way to a name.
    pub fn reach(&mut self, path: u32) {
        if let Some(reached) = self.reached.get_mut(path as usize) {
            *reached = true;
        }
    }

    /// Returns names that calls found their way to.
    pub fn reached(&self) -> impl Iterator<Item = u32> + '_ {
        let all = (0..).zip(&self.reached);
        all.filter(|(_, reached)| **reached).map(|(path, _)| path)
    }
}
