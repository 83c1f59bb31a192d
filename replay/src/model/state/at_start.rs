//! State before the first operation: the snapshot, corrected by what calls found.

use spoolscope_traces::records::{END_DOT, ENTRY_TYPE_ONLY, NONE, PlanEntry, PlanOp};

use crate::model::state::first_state::{AtStart, FirstMode, FirstSize};
use crate::model::state::holes::Holes;
use crate::model::state::inode_attributes::Attributes;
use crate::model::state::objects::Object;
use crate::model::state::slots::Slot;
use crate::model::state::world::World;
use crate::plan::Plan;
use crate::semantics::{self, OpenFlags};
use crate::touches::{Makes, Need, Touch};

impl World<'_> {
    /// Plants the names of open files and working directories, which must have existed at start.
    pub(in crate::model) fn start(&mut self, plan: &Plan) {
        for fd in plan.fds().iter().filter(|fd| fd.path != NONE) {
            let object = self.plant(fd.path, 0, None);
            self.object_mut(object).learn_mode(fd.mode);
            self.descriptors.found(self.leader(fd.thread), fd, object);
        }
        for thread in plan.threads() {
            let alive_at_start = thread.parent == NONE && thread.cwd != NONE;
            if alive_at_start && !self.names.bytes(thread.cwd).is_empty() {
                let object = self.plant(thread.cwd, 0, None);
                self.object_mut(object).become_directory();
            }
        }
    }

    /// Makes a name exist from the start, as the snapshot or the call shows it.
    pub fn plant(&mut self, path: u32, ino: u64, op: Option<&PlanOp>) -> u32 {
        if let Slot::Present(object) = self.slot(path) {
            return object;
        }
        let object = self.initial_object(path, ino, op);
        let origin = self.origin(path);
        self.slots.begin(origin, object);
        self.slots.set(path, Slot::Present(object));
        self.object_mut(object).link();
        object
    }

    /// Returns the name at start of what has a name now: a directory above may have moved since.
    fn origin(&mut self, path: u32) -> u32 {
        let above = self.names.ancestors(path).iter().rev();
        let moved = above.copied().find_map(|above| match self.slot(above) {
            Slot::Present(object) => Some((above, self.slots.first_name(object)?)),
            _ => None,
        });
        let Some((above, first)) = moved.filter(|(above, first)| above != first) else {
            return path;
        };
        let mut name = self.names.bytes(first).to_vec();
        name.extend_from_slice(&self.names.bytes(path)[self.names.bytes(above).len()..]);
        let origin = self.intern(name);
        if self.slots.is_unknown(origin) {
            self.slots.set(origin, Slot::Absent);
        }
        origin
    }

    fn initial_object(&mut self, path: u32, ino: u64, op: Option<&PlanOp>) -> u32 {
        let by_path = self.recorded.at(path);
        let entry = by_path
            .filter(|entry| ino == 0 || entry.ino == ino)
            .or_else(|| self.recorded.of_ino(ino));
        let ino = entry.map_or(ino, |entry| entry.ino);
        if let Some(known) = self.objects.of_ino(ino)
            && self.object(known).was_there()
        {
            return known;
        }
        let shown = entry.filter(|entry| entry.mode != 0);
        let (attributes, mode_is_shown, target) = match shown {
            Some(entry) => {
                let whole = entry.flags & ENTRY_TYPE_ONLY == 0;
                (Attributes::of_entry(entry), whole, entry.target)
            }
            None => {
                let by_call = op.is_some_and(|op| op.obj_mode != 0);
                (self.guess(path, op), by_call, NONE)
            }
        };
        let start = AtStart {
            attributes,
            size: match attributes.mode & libc::S_IFMT {
                libc::S_IFREG | 0 => FirstSize::Snapshot,
                _ => FirstSize::Known,
            },
            mode: match mode_is_shown {
                true => FirstMode::Shown,
                false => FirstMode::Guessed,
            },
            holes: shown.and_then(holes_of),
            untouched: true,
        };
        self.objects.add(Object::found(ino, start, target))
    }

    fn guess(&self, path: u32, op: Option<&PlanOp>) -> Attributes {
        // The spool itself is a directory, whatever a call asks of it.
        let directory = self.evidence.is_directory(path) || self.names.bytes(path).is_empty();
        let Some(op) = op else {
            let mode = if directory {
                libc::S_IFDIR | 0o755
            } else {
                0o644
            };
            return Attributes {
                mode,
                ..Attributes::default()
            };
        };
        let thread = &self.threads[op.thread as usize];
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
        if !self.slots.is_unknown(touch.path) {
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
                self.slots.set_at_start(touch.path, Slot::Absent);
                self.slots.set(touch.path, Slot::Absent);
            }
        }
    }

    /// Notes a directory that could not be removed or replaced because something was in it.
    pub fn settle_full(&mut self, op: &PlanOp) {
        let dots = !semantics::has_second_path(op) && semantics::end(op.base) == END_DOT;
        if op.ret != -i64::from(libc::ENOTEMPTY) || dots || !semantics::uses_path(op) {
            return;
        }
        let path = match semantics::has_second_path(op) {
            true => op.path2,
            false => op.path,
        };
        if let Slot::Present(object) = self.slot(path) {
            let below = self.names.below(path);
            let known = |below: &u32| self.slots.is_present(*below) || self.is_shown(*below);
            if !below.iter().any(known) {
                let known = self.count_known_below(object);
                self.full.push((object, known));
            }
        }
    }

    /// Gives these directories something to hold, unless later calls showed what was in them.
    pub fn fill_full(&mut self) {
        for (object, before) in std::mem::take(&mut self.full) {
            let now = self.slots.name_of(object);
            let (Some(now), Some(first)) = (now, self.slots.first_name(object)) else {
                continue;
            };
            if self.count_known_below(object) > before {
                continue;
            }
            let filler = self.add_filler(first);
            let object = self.plant(filler, 0, None);
            self.object_mut(object).learn_type(libc::S_IFREG);
            self.slots.set(filler, Slot::Absent);
            let filler = self.add_filler(now);
            self.slots.set(filler, Slot::Present(object));
        }
    }

    /// Returns how many names are known to have been in a directory at start.
    fn count_known_below(&mut self, object: u32) -> usize {
        let Some(first) = self.slots.first_name(object) else {
            return 0;
        };
        let below = self.names.below(first);
        let was = |below: &&u32| self.slots.was_present(**below) || self.is_shown(**below);
        let known = below.iter().filter(was);
        known.count()
    }

    fn add_filler(&mut self, directory: u32) -> u32 {
        let above = self.names.bytes(directory);
        // The name of the spool itself is empty.
        let between: &[u8] = if above.is_empty() { b"" } else { b"/" };
        let name = [above, between, b".spoolscope-unknown"].concat();
        self.intern(name)
    }

    /// Returns whether the snapshot has a name that no operation touched.
    fn is_shown(&self, path: u32) -> bool {
        self.slots.is_unknown(path) && self.recorded.has(path)
    }

    /// Returns whether open(O_CREAT) of a name that no call touched before found a file.
    fn existed_before_open(&self, op: &PlanOp, path: u32) -> bool {
        let entry = self.recorded.at(path);
        let truncates = OpenFlags::of(op).truncates();
        match entry {
            _ if op.obj_size > 0 => true,
            None => self.evidence.found(op),
            Some(entry) if entry.ino != op.ino && op.ino != 0 => false,
            Some(entry) => truncates || entry.size == 0 || op.obj_size < 0,
        }
    }

    /// Returns whether a rename's target existed: the snapshot may show the moved object there.
    fn existed_before_move(&self, path: u32, moved_ino: u64) -> bool {
        let ino = self.recorded.at(path).map(|entry| entry.ino);
        ino.is_some_and(|ino| ino != moved_ino && self.objects.of_ino(ino).is_none())
    }
}

/// Returns the holes of a file that the snapshot shows.
fn holes_of(entry: &PlanEntry) -> Option<Box<Holes>> {
    (entry.holes > 0).then(|| Box::new(Holes::of(entry.holes)))
}
