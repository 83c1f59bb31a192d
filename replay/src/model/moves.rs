//! Names that change places, with what is below them.

use spoolscope_traces::records::PlanOp;

use crate::model::world::{Slot, World};

/// What was below a directory: the rest of the name, and the object.
type Below = Vec<(Vec<u8>, u32)>;

impl World<'_> {
    /// Renames; two names of one object stay as they are, as rename(2) says.
    pub fn rename(&mut self, op: &PlanOp) {
        let (from, to) = (op.path, op.path2);
        let Slot::Present(object) = self.slot(from) else {
            return self.create(op, to);
        };
        if from == to || self.slot(to) == Slot::Present(object) {
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

    /// Two names change places (RENAME_EXCHANGE).
    pub fn exchange(&mut self, one: u32, other: u32) {
        let below = [one, other].map(|name| match self.slot(name) {
            Slot::Present(object) if self.object(object).is_directory() => self.take_below(name),
            _ => Below::new(),
        });
        self.slots.swap(one as usize, other as usize);
        for (name, moved) in [other, one].into_iter().zip(below) {
            self.put_below(name, moved);
        }
    }

    fn take_below(&mut self, from: u32) -> Below {
        let prefix = self.names.bytes(from).len();
        let mut taken = Below::new();
        for path in self.names.below(from) {
            if self.slot(path) == Slot::Unknown && self.entry_at.contains_key(&path) {
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
            let name = self.names.intern(name);
            self.slots.resize(self.names.len(), Slot::Unknown);
            self.initial.resize(self.names.len(), Slot::Absent);
            if self.slots[name as usize] == Slot::Unknown {
                self.initial[name as usize] = Slot::Absent;
            }
            self.put(name, Slot::Present(object));
        }
    }
}
