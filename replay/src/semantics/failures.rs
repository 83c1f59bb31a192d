//! Reasons of failures from which more follows than from the failure itself.

use spoolscope_traces::records::{END_DOT, PlanOp, REASON_AROUND, REASON_BROKEN, REASON_USED_UP};

use super::{Kind, Lock, end, kind, lock};

/// Returns whether a call was not permitted; a refused change of identity concerns no files.
pub fn was_denied(op: &PlanOp) -> bool {
    let denied = op.ret == -i64::from(libc::EACCES) || op.ret == -i64::from(libc::EPERM);
    denied && kind(op) != Kind::Identity
}

/// Returns whether an object had no room for an extended attribute beside its others.
pub fn lacked_room(op: &PlanOp) -> bool {
    op.ret == -i64::from(libc::ENOSPC) && kind(op) == Kind::SetXattr
}

/// Longer files may be too long for a filesystem, shorter ones only for a limit (ulimit -f).
const LONGEST: i64 = 1 << 40;

/// Returns why a call failed that only the recorded machine lacked the means for: space, quota,
/// descriptors or memory were used up, a file had reached its limit (Postfix sets one for
/// mailboxes), the disk failed, or was read-only, as it is after a failure; or something was around
/// that is not here: another filesystem, a mount point, a program being executed. If it were made
/// again, it would leave what it did not leave then. An extended attribute without space met a
/// limit of the filesystem; a failed close still frees the descriptor, and of an exec only the
/// lookup is made.
pub fn machine_lacked(op: &PlanOp) -> Option<u8> {
    let error = i32::try_from(-op.ret).ok()?;
    let dots = end(op.base) == END_DOT || end(op.base2) == END_DOT;
    match (kind(op), error) {
        (Kind::Close | Kind::FailedExec, _) | (Kind::SetXattr, libc::ENOSPC) => None,
        (_, libc::ENOSPC | libc::EDQUOT | libc::EMFILE | libc::ENFILE | libc::ENOMEM) => {
            Some(REASON_USED_UP)
        }
        (_, libc::EFBIG) if op.offset.saturating_add(op.size) < LONGEST => Some(REASON_USED_UP),
        // For "." and ".." the kernel returns this before it looks for other errors.
        (Kind::Rename, libc::EBUSY) if dots => None,
        (_, libc::EIO | libc::EROFS) => Some(REASON_BROKEN),
        (_, libc::ETXTBSY) => Some(REASON_AROUND),
        (Kind::Rename | Kind::Link | Kind::CopyRange | Kind::Clone, libc::EXDEV) => {
            Some(REASON_AROUND)
        }
        (Kind::Rename | Kind::Unlink | Kind::Rmdir, libc::EBUSY) => Some(REASON_AROUND),
        _ => None,
    }
}

/// Returns the bytes to write: after a partial write, for the same reasons, those written.
pub fn to_write(op: &PlanOp) -> i64 {
    match op.ret {
        0.. => op.size.min(op.ret),
        _ => op.size,
    }
}

/// Returns whether a signal ended a sleep for a lock, as of alarm(2): Dovecot's limit for an mbox.
pub fn was_interrupted(op: &PlanOp) -> bool {
    op.ret == -i64::from(libc::EINTR) && matches!(lock(op), Some((Lock::Refused, true)))
}

/// Returns whether a call was refused a lock because it would have slept in a circle.
pub fn was_deadlock(op: &PlanOp) -> bool {
    op.ret == -i64::from(libc::EDEADLK) && matches!(lock(op), Some((Lock::Refused, _)))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::semantics::id_of;

    fn failed(name: &str, error: i32) -> PlanOp {
        PlanOp {
            op: id_of(name),
            ret: -i64::from(error),
            size: 9,
            ..PlanOp::default()
        }
    }

    #[test]
    fn what_was_used_up_is_no_limit_of_the_filesystem() {
        let why = |name, error| machine_lacked(&failed(name, error));
        assert_eq!(why("write", libc::ENOSPC), Some(REASON_USED_UP));
        assert_eq!(why("openat", libc::EDQUOT), Some(REASON_USED_UP));
        assert_eq!(why("setxattr", libc::ENOSPC), None);
        assert_eq!(why("setxattr", libc::EDQUOT), Some(REASON_USED_UP));
        assert_eq!(why("close", libc::ENOSPC), None);
        assert_eq!(why("ftruncate", libc::EFBIG), Some(REASON_USED_UP));
        assert_eq!(why("rename", libc::EXDEV), Some(REASON_AROUND));
        let onto_dots = PlanOp {
            base2: END_DOT << 4,
            ..failed("rename", libc::EBUSY)
        };
        assert_eq!(why("rename", libc::EBUSY), Some(REASON_AROUND));
        assert_eq!(machine_lacked(&onto_dots), None);
        // A name that leads beyond RESOLVE_BENEATH.
        assert_eq!(why("openat2", libc::EXDEV), None);
        assert_eq!(why("openat", libc::ETXTBSY), Some(REASON_AROUND));
        assert_eq!(why("rmdir", libc::EBUSY), Some(REASON_AROUND));
        let too_long = PlanOp {
            offset: 16 << 40,
            ..failed("ftruncate", libc::EFBIG)
        };
        assert_eq!(machine_lacked(&too_long), None);
        assert_eq!(why("fsync", libc::EIO), Some(REASON_BROKEN));
        assert_eq!(why("close", libc::EIO), None);
        assert_eq!(why("unlink", libc::ENOENT), None);
    }

    #[test]
    fn a_write_is_as_long_as_it_was() {
        let mut write = failed("write", libc::EFBIG);
        assert_eq!(to_write(&write), 9);
        write.ret = 4;
        assert_eq!(to_write(&write), 4);
    }
}
