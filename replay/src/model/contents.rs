//! Sizes and bytes of files, as writes, truncations and the results of calls imply them.

use spoolscope_traces::records::PlanOp;

use crate::model::holes::BLOCK;
use crate::model::objects::Object;
use crate::model::sizes::{size_after, write_offset};
use crate::model::world::World;
use crate::semantics::{self, Kind};

/// SEEK_DATA found nothing up to the end.
const NO_MORE: i64 = -(libc::ENXIO as i64);

impl World<'_> {
    /// Returns the size of an object, unless only the snapshot shows it.
    pub fn known_size(&self, object: u32) -> Option<i64> {
        let object = self.object(object);
        (!object.tentative && semantics::is_regular(object.now.mode)).then_some(object.now.size)
    }

    /// Corrects the snapshot by the first call that shows a size and did not change it.
    ///
    /// Later calls do not count: sizes are read when a call returns, and a write may be under way.
    pub fn observe_size(&mut self, object: u32, size: i64) {
        if size < 0 || !self.object(object).tentative {
            return;
        }
        let entry = self.object_mut(object);
        entry.begin_with(size);
        entry.tentative = false;
    }

    pub fn resize(&mut self, object: u32, size: i64) {
        if let Some(pages) = self.dirtied.get_mut(&object) {
            pages.cut(size);
        }
        if size < self.object(object).now.size {
            self.release(object, size, i64::MAX);
        }
        self.counted(object, |entry| {
            entry.changed |= size != entry.now.size;
            entry.now.size = size;
            entry.written.cut(size);
            entry.filled = entry.filled.min(size);
            entry.tentative = false;
        });
    }

    /// Notes that `bytes` more may be on the disk.
    fn fill(&mut self, object: u32, bytes: i64) {
        self.counted(object, |entry| {
            entry.filled = entry.filled.saturating_add(bytes);
            entry.changed = true;
        });
    }

    /// Notes bytes at an unknown place, in blocks of their own.
    pub fn fill_somewhere(&mut self, object: u32, bytes: i64) {
        self.fill(object, bytes.saturating_add(2 * BLOCK));
    }

    /// Notes a page written to through a mapping, which takes room once, also in a hole.
    pub fn dirty(&mut self, op: &PlanOp, object: u32) {
        let pages = self.dirtied.entry(object).or_default();
        let new = pages.add(op.offset, op.offset.saturating_add(BLOCK));
        self.fill(object, new);
    }

    /// Changes an object, and counts how much more it takes on the disk; not for what is learnt of
    /// the start.
    fn counted(&mut self, object: u32, change: impl FnOnce(&mut Object)) {
        let entry = self.object_mut(object);
        let before = entry.takes();
        change(entry);
        let grown = entry.takes() - before;
        if entry.nlink > 0 {
            self.grow(grown);
        }
    }

    /// Learns holes from SEEK_DATA and SEEK_HOLE, as long as no call has changed the file.
    pub fn learn_holes(&mut self, op: &PlanOp) {
        let Some(object) = self.target_of(op).filter(|_| op.offset >= 0) else {
            return;
        };
        let entry = self.object_mut(object);
        if !entry.initial || entry.changed {
            return;
        }
        let holes = entry.holes.get_or_insert_default();
        if holes.is_full() {
            return;
        }
        match (op.cmd, op.ret) {
            (libc::SEEK_DATA, NO_MORE) if op.offset < entry.now.size => {
                holes.data_at(op.offset, None);
            }
            (libc::SEEK_DATA, at) if at >= op.offset => holes.data_at(op.offset, Some(at)),
            (libc::SEEK_HOLE, at) if at >= op.offset => holes.hole_at(op.offset, at),
            _ => {}
        }
        entry.written = entry.data_at_start(entry.now.size);
        entry.filled = entry.written.bytes();
    }

    /// Applies fallocate: it makes room that reads as zeros, or a hole, or moves contents.
    pub fn allocate(&mut self, op: &PlanOp, object: u32) {
        const HOLE: u32 = (libc::FALLOC_FL_PUNCH_HOLE | libc::FALLOC_FL_ZERO_RANGE) as u32;
        const MOVE: u32 = (libc::FALLOC_FL_COLLAPSE_RANGE | libc::FALLOC_FL_INSERT_RANGE) as u32;
        const PUNCH: u32 = libc::FALLOC_FL_PUNCH_HOLE as u32;
        self.resize(object, op.obj_size);
        let end = op.offset.saturating_add(op.size);
        match op.flags & (PUNCH | MOVE) {
            0 => self.reserve(object, op.offset, end),
            PUNCH => self.release(object, op.offset, end),
            _ => {}
        }
        let entry = self.object_mut(object);
        // Room that was never written is no data.
        entry.changed |= op.flags & (HOLE | MOVE) != 0;
        if op.flags & HOLE != 0 {
            entry.written.punch(op.offset, end);
        }
        entry.blurred |= op.flags & MOVE != 0;
    }

    /// Reserves room for a range of a file; it counts once, however often it is asked for.
    fn reserve(&mut self, object: u32, start: i64, end: i64) {
        let entry = self.object(object);
        if entry.nlink == 0 {
            return; // not counted, as writes to a file without a name
        }
        let inside = |range: &&(i64, i64)| range.1 > start && range.0 < end;
        let data: Vec<_> = entry
            .written
            .ranges()
            .iter()
            .filter(inside)
            .copied()
            .collect();
        let room = self.reserved.entry(object).or_default();
        let before = room.bytes();
        room.add(start, end);
        for (from, to) in data {
            room.punch(from, to);
        }
        let new = room.bytes() - before;
        self.grow(new);
    }

    /// Ends the reservation of a range of a file, which is free or counts as written.
    fn release(&mut self, object: u32, start: i64, end: i64) {
        let Some(room) = self.reserved.get_mut(&object) else {
            return;
        };
        let before = room.bytes();
        room.punch(start, end);
        let freed = before - room.bytes();
        self.grow(-freed);
    }

    /// Applies a clone: contents that come from another file are not predicted.
    pub fn fill_from_another(&mut self, op: &PlanOp, object: u32) {
        // No more than the source has, which may have holes.
        let source = self.second_of(op).map(|source| self.object(source).takes());
        let most = if op.obj_size >= 0 {
            op.obj_size
        } else {
            i64::MAX
        };
        self.fill_somewhere(object, source.unwrap_or(most).min(most));
        if op.obj_size >= 0 {
            self.resize(object, op.obj_size);
        }
        let entry = self.object_mut(object);
        entry.blurred = true;
        entry.unsized_ |= op.obj_size < 0;
    }

    pub(super) fn grow(&mut self, bytes: i64) {
        self.live_bytes = self.live_bytes.saturating_add(bytes);
        self.peak_bytes = self.peak_bytes.max(self.live_bytes);
    }

    /// Adds the bytes written by a call, at the place that the descriptor's flags imply.
    pub fn write(&mut self, op: &PlanOp, object: u32) {
        let appends = self.appends(op);
        let at = write_offset(op, appends);
        let grown = i64::from(appends) * (self.object(object).now.size + op.ret);
        let end = at.map_or(grown, |at| at + op.ret);
        let after = if op.obj_size >= 0 { op.obj_size } else { end };
        if self.object(object).tentative {
            let before = if after > end || (after == end && !appends) {
                None
            } else {
                at
            };
            self.guess_size(object, before, after, end);
            self.object_mut(object).at_most = appends && before.is_some();
        } else if let Some(at) = at.filter(|_| appends) {
            self.correct_guess(object, at);
        }
        let told = if self.foretells(op, object) {
            end
        } else {
            after
        };
        let size = self.object(object).now.size.max(end).max(told);
        let leader = self.leader(op.thread);
        let races = self.descriptors.races_for_position(leader, op);
        let entry = self.object_mut(object);
        // Sizes are read after the end of a call was noted, and may include later writes.
        let elsewhere = appends && at.is_some_and(|at| at != entry.now.size);
        entry.blurred |= races || elsewhere;
        let Some(at) = at else {
            entry.blurred = true;
            self.fill_somewhere(object, op.ret);
            return self.resize(object, size);
        };
        self.release(object, at, at + op.ret);
        let entry = self.object_mut(object);
        let before = entry.written.ranges().len();
        let new = entry.written.add(at, at + op.ret);
        match entry.written.ranges().len() > before {
            true => self.fill_somewhere(object, new),
            false => self.fill(object, new),
        }
        self.resize(object, size);
    }

    /// Returns whether the size that a write leaves follows from its place and the size before: the
    /// size read after its end may include writes of other calls.
    fn foretells(&self, op: &PlanOp, object: u32) -> bool {
        let known = self.descriptors.get(self.leader(op.thread), op.fd).file;
        let object = self.object(object);
        known.is_some()
            && op.offset >= 0
            && !object.tentative
            && !object.unsized_
            && !self.appends(op)
    }

    /// Returns the size that a call leaves if it comes next; `None` if it cannot change it.
    pub fn size_left(&self, op: &PlanOp) -> Option<i64> {
        let told = size_after(op)?;
        let writes = semantics::kind(op) == Kind::Write;
        let foretold = self
            .target_of(op)
            .filter(|object| writes && self.foretells(op, *object));
        let size = foretold.and_then(|object| self.known_size(object));
        Some(size.map_or(told, |size| size.max(op.offset.saturating_add(op.ret))))
    }

    /// Derives the size that a file had before its first write.
    fn guess_size(&mut self, object: u32, before: Option<i64>, after: i64, end: i64) {
        let snapshot = self.object(object).first.size;
        let size = match before {
            Some(before) => before,
            None if after > end => after,
            None => snapshot.min(after),
        };
        self.observe_size(object, size);
    }

    /// Corrects a guess. A later append that began before the present end of the file shows that
    /// the size after the first one included other writes: the file was smaller at the start.
    fn correct_guess(&mut self, object: u32, at: i64) {
        let entry = self.object(object);
        let excess = entry.now.size - at;
        if !entry.at_most || excess <= 0 || excess > entry.first.size {
            self.object_mut(object).at_most = false;
            return;
        }
        let size = entry.now.size - excess;
        let entry = self.object_mut(object);
        entry.first.size -= excess;
        entry.blurred = true;
        self.resize(object, size);
    }

    /// Notes that a file of uncertain size had at least as many bytes as were read of it.
    pub fn observe_least(&mut self, object: u32, least: i64) {
        let entry = self.object(object);
        if entry.tentative && least > entry.first.size {
            self.object_mut(object).begin_with(least);
        }
    }

    /// Returns the object behind the second descriptor, to which a call copied or which it cloned.
    pub fn second_of(&self, op: &PlanOp) -> Option<u32> {
        self.descriptors.get(self.leader(op.thread), op.fd2).object
    }

    /// Notes contents that came from another file, which are not predicted.
    pub fn blur_output(&mut self, op: &PlanOp) {
        if let Some(object) = self.second_of(op).filter(|_| op.ret > 0) {
            self.counted(object, |entry| {
                entry.filled = entry.filled.saturating_add(op.ret + 2 * BLOCK);
                entry.changed = true;
                entry.blurred = true;
                entry.unsized_ = true;
            });
        }
    }
}
