//! Names that change places, with what is below them.

use spoolscope_traces::records::{NONE, PlanOp};

use crate::model::state::inode_attributes::Attributes;
use crate::model::state::objects::Object;
use crate::model::state::slots::Slot;
use crate::model::state::world::World;
use crate::touches::{self, Makes, Touches};

/// The contents of a directory: for each, the rest of the name and the object.
type Below = Vec<(Vec<u8>, u32)>;

impl World<'_> {
    /// Renames; two names of one object stay as they are, as rename(2) states.
    pub fn rename(&mut self, op: &PlanOp) {
        let (from, to) = (op.path, op.path2);
        let Slot::Present(object) = self.slot(from) else {
            return self.create(op, to);
        };
        if self.is_one_object(op) {
            return;
        }
        self.remove(to);
        self.put(to, Slot::Present(object));
        self.put(from, Slot::Absent);
        if self.object(object).is_directory() {
            let moved = self.take_below(from);
            self.put_below(to, moved);
        }
    }

    /// Returns the names that an operation would look up or change now.
    pub fn touches(&self, op: &PlanOp) -> Touches {
        let mut touches = touches::of(op);
        let moves = touches[1].is_some_and(|touch| touch.makes == Makes::Moved);
        if moves && self.is_one_object(op) {
            for touch in touches.iter_mut().flatten() {
                touch.makes = Makes::Same;
            }
        }
        touches
    }

    /// Returns whether both names of a rename are of one object: it leaves both.
    fn is_one_object(&self, op: &PlanOp) -> bool {
        let from = self.slot(op.path);
        let is_there = matches!(from, Slot::Present(_));
        op.path == op.path2 || is_there && self.slot(op.path2) == from
    }

    /// Makes a device without a number where something was moved away (RENAME_WHITEOUT).
    pub fn white_out(&mut self, op: &PlanOp, path: u32) {
        if self.slot(path) == Slot::Absent {
            let (uid, gid) = self.processes.ids(op.thread);
            let first = Attributes {
                mode: libc::S_IFCHR,
                uid,
                gid,
                ..Attributes::default()
            };
            let object = self.objects.add(Object::made(0, first, NONE));
            self.object_mut(object).link();
            self.put(path, Slot::Present(object));
        }
    }

    /// Lets two names change places (RENAME_EXCHANGE).
    pub fn exchange(&mut self, one: u32, other: u32) {
        let below = [one, other].map(|name| match self.slot(name) {
            Slot::Present(object) if self.object(object).is_directory() => self.take_below(name),
            _ => Below::new(),
        });
        self.slots.swap(one, other);
        for (name, moved) in [other, one].into_iter().zip(below) {
            self.put_below(name, moved);
        }
    }

    fn take_below(&mut self, from: u32) -> Below {
        let prefix = self.names.bytes(from).len();
        let mut taken = Below::new();
        for path in self.names.below(from) {
            if self.slots.is_unknown(path) && self.recorded.has(path) {
                self.plant(path, 0, None);
            }
            if let Slot::Present(object) = self.slot(path) {
                self.put(path, Slot::Absent);
                taken.push((self.names.bytes(path)[prefix..].to_vec(), object));
            }
        }
        taken
    }

    fn put_below(&mut self, to: u32, moved: Below) {
        for (rest, object) in moved {
            let mut name = self.names.bytes(to).to_vec();
            name.extend_from_slice(&rest);
            let name = self.intern(name);
            if self.slots.is_unknown(name) {
                self.slots.set_at_start(name, Slot::Absent);
            }
            self.put(name, Slot::Present(object));
        }
    }
}

#[cfg(test)]
mod tests {
    use crate::model::expect::tree::Tree;
    use crate::model::order::one_order::Linear;
    use crate::semantics::is_device;
    use crate::testing::plan;

    #[test]
    fn a_device_is_left_where_something_was_moved_away_from() {
        let plan = plan(
            "tree a ino=5
             tree d mode=40755 ino=6
             tree d/in ino=7
             A 0-1 renameat2 a b flags=4 = 0
             A 2-3 renameat2 d e flags=4 = 0
             A 4-5 unlink d = 0
             A 6-7 renameat2 b b flags=4 = 0",
        );
        let linear = Linear::walk(&plan);
        let tree = Tree::expected(&plan, &linear.world);
        let is_left = |name: &Vec<u8>| is_device(tree.things[tree.names[name]].attributes.mode);
        let names = tree.names.keys();
        let shown: Vec<_> = names.map(|name| (name.as_slice(), is_left(name))).collect();
        let wanted: [(&[u8], bool); 4] =
            [(b"a", true), (b"b", false), (b"e", false), (b"e/in", false)];
        assert_eq!(shown, wanted);
    }
}
