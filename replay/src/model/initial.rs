//! What existed before the first operation: the snapshot, corrected by what calls found.

use spoolscope_traces::records::{NONE, PlanOp};

use crate::model::objects::Attributes;
use crate::model::world::{Slot, World};
use crate::semantics::{self, Kind};
use crate::touches::{Makes, Need, Touch};

impl World<'_> {
    /// Makes a name exist from the start, with what the snapshot or the call tells of it.
    pub fn plant(&mut self, path: u32, ino: u64, op: Option<&PlanOp>) -> u32 {
        if let Slot::Present(object) = self.slot(path) {
            return object;
        }
        let object = self.initial_object(path, ino, op);
        self.initial[path as usize] = Slot::Present(object);
        self.slots[path as usize] = Slot::Present(object);
        self.object_mut(object).nlink += 1;
        object
    }

    fn initial_object(&mut self, path: u32, ino: u64, op: Option<&PlanOp>) -> u32 {
        let by_path = self.entry_at.get(&path).copied();
        let same = |at: &u32| ino == 0 || self.entries[*at as usize].ino == ino;
        let entry = by_path
            .filter(same)
            .or_else(|| self.entry_of_ino.get(&ino).copied());
        let entry = entry.map(|at| self.entries[at as usize]);
        let ino = entry.map_or(ino, |entry| entry.ino);
        if let Some(known) = self.by_ino.get(&ino).filter(|at| self.object(**at).initial) {
            return *known;
        }
        let (first, target) = match entry {
            Some(entry) if entry.mode != 0 => (Attributes::of_entry(&entry), entry.target),
            _ => (self.guess_from(op), NONE),
        };
        let tentative = semantics::is_regular(first.mode) || first.mode & libc::S_IFMT == 0;
        let object = self.add(ino, first, target);
        self.object_mut(object).tentative = tentative;
        self.object_mut(object).initial = true;
        self.object_mut(object).written.add(0, first.size);
        self.grow(first.size);
        object
    }

    fn guess_from(&self, op: Option<&PlanOp>) -> Attributes {
        let Some(op) = op else {
            return Attributes {
                mode: 0o755,
                ..Attributes::default()
            };
        };
        let thread = &self.threads[op.thread as usize];
        let opens_directory = semantics::open_flags(op) & libc::O_DIRECTORY != 0;
        let directory = match semantics::kind(op) {
            Kind::Chdir | Kind::Rmdir => true,
            Kind::Open => opens_directory,
            _ => false,
        };
        let mode = match (u32::from(op.obj_mode), directory) {
            (0, true) => libc::S_IFDIR | 0o755,
            (0, false) => libc::S_IFREG | 0o644,
            (known, _) => known,
        };
        let size = if semantics::is_regular(mode) {
            op.obj_size.max(0)
        } else {
            0
        };
        Attributes {
            mode,
            uid: thread.uid,
            gid: thread.gid,
            size,
            mtime_ns: 0,
        }
    }

    /// Learns what a name must have been at start from the first call that touched it.
    pub fn settle_initial(&mut self, op: &PlanOp, touch: &Touch, moved_ino: u64) {
        if self.slot(touch.path) != Slot::Unknown {
            return;
        }
        let existed = match touch.need {
            need if need.is_present() => {
                let moved = semantics::has_second_path(op) && touch.path == op.path;
                let ino = match need {
                    _ if moved => moved_ino,
                    Need::Present(ino) => ino,
                    _ => 0,
                };
                let object = self.plant(touch.path, ino, Some(op));
                if matches!(need, Need::Directory | Need::Full | Need::Empty) {
                    self.object_mut(object).become_directory();
                }
                return;
            }
            Need::Absent => false,
            _ => match touch.makes {
                Makes::Object => self.existed_before_open(op, touch.path),
                Makes::Moved => self.existed_before_move(touch.path, moved_ino),
                _ => return,
            },
        };
        match existed {
            true => {
                self.plant(touch.path, 0, Some(op));
            }
            false => {
                self.initial[touch.path as usize] = Slot::Absent;
                self.slots[touch.path as usize] = Slot::Absent;
            }
        }
    }

    /// open(O_CREAT) of a name nobody touched before: did it create, or find?
    fn existed_before_open(&self, op: &PlanOp, path: u32) -> bool {
        let entry = self
            .entry_at
            .get(&path)
            .map(|at| &self.entries[*at as usize]);
        let truncates = semantics::open_flags(op) & libc::O_TRUNC != 0;
        match entry {
            _ if op.obj_size > 0 => true,
            None => false,
            Some(entry) if entry.ino != op.ino && op.ino != 0 => false,
            Some(entry) => truncates || entry.size == 0 || op.obj_size < 0,
        }
    }

    /// The snapshot may show the target of a rename because the rename had already run.
    fn existed_before_move(&self, path: u32, moved_ino: u64) -> bool {
        let entry = self
            .entry_at
            .get(&path)
            .map(|at| self.entries[*at as usize].ino);
        entry.is_some_and(|ino| ino != moved_ino && !self.by_ino.contains_key(&ino))
    }

    /// Notes that a call found its way to a name.
    pub fn reach(&mut self, path: u32) {
        if let Some(reached) = self.reached.get_mut(path as usize) {
            *reached = true;
        }
    }
}
