//! Room that files take on the disk.

use foldhash::HashMap;

use crate::model::state::extents::Extents;
use crate::model::state::holes::BLOCK;

/// Bytes of linked files, without holes, by which they exceed those at the start.
#[derive(Debug, Default)]
pub struct Space {
    live_bytes: i64,
    peak_bytes: i64,
    /// Pages of files that were written to through mappings.
    dirtied: HashMap<u32, Extents>,
    /// Ranges of files that are preallocated, and not written yet.
    reserved: HashMap<u32, Extents>,
}

impl Space {
    /// Returns the most bytes that there were.
    pub fn peak_bytes(&self) -> i64 {
        self.peak_bytes
    }

    pub fn grow(&mut self, bytes: i64) {
        self.live_bytes = self.live_bytes.saturating_add(bytes);
        self.peak_bytes = self.peak_bytes.max(self.live_bytes);
    }

    /// Notes that a file which takes so many bytes has no name any more.
    pub fn lose(&mut self, object: u32, takes: i64) {
        let reserved = self.reserved.remove(&object);
        let reserved = reserved.map_or(0, |room| room.bytes());
        let freed = takes.saturating_add(reserved);
        self.live_bytes = self.live_bytes.saturating_sub(freed);
    }

    /// Notes a page written to through a mapping; returns how many of its bytes are new.
    pub fn dirty(&mut self, object: u32, offset: i64) -> i64 {
        let pages = self.dirtied.entry(object).or_default();
        pages.add(offset, offset.saturating_add(BLOCK))
    }

    /// Forgets pages from the end of a file on.
    pub fn cut(&mut self, object: u32, end: i64) {
        if let Some(pages) = self.dirtied.get_mut(&object) {
            pages.cut(end);
        }
    }

    /// Reserves room for a range of a file beside its data; it counts once, however often it is
    /// asked for.
    pub fn reserve(&mut self, object: u32, (start, end): (i64, i64), data: &Extents) {
        let room = self.reserved.entry(object).or_default();
        let before = room.bytes();
        room.add(start, end);
        let inside = |range: &&(i64, i64)| range.1 > start && range.0 < end;
        for (from, to) in data.ranges().iter().filter(inside) {
            room.punch(*from, *to);
        }
        let new = room.bytes() - before;
        self.grow(new);
    }

    /// Ends the reservation of a range of a file, which is free or counts as written.
    pub fn release(&mut self, object: u32, start: i64, end: i64) {
        let Some(room) = self.reserved.get_mut(&object) else {
            return;
        };
        let before = room.bytes();
        room.punch(start, end);
        let freed = before - room.bytes();
        self.grow(-freed);
    }
}
