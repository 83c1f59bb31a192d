//! What must have been so at a call's names just before it, or its result would be another.

use spoolscope_traces::records::{NONE, PlanOp};

use crate::model::names::{Names, parent_of};
use crate::semantics;
use crate::touches::{self, Makes, Need, Touch};

/// Whether something holds for one of the names that a result depends on and what it must have been.
///
/// These are the own names of the call; for success also the directories above them; for a file that
/// could not be made the directory that was missing.
pub fn any_need(names: &Names, op: &PlanOp, mut holds: impl FnMut(u32, Need) -> bool) -> bool {
    touches::of(op).iter().flatten().any(|touch| {
        let above = match op.ret >= 0 {
            true => names.ancestors(touch.path),
            false => &[],
        };
        let need = match missing_either(names, op) {
            Some(_) => Need::Any,
            None => touch.need,
        };
        above.iter().any(|path| holds(*path, Need::Present(0)))
            || failed_at_parent(names, op, touch).is_some_and(|(path, need)| holds(path, need))
            || holds(touch.path, need)
    })
}

/// A rename or link that found nothing: the old name, or the directory of the new one, was missing.
pub fn missing_either(names: &Names, op: &PlanOp) -> Option<(u32, u32)> {
    let nothing = op.ret == -i64::from(libc::ENOENT) && semantics::has_second_path(op);
    let known = op.path != NONE && op.path2 != NONE;
    let parent = (nothing && known).then(|| changing_parent(names, op.path2));
    parent.flatten().map(|parent| (op.path, parent))
}

/// The names that a call changed, or of which its result tells something.
pub fn telling(op: &PlanOp) -> impl Iterator<Item = Touch> + '_ {
    let tells = |touch: &Touch| op.ret >= 0 || is_evidence(op, touch);
    touches::of(op).into_iter().flatten().filter(tells)
}

/// Whether overlapping calls can tell by the result where among them this one ran.
pub fn is_evidence(op: &PlanOp, touch: &Touch) -> bool {
    let looked_in_vain = op.ret == -i64::from(libc::ENOENT) || op.ret == -i64::from(libc::ENOTDIR);
    touch.makes != Makes::Same || touch.need != Need::Any || looked_in_vain
}

/// A call met more symlinks than the kernel follows: all of them must have been there.
pub fn went_round(op: &PlanOp) -> bool {
    op.ret == -i64::from(libc::ELOOP)
}

fn failed_at_parent(names: &Names, op: &PlanOp, touch: &Touch) -> Option<(u32, Need)> {
    if touch.path != op.path || touch.need != Need::Any {
        return None;
    }
    let need = match -op.ret {
        error if error == i64::from(libc::ENOENT) && !semantics::has_second_path(op) => {
            Need::Absent
        }
        error if error == i64::from(libc::ENOTDIR) => Need::File,
        _ => return None,
    };
    changing_parent(names, op.path).map(|parent| (parent, need))
}

/// The directory of a name, if any call makes, moves or removes it.
fn changing_parent(names: &Names, path: u32) -> Option<u32> {
    let nearest = *names.ancestors(path).last()?;
    (parent_of(names.bytes(path)) == Some(names.bytes(nearest))).then_some(nearest)
}
