//! Objects that names lead to: files and directories with what stat would show of them.

use crate::model::state::extents::Extents;
use crate::model::state::first_state::{AtStart, FirstMode, FirstSize};
use crate::model::state::holes::Holes;
use crate::model::state::inode_attributes::Attributes;
use crate::semantics;

/// Knowledge of the contents of an object; each is less than the one before.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Predicted {
    Bytes,
    /// They were copied from elsewhere, or written at an unknown place.
    Size,
    Nothing,
}

/// Contents of an object, as far as calls show them.
#[derive(Clone, Debug)]
struct Data {
    /// Bytes that carry the pattern; the rest are holes.
    written: Extents,
    /// Bytes on the disk, at most, without holes.
    filled: i64,
    predicted: Predicted,
}

impl Data {
    fn of(written: Extents, predicted: Predicted) -> Self {
        Self {
            filled: written.bytes(),
            written,
            predicted,
        }
    }
}

/// A file, directory or other object through its life.
#[derive(Clone, Debug)]
pub struct Object {
    /// Identity in the trace, 0 if it is not known.
    ino: u64,
    now: Attributes,
    links: u32,
    /// A symlink's target.
    target: u32,
    data: Data,
    /// `None` if a call made it.
    start: Option<AtStart>,
    /// When the mode was last set, or begin of the last call that showed another one.
    mode_since_ns: i64,
}

impl Object {
    /// Returns an object that a call makes, without a name yet.
    pub fn made(ino: u64, attributes: Attributes, target: u32) -> Self {
        Self {
            ino,
            now: attributes,
            links: 0,
            target,
            data: Data::of(Extents::default(), Predicted::Bytes),
            start: None,
            mode_since_ns: i64::MIN,
        }
    }

    /// Returns an object that existed before the first operation.
    pub fn found(ino: u64, start: AtStart, target: u32) -> Self {
        Self {
            data: Data::of(start.data(), Predicted::Bytes),
            start: Some(start.clone()),
            ..Self::made(ino, start.attributes, target)
        }
    }

    pub fn ino(&self) -> u64 {
        self.ino
    }

    pub fn learn_ino(&mut self, ino: u64) {
        self.ino = ino;
    }

    pub fn target(&self) -> u32 {
        self.target
    }

    pub fn attributes(&self) -> Attributes {
        self.now
    }

    pub fn mode(&self) -> u32 {
        self.now.mode
    }

    pub fn size(&self) -> i64 {
        self.now.size
    }

    /// Returns its state before the first operation; `None` if a call made it.
    pub fn at_start(&self) -> Option<&AtStart> {
        self.start.as_ref()
    }

    pub fn was_there(&self) -> bool {
        self.start.is_some()
    }

    pub fn is_directory(&self) -> bool {
        semantics::is_directory(self.now.mode)
    }

    pub fn is_symlink(&self) -> bool {
        self.now.mode & libc::S_IFMT == libc::S_IFLNK
    }

    pub fn is_linked(&self) -> bool {
        self.links > 0
    }

    /// Notes a name more.
    pub fn link(&mut self) {
        self.links += 1;
    }

    /// Notes a name less.
    pub fn unlink(&mut self) {
        self.links = self.links.saturating_sub(1);
    }

    pub fn predicted(&self) -> Predicted {
        self.data.predicted
    }

    /// Notes that no more than this is predicted from now on.
    pub fn predict(&mut self, most: Predicted) {
        self.data.predicted = self.data.predicted.max(most);
    }

    /// Returns the bytes that carry the pattern; the rest are holes.
    pub fn written(&self) -> &Extents {
        &self.data.written
    }

    /// Adds written bytes; returns how many are new, and if they lie apart from all others.
    pub fn add_written(&mut self, start: i64, end: i64) -> (i64, bool) {
        let before = self.data.written.ranges().len();
        let new = self.data.written.add(start, end);
        (new, self.data.written.ranges().len() > before)
    }

    /// Makes a hole.
    pub fn punch(&mut self, start: i64, end: i64) {
        self.data.written.punch(start, end);
    }

    /// Notes that `bytes` more may be on the disk.
    pub fn fill(&mut self, bytes: i64) {
        self.data.filled = self.data.filled.saturating_add(bytes);
        self.touch();
    }

    /// Notes that its data is no longer that of the start.
    pub fn touch(&mut self) {
        if let Some(start) = &mut self.start {
            start.untouched = false;
        }
    }

    /// Gives it another size.
    pub fn resize(&mut self, size: i64) {
        if size != self.now.size {
            self.touch();
        }
        self.now.size = size;
        self.data.written.cut(size);
        self.data.filled = self.data.filled.min(size);
        if let Some(start) = &mut self.start {
            start.know_size();
        }
    }

    /// Returns how many bytes it takes on the disk, at most.
    pub fn takes(&self) -> i64 {
        if self.data.predicted == Predicted::Nothing {
            self.data.filled
        } else {
            self.now.size.min(self.data.filled)
        }
    }

    /// Returns the same as `takes`, but no more than was written, where that is known.
    pub fn data_bytes(&self) -> i64 {
        if self.data.predicted != Predicted::Bytes {
            self.takes()
        } else {
            self.data.written.bytes()
        }
    }

    /// Returns whether only the snapshot shows the size at the start, as no call has shown or
    /// changed it.
    pub fn is_tentative(&self) -> bool {
        let start = self.start.as_ref();
        start.is_some_and(|start| start.size == FirstSize::Snapshot)
    }

    /// Returns the size, unless only the snapshot shows it.
    pub fn known_size(&self) -> Option<i64> {
        let known = !self.is_tentative() && semantics::is_regular(self.now.mode);
        known.then_some(self.now.size)
    }

    /// Gives it a size at the start.
    fn begin_with(&mut self, size: i64) {
        if let Some(start) = &mut self.start {
            (start.attributes.size, self.now.size) = (size, size);
            self.data = Data::of(start.data(), self.data.predicted);
        }
    }

    /// Corrects the snapshot by the first call that shows a size and did not change it.
    ///
    /// Later calls do not count: sizes are read when a call returns, and a write may be under way.
    pub fn show_size(&mut self, size: i64) {
        if size >= 0 && self.is_tentative() {
            self.begin_with(size);
            self.start.iter_mut().for_each(AtStart::know_size);
        }
    }

    /// Corrects the snapshot by a read of at least so many bytes.
    pub fn show_least(&mut self, least: i64) {
        let start = self.start.as_ref().filter(|_| self.is_tentative());
        if start.is_some_and(|start| least > start.attributes.size) {
            self.begin_with(least);
        }
    }

    /// Derives the size at the start from the first write, which left the file with `after` bytes
    /// and ended at `end`; `before` is the size before an append, or before what is known.
    pub fn begin_before_write(&mut self, before: Option<i64>, after: i64, end: i64, appends: bool) {
        let Some(start) = &self.start else {
            return;
        };
        self.show_size(match before {
            Some(before) => before,
            None if after > end => after,
            None => start.attributes.size.min(after),
        });
        if let Some(start) = self.start.as_mut().filter(|_| appends && before.is_some()) {
            start.size = FirstSize::FirstAppend;
        }
    }

    /// Corrects the size at the start; returns if it was wrong. A later append that began before the
    /// present end of the file shows that the size after the first one included other writes: the
    /// file was smaller at the start.
    pub fn correct_first_append(&mut self, at: i64) -> bool {
        let appended = |start: &&mut AtStart| start.size == FirstSize::FirstAppend;
        let Some(start) = self.start.as_mut().filter(appended) else {
            return false;
        };
        let excess = self.now.size - at;
        if excess <= 0 || excess > start.attributes.size {
            start.size = FirstSize::Known;
            return false;
        }
        start.attributes.size -= excess;
        self.predict(Predicted::Size);
        true
    }

    /// Learns holes of the start by `learn`, as long as no call has changed the file.
    pub fn learn_holes(&mut self, learn: impl FnOnce(&mut Holes)) {
        let Some(start) = self.start.as_mut().filter(|start| start.untouched) else {
            return;
        };
        let holes = start.holes.get_or_insert_default();
        if !holes.is_full() {
            learn(holes);
            self.data = Data::of(start.data_of(self.now.size), self.data.predicted);
        }
    }

    /// Corrects the guess about an object whose type was not known.
    pub fn become_directory(&mut self) {
        self.change_mode(|mode| mode & 0o7777 | libc::S_IFDIR);
    }

    /// Takes a type where none was known.
    pub fn learn_type(&mut self, kind: u32) {
        self.change_mode(|mode| mode | kind);
    }

    fn change_mode(&mut self, change: impl Fn(u32) -> u32) {
        self.now.mode = change(self.now.mode);
        if let Some(start) = &mut self.start {
            start.attributes.mode = change(start.attributes.mode);
        }
    }

    /// Takes the mode that a call or descriptor shows, if the mode was a guess.
    pub fn learn_mode(&mut self, shown: u32) {
        let guessed = |start: &&mut AtStart| start.mode == FirstMode::Guessed;
        let Some(start) = self.start.as_mut().filter(guessed) else {
            return;
        };
        let kind = start.attributes.mode & libc::S_IFMT;
        let other = kind != 0 && shown & libc::S_IFMT != kind;
        // An object that a call met without showing its type was taken for a regular file.
        let only_taken = start.size == FirstSize::Snapshot && semantics::is_regular(kind);
        if shown == 0 || (other && !only_taken) {
            return;
        }
        start.mode = FirstMode::Shown;
        if !semantics::is_regular(shown) {
            start.know_size();
        }
        self.change_mode(|_| shown);
        if other {
            self.begin_with(0);
        }
    }

    /// Takes the mode that a later call met although no recorded call set it: one by a name such as
    /// /proc/self/fd/3 did, or a write that took a set-id bit away.
    pub fn meet_mode(&mut self, met: u32, begun_ns: i64) {
        let same_type = (met ^ self.now.mode) & libc::S_IFMT == 0;
        // Some show only the type, as locks held at the start do.
        let known = met & 0o7777 != 0;
        if same_type && known && begun_ns > self.mode_since_ns && met != self.now.mode {
            self.mode_since_ns = begun_ns;
            self.now.mode = met;
        }
    }

    /// Notes that a call that ends at this time sets the mode.
    pub fn set_mode_at(&mut self, end_ns: i64) {
        self.mode_since_ns = self.mode_since_ns.max(end_ns);
    }

    pub fn chmod(&mut self, mode: u32) {
        if let Some(start) = &mut self.start {
            start.mode = FirstMode::Shown;
        }
        self.now.chmod(mode);
    }

    pub fn chown(&mut self, ids: i64) {
        self.now.chown(ids);
    }
}
