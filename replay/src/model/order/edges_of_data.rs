//! Edges of size and contents: a call reads what another wrote.

use spoolscope_traces::records::PlanOp;

use crate::model::order::edges::Edges;
use crate::model::order::keys::{Access, Key};
use crate::model::state::sizes::{Seen, changes_size};
use crate::model::state::world::World;
use crate::semantics::{self, Kind};

impl Edges<'_> {
    pub(in crate::model) fn add_data(&mut self, at: u32, op: &PlanOp, world: &World) {
        if semantics::copies(op) || semantics::kind(op) == Kind::Clone && op.ret >= 0 {
            self.add_second(at, op, world);
        }
        let looks = semantics::looks_for_holes(op);
        if op.ret < 0 && !looks {
            return;
        }
        let writes = changes_size(op);
        let seen = Seen::by(op);
        let reads = seen.is_some()
            || looks
            || semantics::copies(op)
            || matches!(
                semantics::kind(op),
                // A call that sets times comes after earlier writes, which set them, too.
                Kind::Read | Kind::Map | Kind::Fault | Kind::Touch
            );
        if !writes && !reads {
            return;
        }
        let definite = match seen {
            Some(Seen::AtLeast(_)) | None => writes,
            Some(_) => true,
        };
        if let Some(key) = data_of(op, world) {
            self.access(key, writes, Access { op: at, definite });
        }
    }

    fn add_second(&mut self, at: u32, op: &PlanOp, world: &World) {
        if let Some(object) = world.second_of(op) {
            let access = Access {
                op: at,
                definite: false,
            };
            let key = key_of(object, world);
            self.access(key, semantics::copies(op), access);
        }
    }
}

/// Returns the data that an operation reads or writes; a call by name records no inode.
fn data_of(op: &PlanOp, world: &World) -> Option<Key> {
    match op.ino {
        0 => Some(key_of(world.target_of(op)?, world)),
        ino => Some(Key::Data(ino)),
    }
}

fn key_of(object: u32, world: &World) -> Key {
    match world.object(object).ino() {
        0 => Key::DataOf(object),
        ino => Key::Data(ino),
    }
}
