//! The tree that the recorder walked when the recording began.

use foldhash::HashMap;
use spoolscope_traces::records::PlanEntry;

use crate::plan::Plan;

/// Its entries, by name and by inode number.
#[derive(Debug)]
pub struct RecordedTree<'a> {
    entries: &'a [PlanEntry],
    by_path: HashMap<u32, u32>,
    by_ino: HashMap<u64, u32>,
}

impl<'a> RecordedTree<'a> {
    pub fn of(plan: &'a Plan) -> Self {
        let entries = plan.entries();
        let numbered = || (0..).zip(entries);
        let known = numbered().filter(|(_, entry)| entry.ino != 0);
        Self {
            entries,
            by_path: numbered().map(|(at, entry)| (entry.path, at)).collect(),
            by_ino: known.map(|(at, entry)| (entry.ino, at)).collect(),
        }
    }

    pub fn entries(&self) -> &'a [PlanEntry] {
        self.entries
    }

    pub fn has(&self, path: u32) -> bool {
        self.by_path.contains_key(&path)
    }

    /// Returns the entry of a name.
    pub fn at(&self, path: u32) -> Option<&'a PlanEntry> {
        self.index_at(path).map(|at| self.entry(at))
    }

    /// Returns an entry of an inode, which may have several.
    pub fn of_ino(&self, ino: u64) -> Option<&'a PlanEntry> {
        self.index_of_ino(ino).map(|at| self.entry(at))
    }

    pub fn index_at(&self, path: u32) -> Option<u32> {
        self.by_path.get(&path).copied()
    }

    pub fn index_of_ino(&self, ino: u64) -> Option<u32> {
        self.by_ino.get(&ino).copied()
    }

    pub fn entry(&self, at: u32) -> &'a PlanEntry {
        &self.entries[at as usize]
    }
}
