//! State before the first call that all calls together prove, where no snapshot shows it.

use foldhash::{HashMap, HashMapExt, HashSet, HashSetExt};
use spoolscope_traces::records::{END_NONE, END_SLASH, PlanOp};

use crate::model::state::names::{Names, parent_of};
use crate::plan::Plan;
use crate::semantics::{self, Kind, OpenFlags};
use crate::touches::{self, Makes, Need, Touch, Touches};

/// Identity of a call, thread and start: a thread makes one call at a time.
type Call = (u32, i64);

#[derive(Debug, Default)]
pub struct Evidence {
    /// Names that were directories at start, and at some time; index = path.
    directories: Vec<bool>,
    ever: Vec<bool>,
    /// The object at the start has gone, or another one has come.
    changed: Vec<bool>,
    /// Names that were made before anything else was done to them.
    begun: HashSet<u32>,
    /// open(O_CREAT) calls that found a file: it had contents that no call wrote.
    found: HashSet<Call>,
}

impl Evidence {
    pub fn gather(plan: &Plan, names: &Names) -> Self {
        let mut evidence = Self {
            directories: vec![false; names.len()],
            ever: vec![false; names.len()],
            changed: vec![false; names.len()],
            begun: HashSet::new(),
            found: HashSet::new(),
        };
        let mut below = vec![false; names.len()];
        let mut created: HashMap<(u32, i32), Call> = HashMap::new();
        for op in plan.ops() {
            evidence.note_directory(op);
            let touches = touches::of(op);
            for touch in touches.iter().flatten() {
                let existed = op.ret >= 0 || touch.need.is_present();
                if existed && !std::mem::replace(&mut below[touch.path as usize], true) {
                    evidence.note_parents(names, touch.path);
                }
            }
            evidence.note_contents(op, &mut created);
            if op.ret >= 0 {
                for above in touches
                    .iter()
                    .flatten()
                    .flat_map(|touch| names.above(touch))
                {
                    evidence.mark(*above, true);
                }
                evidence.note_changes(&touches);
            }
        }
        // A call that moves a directory need not have used it by its old name.
        let renames = plan.of_kind(|kind| kind == Kind::Rename);
        let renames: Vec<&PlanOp> = renames.map(|(_, op)| op).collect();
        for op in renames.into_iter().rev().filter(|op| op.ret >= 0) {
            let moved = evidence.ever.get(op.path2 as usize) == Some(&true);
            if moved && op.obj_mode == 0 {
                let known = &mut evidence.directories[op.path as usize];
                *known |= !evidence.begun.contains(&op.path);
            }
        }
        evidence
    }

    pub fn is_directory(&self, path: u32) -> bool {
        self.directories
            .get(path as usize)
            .copied()
            .unwrap_or(false)
    }

    /// Returns whether an open that may create a file found one.
    pub fn found(&self, op: &PlanOp) -> bool {
        self.found.contains(&(op.thread, op.start_ns))
    }

    /// Marks a name as a directory, if `directory`; names outside the spool have no index.
    fn mark(&mut self, path: u32, directory: bool) {
        if let Some(known) = self.ever.get_mut(path as usize).filter(|_| directory) {
            *known = true;
            self.directories[path as usize] |= !self.changed[path as usize];
        }
    }

    fn note_changes(&mut self, touches: &Touches) {
        let changes = |touch: &&Touch| touch.makes != Makes::Same;
        for touch in touches.iter().flatten().filter(changes) {
            let created = touch.makes != Makes::Gone && touch.need == Need::Absent;
            if created && !self.changed[touch.path as usize] {
                self.begun.insert(touch.path);
            }
            self.changed[touch.path as usize] = true;
        }
    }

    fn note_directory(&mut self, op: &PlanOp) {
        let succeeds = op.ret >= 0;
        let full = op.ret == -i64::from(libc::ENOTEMPTY);
        let end = semantics::end(op.base);
        // open(O_CREAT) of a name that ends in a slash fails with EISDIR, too.
        let slash = end == END_SLASH && OpenFlags::of(op).creates();
        let refused = op.ret == -i64::from(libc::EISDIR) && !slash;
        if semantics::kind(op) == Kind::Rename {
            // A directory cannot take the place of a file, nor the other way round.
            let mixed = op.ret == -i64::from(libc::ENOTDIR) && !semantics::leads_through(op);
            let from = full || mixed;
            self.mark(op.path, from);
            self.mark(op.path2, full || refused);
        }
        let directory = match semantics::kind(op) {
            Kind::Getdents | Kind::Fchdir | Kind::Chdir => succeeds,
            Kind::Rmdir => succeeds || full,
            Kind::Stat | Kind::Fstat | Kind::Rename if succeeds => is_directory(op),
            Kind::Open if succeeds => is_directory(op) || OpenFlags::of(op).wants_directory(),
            Kind::Open | Kind::Unlink => refused,
            _ => false,
        };
        self.mark(op.path, directory || succeeds && end != END_NONE);
    }

    fn note_parents(&mut self, names: &Names, path: u32) {
        let mut above = parent_of(names.bytes(path));
        while let Some(parent) = above {
            if let Some(known) = names.find(parent) {
                self.mark(known, true);
            }
            above = parent_of(parent);
        }
    }

    /// Notes a file opened with O_CREAT and read with success before anything was written, where
    /// the size at the open is not known.
    fn note_contents(&mut self, op: &PlanOp, created: &mut HashMap<(u32, i32), Call>) {
        match semantics::kind(op) {
            Kind::Open if op.ret >= 0 => {
                let flags = OpenFlags::of(op);
                let unsure = flags.creates() && !flags.only_creates() && !flags.truncates();
                created.remove(&(op.thread, op.ret as i32));
                if unsure && op.obj_size < 0 {
                    let call = (op.thread, op.start_ns);
                    created.insert((op.thread, op.ret as i32), call);
                }
            }
            Kind::Read if op.ret > 0 => {
                if let Some(call) = created.remove(&(op.thread, op.fd)) {
                    self.found.insert(call);
                }
            }
            Kind::Write | Kind::Close | Kind::Ftruncate | Kind::Fallocate | Kind::Clone => {
                created.remove(&(op.thread, op.fd));
            }
            Kind::CopyRange | Kind::Sendfile | Kind::Splice => {
                created.remove(&(op.thread, op.fd2));
            }
            _ => {}
        }
    }
}

fn is_directory(op: &PlanOp) -> bool {
    u32::from(op.obj_mode) & libc::S_IFMT == libc::S_IFDIR
}
