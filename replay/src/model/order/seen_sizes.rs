//! Sizes that results show, and the calls that left them.

use spoolscope_traces::records::PlanOp;

use crate::model::state::objects::Predicted;
use crate::model::state::sizes::Seen;
use crate::model::state::world::World;

/// Returns whether the present size explains what a call saw of it.
pub fn fits(world: &World, op: &PlanOp) -> bool {
    let Some(seen) = Seen::by(op) else {
        return true;
    };
    let object = world.target_of(op).map(|object| world.object(object));
    let size = object
        .filter(|object| object.predicted() != Predicted::Nothing)
        .and_then(|object| object.known_size());
    size.is_none_or(|size| seen.fits(size))
}

/// Returns whether `cause` leaves the size that a call saw, which is not the present one.
pub fn explained_by(world: &World, op: &PlanOp, cause: &PlanOp) -> bool {
    let same = op.ino != 0 && op.ino == cause.ino;
    let Some(seen) = Seen::by(op).filter(|_| same && !fits(world, op)) else {
        return false;
    };
    let left = world.size_left(cause);
    left.is_some_and(|size| seen.fits(size))
}

/// Returns whether `op` leaves another size than `before` saw.
pub fn spoilt_by(world: &World, before: &PlanOp, op: &PlanOp) -> bool {
    if op.ino == 0 || op.ino != before.ino {
        return false;
    }
    match (Seen::by(before), world.size_left(op)) {
        (Some(seen), Some(size)) => !seen.fits(size),
        _ => false,
    }
}
