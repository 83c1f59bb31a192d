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
    let (Some(seen), Some(left)) = (Seen::by(op), world.size_left(cause)) else {
        return false;
    };
    seen.fits(left) && is_one_file(world, op, cause) && !fits(world, op)
}

/// Returns whether `op` leaves another size than `before` saw.
pub fn spoilt_by(world: &World, before: &PlanOp, op: &PlanOp) -> bool {
    match (Seen::by(before), world.size_left(op)) {
        (Some(seen), Some(size)) => !seen.fits(size) && is_one_file(world, op, before),
        _ => false,
    }
}

/// Returns whether two operations are on one file; a call by name may show no inode number.
fn is_one_file(world: &World, one: &PlanOp, other: &PlanOp) -> bool {
    if one.ino != 0 && other.ino != 0 {
        return one.ino == other.ino;
    }
    let file = world.target_of(one);
    file.is_some() && file == world.target_of(other)
}
