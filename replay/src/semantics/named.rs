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
    let empty = op.flags & libc::AT_EMPTY_PATH as u32 != 0 && base(op.base) == BASE_FD;
    empty
        && matches!(
            kind(op),
            Kind::Stat | Kind::Chown | Kind::Chmod | Kind::Access
        )
}

/// Returns whether `path2` is a path; it is text for symlinks and extended attributes.
pub fn has_second_path(op: &PlanOp) -> bool {
    matches!(kind(op), Kind::Rename | Kind::Link)
}
