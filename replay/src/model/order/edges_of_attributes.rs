//! Edges of mode, owner, times and extended attributes of objects.
//!
//! A call that changes them waits for those that did before, whatever name it uses. A call that was
//! denied waits for all that made the objects on its way what they were, and is waited for.

use spoolscope_traces::records::{NONE, PlanOp};

use crate::model::order::edges::Edges;
use crate::model::order::keys::{Access, Key};
use crate::model::order::refusals;
use crate::model::order::subjects::{Subject, subject_at, subject_of};
use crate::model::state::world::World;
use crate::semantics::{self, Kind, XattrCall, XattrRole};
use crate::touches;

/// Returns whether a call changed mode, owner or times.
pub fn changes_attributes(op: &PlanOp, world: &World) -> bool {
    let is_acl = || {
        let name = semantics::whole_xattr(world.names().bytes(op.path2));
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
    pub(in crate::model) fn add_attributes(&mut self, at: u32, op: &PlanOp, world: &World) {
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
            if let Some(directory) = world.names().directory(op.path) {
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

    pub(in crate::model) fn add_xattrs(&mut self, at: u32, op: &PlanOp, world: &World) {
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
        let full = semantics::lacked_room(op);
        if self.crowded && (writes || full) {
            let access = Access {
                op: at,
                definite: true,
            };
            self.access(Key::Xattrs(subject), writes, access);
        }
        let access = Access {
            op: at,
            definite: writes || world.found_by(op).is_some(),
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
