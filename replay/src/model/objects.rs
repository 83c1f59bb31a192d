//! Objects that names lead to: files and directories with what stat would show of them.

use serde::{Deserialize, Serialize};
use spoolscope_traces::records::PlanEntry;

use crate::model::extents::Extents;
use crate::model::holes::Holes;
use crate::semantics;

/// The result of stat, as far as it is replayed.
#[derive(Clone, Copy, Debug, Default, Serialize, Deserialize)]
pub struct Attributes {
    pub mode: u32,
    pub uid: u32,
    pub gid: u32,
    pub size: i64,
    pub mtime_ns: i64,
}

/// A file, directory or other object through its life.
#[derive(Clone, Debug)]
pub struct Object {
    /// Identity in the trace, 0 if it is not known.
    pub ino: u64,
    pub first: Attributes,
    pub now: Attributes,
    pub nlink: u32,
    /// A symlink's target.
    pub target: u32,
    /// Bytes that carry the pattern; the rest are holes.
    pub written: Extents,
    /// Bytes on the disk, at most, without holes.
    pub filled: i64,
    /// The holes it had at the start, if some are known.
    pub holes: Option<Box<Holes>>,
    /// A call has changed its data, so that later calls show nothing of those holes.
    pub changed: bool,
    /// Contents cannot be predicted: copied from elsewhere or written at an unknown place.
    pub blurred: bool,
    /// The size cannot be predicted either.
    pub unsized_: bool,
    /// Existed before the first operation.
    pub initial: bool,
    /// The mode is a guess: nothing has shown it so far.
    pub guessed: bool,
    /// The size at start comes from the snapshot only, which was taken while the server ran.
    pub tentative: bool,
    /// The size at start comes from the first append, which may have included other writes.
    pub at_most: bool,
}

impl Object {
    pub fn is_directory(&self) -> bool {
        self.now.mode & libc::S_IFMT == libc::S_IFDIR
    }

    /// Returns how many bytes it takes on the disk, at most.
    pub fn takes(&self) -> i64 {
        if self.unsized_ {
            self.filled
        } else {
            self.now.size.min(self.filled)
        }
    }

    /// Returns the same as `takes`, but no more than was written, where that is known.
    pub fn data_bytes(&self) -> i64 {
        if self.blurred {
            self.takes()
        } else {
            self.written.bytes()
        }
    }

    /// Returns the parts that were data at the start, if it had this size.
    pub fn data_at_start(&self, size: i64) -> Extents {
        match &self.holes {
            Some(holes) => holes.data(size),
            None => Holes::default().data(size),
        }
    }

    /// Gives it a size at the start.
    pub fn begin_with(&mut self, size: i64) {
        (self.first.size, self.now.size) = (size, size);
        self.written = self.data_at_start(size);
        self.filled = self.written.bytes();
    }

    /// Corrects the guess about an object whose type was not known.
    pub fn become_directory(&mut self) {
        for attributes in [&mut self.first, &mut self.now] {
            attributes.mode = attributes.mode & 0o7777 | libc::S_IFDIR;
        }
    }

    /// Takes the mode that a call or descriptor shows, if the mode was a guess.
    pub fn learn_mode(&mut self, told: u32) {
        let kind = self.first.mode & libc::S_IFMT;
        let other = kind != 0 && told & libc::S_IFMT != kind;
        // An object that a call met without showing its type was taken for a regular file.
        let only_taken = self.tentative && semantics::is_regular(kind);
        if !self.guessed || told == 0 || (other && !only_taken) {
            return;
        }
        if other {
            self.begin_with(0);
        }
        self.guessed = false;
        self.tentative &= semantics::is_regular(told);
        (self.first.mode, self.now.mode) = (told, told);
    }

    pub fn chmod(&mut self, mode: u32) {
        self.guessed = false;
        self.now.chmod(mode);
    }
}

impl Attributes {
    pub fn chmod(&mut self, mode: u32) {
        self.mode = self.mode & libc::S_IFMT | mode & 0o7777;
    }

    /// Takes `uid | gid << 32`; all ones keep an id. A regular file loses its set-id bits.
    pub fn chown(&mut self, ids: i64) {
        let (uid, gid) = (ids as u32, (ids as u64 >> 32) as u32);
        if uid != u32::MAX {
            self.uid = uid;
        }
        if gid != u32::MAX {
            self.gid = gid;
        }
        if !semantics::is_directory(self.mode) {
            let group = if self.mode & libc::S_IXGRP != 0 {
                libc::S_ISGID
            } else {
                0
            };
            self.mode &= !(libc::S_ISUID | group);
        }
    }

    /// Returns what the snapshot shows; sizes of directories mean nothing elsewhere.
    pub fn of_entry(entry: &PlanEntry) -> Self {
        Self {
            mode: if entry.mode == 0 {
                libc::S_IFREG | 0o600 // not known
            } else {
                entry.mode
            },
            uid: entry.uid,
            gid: entry.gid,
            size: if semantics::is_regular(entry.mode) {
                entry.size
            } else {
                0
            },
            mtime_ns: entry.mtime_ns,
        }
    }
}
