//! Edges of mode, owner, times and extended attributes of objects.
//!
//! A call that changes them waits for those that did before, whatever name it uses. A call that was
//! denied waits for all that made the objects on its way what they were, and is waited for.

use serde::{Deserialize, Serialize};
use spoolscope_traces::records::{NONE, PlanOp};

use crate::model::edges::{Access, Edges, Key};
use crate::model::refusals;
use crate::model::world::{Slot, World};
use crate::plan::Plan;
use crate::semantics::{self, Kind, XattrCall, XattrRole};
use crate::touches;

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

/// Returns whether a call changed mode, owner or times.
pub fn changes_attributes(op: &PlanOp, world: &World) -> bool {
    let is_acl = || {
        let name = semantics::whole_xattr(world.names.bytes(op.path2));
        semantics::xattr_role(&name) == XattrRole::Acl
    };
    op.ret >= 0
        && match semantics::kind(op) {
            Kind::Chmod | Kind::Chown | Kind::Touch => true,
            Kind::SetXattr => op.path2 != NONE && is_acl(),
            _ => false,
        }
}

impl Edges<'_> {
    pub(super) fn add_attributes(&mut self, at: u32, op: &PlanOp, world: &World) {
        if semantics::was_denied(op) {
            return self.add_denied(at, op, world);
        }
        if changes_attributes(op, world) {
            let access = Access {
                op: at,
                definite: true,
            };
            self.change(op, world, access, Key::Attributes);
        } else if self.inherits && semantics::may_make(op) {
            if let Some(directory) = world.names.directory(op.path) {
                self.look(at, subject_at(directory, world), false);
            }
        } else if semantics::asks_to_execute(op) {
            if let Some(subject) = subject_of(op, world) {
                self.look(at, subject, false);
            }
        }
    }

    /// Adds all that is on the way to the names of a call, or what its descriptor leads to.
    fn add_denied(&mut self, at: u32, op: &PlanOp, world: &World) {
        let definite = !refusals::is_missing(world, op);
        if !semantics::uses_path(op) {
            if let Some(subject) = subject_of(op, world) {
                self.look(at, subject, definite);
            }
            return;
        }
        for touch in touches::of(op).iter().flatten() {
            for name in world.way_to(touch.name()) {
                self.look(at, subject_at(name, world), definite);
            }
        }
    }

    fn look(&mut self, at: u32, subject: Subject, definite: bool) {
        let access = Access { op: at, definite };
        self.access(Key::Attributes(subject), false, access);
    }

    pub(super) fn add_xattrs(&mut self, at: u32, op: &PlanOp, world: &World) {
        let lists = semantics::kind(op) == Kind::ListXattr;
        let call = semantics::xattr_call(op);
        let Some(subject) = subject_of(op, world).filter(|_| lists || call.is_some()) else {
            return;
        };
        let writes = op.ret >= 0 && matches!(call, Some(XattrCall::Set | XattrCall::Remove));
        if lists || writes {
            self.meet(at, Key::Xattrs(subject), writes);
        }
        if lists {
            return;
        }
        let access = Access {
            op: at,
            definite: writes,
        };
        match writes {
            true => self.change(op, world, access, |subject| Key::Xattr(subject, op.path2)),
            false => self.access(Key::Xattr(subject, op.path2), false, access),
        }
    }

    /// Adds a change, also at its name: calls may have used that before its object was known.
    fn change(&mut self, op: &PlanOp, world: &World, access: Access, key: impl Fn(Subject) -> Key) {
        let Some(subject) = subject_of(op, world) else {
            return;
        };
        let name = Subject::Name(op.path);
        if subject != name && self.knows(key(name)) {
            self.access(key(name), true, access);
        }
        self.access(key(subject), true, access);
    }
}

/// Returns the object that a call works on.
pub fn subject_of(op: &PlanOp, world: &World) -> Option<Subject> {
    let object = world.target_of(op).map(Subject::Object);
    let name = (op.path != NONE).then_some(op.path);
    object.or_else(|| name.or(world.shown_name(op.ino)).map(Subject::Name))
}

pub fn subject_at(name: u32, world: &World) -> Subject {
    match world.slot(name) {
        Slot::Present(object) => Subject::Object(object),
        _ => Subject::Name(name),
    }
}
