//! Flags of opens and of open files.

use spoolscope_traces::calls::id_of;
use spoolscope_traces::records::PlanOp;

use super::{Kind, kind};

const CREAT: u16 = id_of("creat");

/// Flags of an open, or those that an open file has from it.
#[derive(Clone, Copy, Debug, Default)]
pub struct OpenFlags(i32);

impl OpenFlags {
    pub fn new(flags: u32) -> Self {
        Self(flags as i32)
    }

    /// Returns the flags in effect; creat implies some, openat2 carries them the same way.
    pub fn of(op: &PlanOp) -> Self {
        match op.op == CREAT {
            true => Self(libc::O_CREAT | libc::O_WRONLY | libc::O_TRUNC),
            false => Self::new(op.flags),
        }
    }

    pub fn bits(self) -> i32 {
        self.0
    }

    /// Returns whether all of some flags are set.
    fn has(self, flags: i32) -> bool {
        self.0 & flags == flags
    }

    pub fn creates(self) -> bool {
        self.has(libc::O_CREAT)
    }

    /// Returns whether the open makes the file, and fails if there is one.
    pub fn only_creates(self) -> bool {
        self.has(libc::O_CREAT | libc::O_EXCL)
    }

    /// Returns whether the open makes a file without a name, in the directory that it names.
    pub fn is_nameless(self) -> bool {
        self.has(libc::O_TMPFILE)
    }

    pub fn truncates(self) -> bool {
        self.has(libc::O_TRUNC)
    }

    pub fn wants_directory(self) -> bool {
        self.has(libc::O_DIRECTORY)
    }

    pub fn closes_on_exec(self) -> bool {
        self.has(libc::O_CLOEXEC)
    }

    pub fn appends(self) -> bool {
        self.has(libc::O_APPEND)
    }

    pub fn reads(self) -> bool {
        self.0 & libc::O_ACCMODE != libc::O_WRONLY
    }

    pub fn writes(self) -> bool {
        self.0 & libc::O_ACCMODE != libc::O_RDONLY
    }

    /// Returns the flags with which an open file is opened again by a name, as it was. A file without
    /// a name has one then.
    pub fn again(self) -> Self {
        let makes = libc::O_CREAT | libc::O_EXCL | libc::O_TRUNC;
        let nameless = if self.is_nameless() {
            libc::O_TMPFILE
        } else {
            0
        };
        Self(self.0 & !(makes | nameless))
    }

    pub fn with_close_on_exec(self, closes: bool) -> Self {
        let flag = if closes { libc::O_CLOEXEC } else { 0 };
        Self(self.0 & !libc::O_CLOEXEC | flag)
    }

    /// Returns the flags after F_SETFL, which changes only some.
    pub fn set(self, flags: u32) -> Self {
        const SETTABLE: i32 =
            libc::O_APPEND | libc::O_NONBLOCK | libc::O_DIRECT | libc::O_NOATIME | libc::O_ASYNC;
        Self(self.0 & !SETTABLE | flags as i32 & SETTABLE)
    }
}

/// Returns whether an operation made a file without a name.
pub fn makes_nameless(op: &PlanOp) -> bool {
    kind(op) == Kind::Open && op.ret >= 0 && op.ino != 0 && OpenFlags::of(op).is_nameless()
}
