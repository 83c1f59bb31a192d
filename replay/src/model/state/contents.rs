//! Sizes and bytes of files, as writes, truncations and the results of calls imply them.

use spoolscope_traces::records::PlanOp;

use crate::model::state::holes::BLOCK;
use crate::model::state::objects::{Object, Predicted};
use crate::model::state::sizes::{size_after, write_offset};
use crate::model::state::world::World;
use crate::semantics::{self, Kind};

/// SEEK_DATA found nothing up to the end.
const NO_MORE: i64 = -(libc::ENXIO as i64);

impl World<'_> {
    pub fn resize(&mut self, object: u32, size: i64) {
        self.space.cut(object, size);
        if size < self.object(object).size() {
            self.space.release(object, size, i64::MAX);
        }
        self.counted(object, |entry| entry.resize(size));
    }

    /// Notes that `bytes` more may be on the disk.
    fn fill(&mut self, object: u32, bytes: i64) {
        self.counted(object, |entry| entry.fill(bytes));
    }

    /// Notes bytes at an unknown place, in blocks of their own.
    pub fn fill_somewhere(&mut self, object: u32, bytes: i64) {
        self.fill(object, bytes.saturating_add(2 * BLOCK));
    }

    /// Notes a page written to through a mapping, which takes room once, also in a hole.
    pub fn dirty(&mut self, op: &PlanOp, object: u32) {
        let new = self.space.dirty(object, op.offset);
        self.fill(object, new);
    }

    /// Changes an object, and counts how much more it takes on the disk; not for what is learnt of
    /// the start.
    fn counted(&mut self, object: u32, change: impl FnOnce(&mut Object)) {
        let entry = self.object_mut(object);
        let before = entry.takes();
        change(entry);
        let grown = entry.takes() - before;
        if entry.is_linked() {
            self.space.grow(grown);
        }
    }

    /// Learns holes from SEEK_DATA and SEEK_HOLE, as long as no call has changed the file.
    pub fn learn_holes(&mut self, op: &PlanOp) {
        let Some(object) = self.target_of(op).filter(|_| op.offset >= 0) else {
            return;
        };
        let entry = self.object_mut(object);
        let size = entry.size();
        entry.learn_holes(|holes| match (op.cmd, op.ret) {
            (libc::SEEK_DATA, NO_MORE) if op.offset < size => holes.data_at(op.offset, None),
            (libc::SEEK_DATA, at) if at >= op.offset => holes.data_at(op.offset, Some(at)),
            (libc::SEEK_HOLE, at) if at >= op.offset => holes.hole_at(op.offset, at),
            _ => {}
        });
    }

    /// Applies fallocate: it makes room that reads as zeros, or a hole, or moves contents.
    pub fn allocate(&mut self, op: &PlanOp, object: u32) {
        const HOLE: u32 = (libc::FALLOC_FL_PUNCH_HOLE | libc::FALLOC_FL_ZERO_RANGE) as u32;
        const MOVE: u32 = (libc::FALLOC_FL_COLLAPSE_RANGE | libc::FALLOC_FL_INSERT_RANGE) as u32;
        const PUNCH: u32 = libc::FALLOC_FL_PUNCH_HOLE as u32;
        self.resize(object, op.obj_size);
        let end = op.offset.saturating_add(op.size);
        match op.flags & (PUNCH | MOVE) {
            // Files without a name are not counted, nor are writes to them.
            0 if !self.object(object).is_linked() => {}
            0 => {
                let data = self.objects.get(object).written();
                self.space.reserve(object, (op.offset, end), data);
            }
            PUNCH => self.space.release(object, op.offset, end),
            _ => {}
        }
        let entry = self.object_mut(object);
        // Room that was never written is no data.
        if op.flags & (HOLE | MOVE) != 0 {
            entry.touch();
        }
        if op.flags & HOLE != 0 {
            entry.punch(op.offset, end);
        }
        if op.flags & MOVE != 0 {
            entry.predict(Predicted::Size);
        }
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
        entry.predict(if op.obj_size < 0 {
            Predicted::Nothing
        } else {
            Predicted::Size
        });
    }

    /// Adds the bytes written by a call, at the place that the descriptor's flags imply.
    pub fn write(&mut self, op: &PlanOp, object: u32) {
        let appends = self.appends(op);
        let at = write_offset(op, appends);
        let grown = i64::from(appends) * (self.object(object).size() + op.ret);
        let end = at.map_or(grown, |at| at + op.ret);
        let after = match op.obj_size {
            ..0 => end.max(self.object(object).size()), // reads may have shown more
            size => size,
        };
        if self.object(object).is_tentative() {
            let before = if after > end || (after == end && !appends) {
                None
            } else {
                at
            };
            self.object_mut(object)
                .begin_before_write(before, after, end, appends);
        } else if let Some(at) = at.filter(|_| appends)
            && self.object_mut(object).correct_first_append(at)
        {
            self.resize(object, at);
        }
        let left = if self.decides_size(op, object) {
            end
        } else {
            after
        };
        let size = self.object(object).size().max(end).max(left);
        let leader = self.leader(op.thread);
        let races = self.descriptors.races_for_position(leader, op);
        let entry = self.object_mut(object);
        // Sizes are read after the end of a call was noted, and may include later writes.
        let elsewhere = appends && at.is_some_and(|at| at != entry.size());
        if races || elsewhere {
            entry.predict(Predicted::Size);
        }
        let Some(at) = at else {
            entry.predict(Predicted::Size);
            self.fill_somewhere(object, op.ret);
            return self.resize(object, size);
        };
        self.space.release(object, at, at + op.ret);
        let (new, apart) = self.object_mut(object).add_written(at, at + op.ret);
        match apart {
            true => self.fill_somewhere(object, new),
            false => self.fill(object, new),
        }
        self.resize(object, size);
    }

    /// Returns whether the size that a write leaves follows from its place and the size before: the
    /// size read after its end may include writes of other calls.
    fn decides_size(&self, op: &PlanOp, object: u32) -> bool {
        let known = self.descriptor(op, op.fd).file;
        let object = self.object(object);
        known.is_some()
            && op.offset >= 0
            && !object.is_tentative()
            && object.predicted() != Predicted::Nothing
            && !self.appends(op)
    }

    /// Returns the size that a call leaves if it comes next; `None` if it cannot change it.
    pub fn size_left(&self, op: &PlanOp) -> Option<i64> {
        let recorded = size_after(op)?;
        let writes = semantics::kind(op) == Kind::Write;
        let decided = self
            .target_of(op)
            .filter(|object| writes && self.decides_size(op, *object));
        let before = decided.and_then(|object| self.object(object).known_size());
        Some(before.map_or(recorded, |size| size.max(op.offset.saturating_add(op.ret))))
    }

    /// Returns the object behind the second descriptor, to which a call copied or which it cloned.
    pub fn second_of(&self, op: &PlanOp) -> Option<u32> {
        self.descriptor(op, op.fd2).object
    }

    /// Notes contents that came from another file, which are not predicted.
    pub fn blur_output(&mut self, op: &PlanOp) {
        if let Some(object) = self.second_of(op).filter(|_| op.ret > 0) {
            self.counted(object, |entry| {
                entry.fill(op.ret + 2 * BLOCK);
                entry.predict(Predicted::Nothing);
            });
        }
    }
}
