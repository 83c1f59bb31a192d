//! All objects of a walk, and which of them an inode number means.

use foldhash::{HashMap, HashMapExt};
use spoolscope_traces::records::PlanOp;

use crate::model::state::objects::Object;

/// Objects in the order in which they became known.
#[derive(Debug)]
pub struct Objects {
    all: Vec<Object>,
    by_ino: HashMap<u64, u32>,
    /// Inode numbers that were used again, with the time at which their present object was made.
    reborn_ns: HashMap<u64, i64>,
}

impl Objects {
    pub fn with_capacity(n: usize) -> Self {
        Self {
            all: Vec::with_capacity(n),
            by_ino: HashMap::with_capacity(n),
            reborn_ns: HashMap::new(),
        }
    }

    pub fn get(&self, index: u32) -> &Object {
        &self.all[index as usize]
    }

    pub fn get_mut(&mut self, index: u32) -> &mut Object {
        &mut self.all[index as usize]
    }

    /// Adds an object; its inode number means it from now on.
    pub fn add(&mut self, object: Object) -> u32 {
        let index = self.all.len() as u32;
        if object.ino() != 0 {
            self.by_ino.insert(object.ino(), index);
        }
        self.all.push(object);
        index
    }

    /// Returns the present object of an inode number, if that is known.
    pub fn of_ino(&self, ino: u64) -> Option<u32> {
        self.by_ino.get(&ino).copied()
    }

    /// Learns the inode number of an object without one.
    pub fn learn_ino(&mut self, object: u32, ino: u64) {
        if ino != 0 && self.get(object).ino() == 0 {
            self.get_mut(object).learn_ino(ino);
            self.by_ino.insert(ino, object);
        }
    }

    /// Notes that an operation makes an object, whose number another one may have had.
    pub fn note_birth(&mut self, op: &PlanOp) {
        if self.by_ino.contains_key(&op.ino) {
            self.reborn_ns.insert(op.ino, op.end_ns);
        }
    }

    /// Returns whether the inode number of an object belongs to another one by now. The object has
    /// no name any more, but in the order in which operations end that may not be known yet.
    pub fn is_gone(&self, object: u32) -> bool {
        let ino = self.get(object).ino();
        ino != 0 && self.of_ino(ino) != Some(object)
    }

    /// Returns whether an operation that names an inode number surely means its present object.
    pub fn means_the_last(&self, op: &PlanOp, ino: u64) -> bool {
        let born_ns = self.reborn_ns.get(&ino);
        born_ns.is_none_or(|born_ns| *born_ns <= op.start_ns)
    }
}
