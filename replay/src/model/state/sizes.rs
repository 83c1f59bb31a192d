//! Effects of calls on the size of a file, and what their results show of it.

use foldhash::HashSet;
use spoolscope_traces::records::PlanOp;

use crate::plan::Plan;
use crate::semantics::{self, Kind, OpenFlags};

/// Returns whether calls of a kind may change the size of a file.
pub fn may_change(kind: Kind) -> bool {
    matches!(
        kind,
        Kind::Write | Kind::Truncate | Kind::Ftruncate | Kind::Fallocate | Kind::Clone | Kind::Open
    )
}

/// Returns whether a successful call may change the size of its object.
pub fn changes_size(op: &PlanOp) -> bool {
    op.ret >= 0
        && match semantics::kind(op) {
            Kind::Write => op.ret > 0,
            Kind::Truncate | Kind::Ftruncate | Kind::Fallocate | Kind::Clone => true,
            Kind::Open => OpenFlags::of(op).truncates(),
            _ => false,
        }
}

/// Returns the size that a call leaves, if it may change it.
pub fn size_after(op: &PlanOp) -> Option<i64> {
    changes_size(op).then(|| match semantics::kind(op) {
        Kind::Truncate | Kind::Ftruncate => op.offset,
        Kind::Open => 0,
        _ => op.obj_size,
    })
}

/// Returns inodes that calls may write to. The target of a copy is known only later, by its
/// descriptor: any file that a copying thread opens for writing counts. A truncate by name may
/// concern any inode that had the name.
pub fn written(plan: &Plan) -> impl Iterator<Item = u64> {
    let copying = plan
        .of_kind(semantics::is_copy)
        .filter(|(_, op)| semantics::copies(op));
    let who: HashSet<u32> = copying.map(|(_, op)| op.thread).collect();
    let writable = move |op: &PlanOp| {
        OpenFlags::of(op).writes()
            && op.ret >= 0
            && semantics::kind(op) == Kind::Open
            && who.contains(&op.thread)
    };
    let names = truncated(plan);
    let any = !names.is_empty();
    let written = plan
        .of_kind(move |kind| any || may_change(kind))
        .filter(move |(_, op)| changes_size(op) || writable(op) || names.contains(&op.path));
    written.map(|(_, op)| op.ino).filter(|ino| *ino != 0)
}

/// Returns names of truncated files whose inode is not recorded, and names that became these.
fn truncated(plan: &Plan) -> HashSet<u32> {
    let by_name = plan.of_kind(|kind| kind == Kind::Truncate);
    let without_ino = by_name.filter(|(_, op)| op.ino == 0 && op.ret >= 0);
    let mut names: HashSet<u32> = without_ino.map(|(_, op)| op.path).collect();
    let renames = || plan.of_kind(|kind| matches!(kind, Kind::Rename | Kind::Link));
    let mut before = 0;
    while names.len() > before {
        before = names.len();
        let became = renames().filter(|(_, op)| op.ret >= 0 && names.contains(&op.path2));
        let became: Vec<u32> = became.map(|(_, op)| op.path).collect();
        names.extend(became);
    }
    names
}

/// The size of a regular file, as far as a result shows it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Seen {
    Exactly(i64),
    AtMost(i64),
    AtLeast(i64),
}

impl Seen {
    /// Returns the evidence in an operation's result, if there is any.
    pub fn by(op: &PlanOp) -> Option<Self> {
        let mode = u32::from(op.obj_mode);
        if op.ret < 0 || !(mode == 0 || semantics::is_regular(mode)) {
            return None;
        }
        match semantics::kind(op) {
            Kind::Stat | Kind::Fstat if op.obj_size >= 0 => Some(Self::Exactly(op.obj_size)),
            Kind::Seek if op.cmd == libc::SEEK_END => Some(Self::Exactly(op.ret - op.offset)),
            Kind::Read if op.offset >= 0 && op.size > 0 => Some(match op.ret {
                0 => Self::AtMost(op.offset),
                got if got < op.size => Self::Exactly(op.offset + got),
                got => Self::AtLeast(op.offset + got),
            }),
            Kind::Fault => Some(Self::AtLeast(op.offset + 1)),
            _ => None,
        }
    }

    pub fn fits(self, size: i64) -> bool {
        match self {
            Self::Exactly(seen) => size == seen,
            Self::AtMost(seen) => size <= seen,
            Self::AtLeast(seen) => size >= seen,
        }
    }
}

/// Returns where a write went; for an appending descriptor `None` if the size is not known.
pub fn write_offset(op: &PlanOp, appends: bool) -> Option<i64> {
    let at = match (appends, op.obj_size) {
        (true, size) if size < 0 => -1,
        (true, size) => size - op.ret,
        (false, _) => op.offset,
    };
    (at >= 0).then_some(at)
}

#[cfg(test)]
mod tests {
    use crate::model::tests::order_tests::{edges, order};

    #[test]
    fn a_write_whose_size_was_read_late_comes_before_who_saw_its_own() {
        // A's write syncs, so it ends after B's, and the size read at its end is B's.
        let script = "
            tree f mode=100600 ino=5 size=0
            A 0-1 open f flags=2 ino=5 omode=100600 osize=0 = 3
            A 2-3 fstat f fd=3 ino=5 omode=100600 osize=0 = 0
            B 4-5 open f flags=2 ino=5 omode=100600 osize=0 = 3
            A 10-90 write f fd=3 ino=5 omode=100600 osize=7001 off=5000 size=1 = 1
            B 20-30 fstat f fd=3 ino=5 omode=100600 osize=5001 = 0
            B 40-80 write f fd=3 ino=5 omode=100600 osize=7001 off=7000 size=1 = 1
        ";
        assert_eq!(order(script), (vec![0, 1, 2, 3, 4, 5], 0));
        assert_eq!(edges(script), [(4, 3)]);
    }

    #[test]
    fn the_size_of_a_copy_is_contradicted_by_nobody() {
        // The result shows how much was copied, but nothing shows where to.
        let script = "
            tree from mode=100600 ino=5 size=700
            A 0-10 open from flags=0 ino=5 omode=100600 osize=700 = 3
            A 20-30 open to flags=102 mode=600 ino=6 omode=100600 osize=0 = 4
            A 40-50 copy_file_range from fd=3 fd2=4 ino=5 omode=100600 osize=700 size=700 off=-1 = 700
            B 60-70 stat to ino=6 omode=100600 osize=700 = 0
        ";
        assert_eq!(order(script).1, 0);
    }
}
