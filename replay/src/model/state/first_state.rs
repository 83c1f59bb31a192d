//! State before the first operation of objects that existed then.

use crate::model::state::extents::Extents;
use crate::model::state::holes::Holes;
use crate::model::state::inode_attributes::Attributes;

/// The size that a file had at the start, by what shows it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FirstSize {
    /// Only the snapshot, which was taken while the server ran.
    Snapshot,
    /// The first append, which may have included other writes.
    FirstAppend,
    /// Calls; or it is no file, and has none.
    Known,
}

/// The mode at the start: shown, or guessed until something shows it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FirstMode {
    Guessed,
    Shown,
}

/// State before the first operation of an object that existed then.
#[derive(Clone, Debug)]
pub struct AtStart {
    pub attributes: Attributes,
    pub size: FirstSize,
    pub mode: FirstMode,
    /// The holes it had, if some are known.
    pub holes: Option<Box<Holes>>,
    /// No call has changed its data: calls that look for holes show those of the start.
    pub untouched: bool,
}

impl AtStart {
    /// Returns the parts that were data, if it had this size.
    pub fn data_of(&self, size: i64) -> Extents {
        match &self.holes {
            Some(holes) => holes.data(size),
            None => Holes::default().data(size),
        }
    }

    /// Returns the parts that were data.
    pub fn data(&self) -> Extents {
        self.data_of(self.attributes.size)
    }

    /// Notes that a call shows the size.
    pub fn know_size(&mut self) {
        if self.size == FirstSize::Snapshot {
            self.size = FirstSize::Known;
        }
    }
}
