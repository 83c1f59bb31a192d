//! Why a call failed, where more follows from that than from the failure.

use spoolscope_traces::records::PlanOp;

use super::{Kind, Lock, kind, lock};

/// Whether a call was not permitted; to ask for another identity is no matter of files.
pub fn was_denied(op: &PlanOp) -> bool {
    let denied = op.ret == -i64::from(libc::EACCES) || op.ret == -i64::from(libc::EPERM);
    denied && kind(op) != Kind::Identity
}

/// Whether the recorded machine had no space, quota, descriptors or memory left, which this one
/// has: made again, the call would leave what it did not leave then. That an extended attribute
/// finds no space is a limit of the filesystem; a close gives the descriptor back all the same.
pub fn was_for_want(op: &PlanOp) -> bool {
    let Ok(error) = i32::try_from(-op.ret) else {
        return false;
    };
    match kind(op) {
        Kind::Close | Kind::Exit => false,
        Kind::SetXattr if error == libc::ENOSPC => false,
        _ => matches!(
            error,
            libc::ENOSPC | libc::EDQUOT | libc::EMFILE | libc::ENFILE | libc::ENOMEM
        ),
    }
}

/// Whether the recorded disk failed, or was read-only, as it is after a failure.
pub fn was_broken(op: &PlanOp) -> bool {
    let failed = op.ret == -i64::from(libc::EIO) || op.ret == -i64::from(libc::EROFS);
    failed && !matches!(kind(op), Kind::Close | Kind::Exit)
}

/// Bytes to write: those that were written, if not all were, for the same reasons.
pub fn to_write(op: &PlanOp) -> i64 {
    match op.ret {
        0.. => op.size.min(op.ret),
        _ => op.size,
    }
}

/// Whether a call slept for a lock until a signal came, as by alarm(2): Dovecot gives up an mbox so.
pub fn was_interrupted(op: &PlanOp) -> bool {
    op.ret == -i64::from(libc::EINTR) && matches!(lock(op), Some((Lock::Refused, true)))
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
        assert!(was_for_want(&failed("write", libc::ENOSPC)));
        assert!(was_for_want(&failed("openat", libc::EDQUOT)));
        assert!(!was_for_want(&failed("setxattr", libc::ENOSPC)));
        assert!(was_for_want(&failed("setxattr", libc::EDQUOT)));
        assert!(!was_for_want(&failed("close", libc::ENOSPC)));
        assert!(was_broken(&failed("fsync", libc::EIO)));
        assert!(!was_broken(&failed("close", libc::EIO)));
        assert!(!was_for_want(&failed("unlink", libc::ENOENT)));
    }

    #[test]
    fn a_write_is_as_long_as_it_was() {
        let mut write = failed("write", libc::EFBIG);
        assert_eq!(to_write(&write), 9);
        write.ret = 4;
        assert_eq!(to_write(&write), 4);
    }
}
