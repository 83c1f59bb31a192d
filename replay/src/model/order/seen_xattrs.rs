//! Extended attributes that results show, and the calls that left them so.

use spoolscope_traces::records::PlanOp;

use crate::model::state::world::World;
use crate::model::state::xattr_calls::left_by;

/// Returns whether the present state of its attribute explains what a call found.
pub fn fits(world: &World, op: &PlanOp) -> bool {
    let Some(found) = world.found_by(op) else {
        return true;
    };
    let now = world.xattr_of(op).and_then(|xattr| world.xattr_now(xattr));
    now.is_none_or(|now| found.fits(now))
}

/// Returns whether `cause` leaves the attribute as a call found it, which it is not at present.
pub fn explained_by(world: &World, op: &PlanOp, cause: &PlanOp) -> bool {
    let (Some(found), Some(left)) = (world.found_by(op), left_by(cause)) else {
        return false;
    };
    found.fits(left) && is_one(world, op, cause) && !fits(world, op)
}

/// Returns whether `op` leaves an attribute otherwise than `before` found it, and not the other way
/// round as well: of two that remove it the one that ends first comes first, and a third sets it in
/// between.
pub fn spoilt_by(world: &World, before: &PlanOp, op: &PlanOp) -> bool {
    spoils(world, op, before) && !spoils(world, before, op)
}

fn spoils(world: &World, op: &PlanOp, other: &PlanOp) -> bool {
    match (left_by(op), world.found_by(other)) {
        (Some(left), Some(found)) => !found.fits(left) && is_one(world, op, other),
        _ => false,
    }
}

fn is_one(world: &World, one: &PlanOp, other: &PlanOp) -> bool {
    let xattr = world.xattr_of(one);
    xattr.is_some() && xattr == world.xattr_of(other)
}
