//! Names in the arguments of calls, and how they were given.

use spoolscope_traces::records::{BASE_FD, BASE_NONE, END_UP, NONE, PlanOp};

use super::{Kind, kind};

/// Returns whether the call names an object by path (fd calls carry their path only to inform).
pub fn uses_path(op: &PlanOp) -> bool {
    base(op.base) != BASE_NONE && op.path != NONE && !is_empty_path(op)
}

/// Returns the base of a relative name (enum spsc_path_base).
pub const fn base(given: u8) -> u8 {
    given & 0xf
}

/// Returns the end that leads a name through its last component (spsc_path_end without END_UP).
pub const fn end(given: u8) -> u8 {
    given >> 4 & !END_UP
}

/// Returns whether `..` stands before the last component of a name.
pub const fn leads_up(given: u8) -> bool {
    given >> 4 & END_UP != 0
}

/// Returns whether a name of a call also states how it leads to its object.
pub const fn leads_through(op: &PlanOp) -> bool {
    op.base >> 4 != 0 || op.base2 >> 4 != 0
}

/// Returns whether an *at call works on its descriptor: fstat() is newfstatat(fd, "", EMPTY_PATH).
pub fn is_empty_path(op: &PlanOp) -> bool {
    may_be_empty(op)
        && matches!(
            kind(op),
            Kind::Stat | Kind::Chown | Kind::Chmod | Kind::Access
        )
}

/// Returns whether a call gives the file of its descriptor a name: `linkat(fd, "", ...)`. A path that
/// has no dots and that leads to the descriptor itself was empty; a file without a name has none
/// that leads to it.
pub fn links_descriptor(op: &PlanOp) -> bool {
    may_be_empty(op) && kind(op) == Kind::Link && op.given == NONE
}

/// Returns whether a call may read the symlink of its descriptor: `readlinkat(fd, "", ...)`, if the
/// path leads to the descriptor itself.
pub fn reads_descriptor(op: &PlanOp) -> bool {
    let of_link = op.ret >= 0 || op.ret == -i64::from(libc::ENOENT);
    kind(op) == Kind::Readlink && base(op.base) == BASE_FD && op.given == NONE && of_link
}

fn may_be_empty(op: &PlanOp) -> bool {
    op.flags & libc::AT_EMPTY_PATH as u32 != 0 && base(op.base) == BASE_FD
}

/// Returns whether `path2` is a path; it is text for symlinks and extended attributes.
pub fn has_second_path(op: &PlanOp) -> bool {
    matches!(kind(op), Kind::Rename | Kind::Link)
}
