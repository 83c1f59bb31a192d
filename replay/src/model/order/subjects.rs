//! Subjects of calls that read or change attributes: an object, or a name that leads to one.

use serde::{Deserialize, Serialize};
use spoolscope_traces::records::{NONE, PlanOp};

use crate::model::state::slots::Slot;
use crate::model::state::world::World;
use crate::plan::Plan;
use crate::semantics::{self, Kind};

/// An object, or a name while no call has shown what it leads to.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub enum Subject {
    Object(u32),
    Name(u32),
}

/// Returns whether directories may hand down their group: some have the set-group-ID bit.
pub fn may_be_inherited(plan: &Plan) -> bool {
    let is_set = |mode: u32| mode & libc::S_ISGID != 0;
    let shown = |mode: u32| semantics::is_directory(mode) && is_set(mode);
    let set = |(_, op): (u32, &PlanOp)| is_set(op.mode);
    plan.entries().iter().any(|entry| shown(entry.mode))
        || plan.of_kind(|kind| kind == Kind::Chmod).any(set)
}

/// Returns the object that a call works on.
pub fn subject_of(op: &PlanOp, world: &World) -> Option<Subject> {
    let object = world.target_of(op).map(Subject::Object);
    let name = (op.path != NONE).then_some(op.path);
    object.or_else(|| {
        name.or(world.recorded().of_ino(op.ino).map(|entry| entry.path))
            .map(Subject::Name)
    })
}

pub fn subject_at(name: u32, world: &World) -> Subject {
    match world.slot(name) {
        Slot::Present(object) => Subject::Object(object),
        _ => Subject::Name(name),
    }
}
