//! Compares results with the recorded ones.

use spoolscope_traces::records::{
    PlanOp, REASON_BYTES, REASON_ERRNO, REASON_NONE, REASON_VALUE, VERDICT_DIVERGED, VERDICT_SAME,
};

use crate::semantics::{self, Kind};

/// A verdict and its reason, as they are stored.
pub type Verdict = (u8, u8);

/// Reason why a call is not made.
pub type Refusal = u8;

pub const SAME: Verdict = (VERDICT_SAME, REASON_NONE);

/// Type and size that a stat call returned.
#[derive(Clone, Copy, Debug)]
pub struct Stat {
    pub mode: u32,
    pub size: i64,
}

/// Compares a result with the recorded one; `stat` is what a stat call returned here.
pub fn compare(op: &PlanOp, kind: Kind, ret: i64, stat: Option<Stat>) -> Verdict {
    if ret < 0 || op.ret < 0 {
        return judge(ret == op.ret, REASON_ERRNO);
    }
    let equal = ret == op.ret;
    match kind {
        Kind::Read | Kind::Write | Kind::Readlink | Kind::GetXattr => judge(equal, REASON_BYTES),
        Kind::CopyRange | Kind::Sendfile | Kind::Splice => judge(equal, REASON_BYTES),
        // The format of directories differs; only the end of the listing can be compared.
        Kind::Getdents => judge((ret == 0) == (op.ret == 0), REASON_VALUE),
        Kind::Stat | Kind::Fstat => {
            judge(stat.is_none_or(|stat| same_stat(op, stat)), REASON_VALUE)
        }
        Kind::Seek => judge(equal || !offsets_compare(op), REASON_VALUE),
        Kind::Umask => judge(equal, REASON_VALUE),
        _ => SAME,
    }
}

fn judge(same: bool, reason: u8) -> Verdict {
    if same {
        SAME
    } else {
        (VERDICT_DIVERGED, reason)
    }
}

fn same_stat(op: &PlanOp, stat: Stat) -> bool {
    let mode = u32::from(op.obj_mode);
    let same_type =
        mode & libc::S_IFMT == stat.mode & libc::S_IFMT || semantics::stands_in(stat.mode, mode);
    let sized = semantics::is_regular(mode) && op.obj_size >= 0;
    mode == 0 || same_type && (!sized || op.obj_size == stat.size)
}

/// Returns whether offsets compare: in directories they are cookies, holes depend on block size.
fn offsets_compare(op: &PlanOp) -> bool {
    let directory = u32::from(op.obj_mode) & libc::S_IFMT == libc::S_IFDIR;
    !directory && !semantics::looks_for_holes(op)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn op(name: &str, ret: i64) -> PlanOp {
        PlanOp {
            op: semantics::id_of(name),
            ret,
            obj_size: -1,
            ..PlanOp::default()
        }
    }

    #[test]
    fn failures_compare_by_errno() {
        let gone = op("unlink", -2);
        assert_eq!(compare(&gone, Kind::Unlink, -2, None), SAME);
        assert_eq!(
            compare(&gone, Kind::Unlink, 0, None),
            (VERDICT_DIVERGED, REASON_ERRNO)
        );
        assert_eq!(
            compare(&gone, Kind::Unlink, -13, None),
            (VERDICT_DIVERGED, REASON_ERRNO)
        );
    }

    #[test]
    fn reads_compare_by_bytes_and_descriptors_not_at_all() {
        let read = op("read", 100);
        assert_eq!(
            compare(&read, Kind::Read, 99, None),
            (VERDICT_DIVERGED, REASON_BYTES)
        );
        assert_eq!(compare(&op("openat", 7), Kind::Open, 11, None), SAME);
    }

    #[test]
    fn stat_compares_type_and_size_of_files_only() {
        let mut stat = op("stat", 0);
        (stat.obj_mode, stat.obj_size) = (0o100_644, 10);
        let file = |size| {
            Some(Stat {
                mode: 0o100_600,
                size,
            })
        };
        assert_eq!(compare(&stat, Kind::Stat, 0, file(10)), SAME);
        assert_eq!(
            compare(&stat, Kind::Stat, 0, file(11)),
            (VERDICT_DIVERGED, REASON_VALUE)
        );
        stat.obj_mode = 0o040_755;
        let directory = Some(Stat {
            mode: 0o040_700,
            size: 4096,
        });
        assert_eq!(compare(&stat, Kind::Stat, 0, directory), SAME);
    }
}
