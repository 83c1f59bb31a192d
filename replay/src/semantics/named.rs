//! Whether a call names what it works on, and how that was given.

use spoolscope_traces::records::{BASE_FD, BASE_NONE, END_UP, NONE, PlanOp};

use super::{Kind, kind};

/// Whether the call names an object by path (fd calls carry their path only to inform).
pub fn uses_path(op: &PlanOp) -> bool {
    base(op.base) != BASE_NONE && op.path != NONE && !is_empty_path(op)
}

/// What a name is relative to (enum spsc_path_base).
pub const fn base(given: u8) -> u8 {
    given & 0xf
}

/// What makes a name lead through its last component (enum spsc_path_end, without END_UP).
pub const fn end(given: u8) -> u8 {
    given >> 4 & !END_UP
}

/// Whether `..` stands before the last component of a name.
pub const fn leads_up(given: u8) -> bool {
    given >> 4 & END_UP != 0
}

/// Whether a name of a call tells more than which object is meant: how it leads there.
pub const fn leads_through(op: &PlanOp) -> bool {
    op.base >> 4 != 0 || op.base2 >> 4 != 0
}

/// Whether an *at call works on its descriptor itself: fstat() is newfstatat(fd, "", EMPTY_PATH).
pub fn is_empty_path(op: &PlanOp) -> bool {
    let empty = op.flags & libc::AT_EMPTY_PATH as u32 != 0 && base(op.base) == BASE_FD;
    empty
        && matches!(
            kind(op),
            Kind::Stat | Kind::Chown | Kind::Chmod | Kind::Access
        )
}

/// Whether `path2` is a path; it is text for symlinks and extended attributes.
pub fn has_second_path(op: &PlanOp) -> bool {
    matches!(kind(op), Kind::Rename | Kind::Link)
}
