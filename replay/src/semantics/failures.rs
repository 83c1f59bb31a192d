//! Reasons of failures from which more follows than from the failure itself.

use spoolscope_traces::calls;
use spoolscope_traces::records::{END_DOT, PlanOp, REASON_AROUND, REASON_BROKEN, REASON_USED_UP};

use super::{Kind, Lock, copies_descriptor, end, kind, lock};

/// Returns whether a call was not permitted; a refused change of identity concerns no files.
pub fn was_denied(op: &PlanOp) -> bool {
    let denied = op.ret == -i64::from(libc::EACCES) || op.ret == -i64::from(libc::EPERM);
    denied && kind(op) != Kind::Identity
}

/// Returns whether an object had no room for an extended attribute beside its others.
pub fn lacked_room(op: &PlanOp) -> bool {
    op.ret == -i64::from(libc::ENOSPC) && kind(op) == Kind::SetXattr
}

/// Longer files may be too long for a filesystem (ext3: 2 TiB), shorter ones only for a limit
/// (ulimit -f).
const LONGEST: i64 = 2_000_000_000_000;

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
        // The least number allowed was beyond the limit of descriptors.
        (Kind::Fcntl, libc::EINVAL) if copies_descriptor(op) => Some(REASON_USED_UP),
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

/// Returns whether a call failed by a bad address. Addresses are not recorded, and with a good one
/// it would do what it did not do then; of an exec only the lookup is made.
pub fn had_bad_address(op: &PlanOp) -> bool {
    op.ret == -i64::from(libc::EFAULT) && kind(op) != Kind::FailedExec
}

/// Returns whether a call failed as it does with a vector of too many parts: their number is not
/// recorded. An unaligned write to a file opened with O_DIRECT fails so, too.
pub fn may_have_many_parts(op: &PlanOp) -> bool {
    if op.ret != -i64::from(libc::EINVAL) || !matches!(kind(op), Kind::Read | Kind::Write) {
        return false;
    }
    let takes = |word| calls::takes(usize::from(op.op), word);
    let by_position = !takes("offset") || (takes("flags") && op.offset == -1);
    takes("iov") && (by_position || op.offset >= 0) && op.flags == 0
}

/// Returns whether a call that failed for its filesystem, or for flags of its file, would make room
/// in the file where it succeeds.
pub fn may_preallocate(op: &PlanOp) -> bool {
    const OTHERWISE_HERE: [i32; 4] = [libc::EOPNOTSUPP, libc::ENOSYS, libc::EPERM, libc::EFBIG];
    const NO_ROOM: i32 =
        libc::FALLOC_FL_PUNCH_HOLE | libc::FALLOC_FL_COLLAPSE_RANGE | libc::FALLOC_FL_INSERT_RANGE;
    let for_that = OTHERWISE_HERE
        .iter()
        .any(|error| op.ret == -i64::from(*error));
    kind(op) == Kind::Fallocate
        && for_that
        && machine_lacked(op).is_none()
        && op.flags as i32 & NO_ROOM == 0
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
        let at_a_limit = PlanOp {
            offset: 1 << 40,
            ..failed("write", libc::EFBIG)
        };
        assert_eq!(machine_lacked(&at_a_limit), Some(REASON_USED_UP));
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
    fn a_copy_above_the_limit_of_descriptors_is_used_up() {
        let fcntl = |cmd| {
            machine_lacked(&PlanOp {
                cmd,
                ..failed("fcntl", libc::EINVAL)
            })
        };
        assert_eq!(fcntl(libc::F_DUPFD), Some(REASON_USED_UP));
        assert_eq!(fcntl(libc::F_DUPFD_CLOEXEC), Some(REASON_USED_UP));
        assert_eq!(fcntl(libc::F_SETLK), None);
    }

    #[test]
    fn addresses_and_parts_of_vectors_are_not_recorded() {
        for name in ["write", "stat", "newfstatat", "pwritev2"] {
            assert!(had_bad_address(&failed(name, libc::EFAULT)), "{name}");
        }
        assert!(!had_bad_address(&failed("write", libc::EINVAL)));
        assert!(!had_bad_address(&failed("execve", libc::EFAULT)));
        let many = |name, offset, flags| {
            may_have_many_parts(&PlanOp {
                offset,
                flags,
                ..failed(name, libc::EINVAL)
            })
        };
        assert!(many("writev", 7, 0) && many("readv", -1, 0) && many("pwritev", 0, 0));
        assert!(many("preadv2", -1, 0));
        // The recorded arguments are the reason.
        assert!(!many("pwritev", -1, 0) && !many("pwritev2", -2, 0) && !many("pwritev2", 0, 9));
        assert!(!many("write", 0, 0));
    }

    #[test]
    fn only_a_preallocation_that_may_succeed_here_needs_room() {
        let may = |error, flags| {
            may_preallocate(&PlanOp {
                size: 1 << 40,
                flags,
                ..failed("fallocate", error)
            })
        };
        assert!(may(libc::EOPNOTSUPP, 0) && may(libc::EPERM, libc::FALLOC_FL_KEEP_SIZE as u32));
        assert!(!may(libc::ENOSPC, 0) && !may(libc::EDQUOT, 0) && !may(libc::EFBIG, 0));
        assert!(!may(libc::EBADF, 0));
        let collapses = libc::FALLOC_FL_COLLAPSE_RANGE as u32;
        assert!(!may(libc::EINVAL, collapses) && !may(libc::EOPNOTSUPP, collapses));
    }

    #[test]
    fn a_write_is_as_long_as_it_was() {
        let mut write = failed("write", libc::EFBIG);
        assert_eq!(to_write(&write), 9);
        write.ret = 4;
        assert_eq!(to_write(&write), 4);
    }
}
