//! One copy of all users: the plan once more, under other names, and later.

use foldhash::{HashMap, HashMapExt, HashSet};
use spoolscope_traces::records::{
    NONE, PLAN_FORK, PlanEntry, PlanFd, PlanOp, PlanThread, PlanXattr,
};

use crate::assemble::Draft;
use crate::plan::Plan;
use crate::scale::commons::Commons;
use crate::semantics::{self, Kind};

/// Inode numbers that no recorded object has, and numbers of shared open files.
#[derive(Debug)]
pub struct Fresh {
    taken: HashSet<u64>,
    last: u64,
    files: HashMap<(u32, u32), u32>,
}

impl Fresh {
    pub fn new(plan: &Plan) -> Self {
        let of_ops = plan.ops().iter().map(|op| op.ino);
        let of_entries = plan.entries().iter().map(|entry| entry.ino);
        Self {
            taken: of_ops.chain(of_entries).collect(),
            last: 0,
            files: HashMap::new(),
        }
    }

    fn ino(&mut self) -> u64 {
        loop {
            self.last += 1;
            if !self.taken.contains(&self.last) {
                return self.last;
            }
        }
    }

    fn file(&mut self, copy: u32, file: u32) -> u32 {
        let next = self.files.len() as u32;
        match file {
            NONE => NONE,
            _ => *self.files.entry((copy, file)).or_insert(next),
        }
    }
}

/// A copy, with its new names and inode numbers so far.
#[derive(Debug)]
pub struct Copy<'a> {
    plan: &'a Plan,
    common: &'a Commons,
    /// Suffix of the names of the copy; empty for the recording itself.
    tag: Vec<u8>,
    late_ns: i64,
    number: u32,
    /// Added to recorded process and thread ids.
    ids: u32,
    paths: HashMap<u32, u32>,
    inos: HashMap<u64, u64>,
    /// By path of a symlink in the recording, how much longer its text is in the copy.
    longer: HashMap<u32, i64>,
}

impl<'a> Copy<'a> {
    pub fn new(
        plan: &'a Plan,
        common: &'a Commons,
        tag: Vec<u8>,
        late_ns: i64,
        number: u32,
    ) -> Self {
        let ids = plan
            .threads()
            .iter()
            .map(|thread| thread.tid.max(thread.pid));
        let most = ids.max().unwrap_or(0).wrapping_add(1);
        Self {
            plan,
            common,
            tag,
            late_ns,
            number,
            ids: most.wrapping_mul(number),
            paths: HashMap::new(),
            inos: HashMap::new(),
            longer: HashMap::new(),
        }
    }

    pub fn add_to(&mut self, draft: &mut Draft, fresh: &mut Fresh) {
        let first_thread = draft.threads.len() as u32;
        let plan = self.plan;
        for thread in plan.threads() {
            let thread = self.thread(thread, first_thread, draft);
            draft.threads.push(thread);
        }
        for entry in plan.entries() {
            if self.has(entry.path) {
                let entry = self.entry(entry, draft, fresh);
                draft.entries.push(entry);
            }
        }
        for fd in plan.fds() {
            let path = self.path(fd.path, draft);
            draft.fds.push(PlanFd {
                thread: first_thread + fd.thread,
                path,
                file: fresh.file(self.number, fd.file),
                ..*fd
            });
        }
        for xattr in plan.xattrs() {
            if self.has(xattr.path) {
                let (path, name) = (self.path(xattr.path, draft), draft.taken(plan, xattr.name));
                draft.xattrs.push(PlanXattr {
                    path,
                    name,
                    ..*xattr
                });
            }
        }
        for op in plan.ops() {
            let op = self.op(op, first_thread, draft, fresh);
            draft.ops.push(op);
        }
    }

    fn is_recording(&self) -> bool {
        self.tag.is_empty()
    }

    /// Returns whether an object at the start is the copy's; common ones are the recording's.
    fn has(&self, path: u32) -> bool {
        self.is_recording() || self.common.own(self.plan.string(path)).is_some()
    }

    fn path(&mut self, path: u32, draft: &mut Draft) -> u32 {
        if path == NONE {
            return NONE;
        }
        let (plan, common, tag) = (self.plan, self.common, &self.tag);
        let renamed = || draft.string(&common.renamed(plan.string(path), tag));
        *self.paths.entry(path).or_insert_with(renamed)
    }

    /// Returns the same as `path`, for a name with dots in it.
    fn given(&self, given: u32, draft: &mut Draft) -> u32 {
        if given == NONE {
            return NONE;
        }
        let name = self.plan.string(given);
        draft.string(&self.common.retargeted(b"", name, &self.tag))
    }

    fn ino(&mut self, ino: u64, fresh: &mut Fresh) -> u64 {
        match ino {
            0 => 0,
            _ if self.is_recording() || self.common.inos.contains(&ino) => ino,
            _ => *self.inos.entry(ino).or_insert_with(|| fresh.ino()),
        }
    }

    /// Returns the text of a symlink, and keeps how much longer it is than in the recording.
    fn target(&mut self, link: u32, target: u32, draft: &mut Draft) -> u32 {
        if target == NONE {
            return NONE;
        }
        let text = self.plan.string(target);
        let retargeted = self
            .common
            .retargeted(self.plan.string(link), text, &self.tag);
        let longer = retargeted.len() as i64 - text.len() as i64;
        self.longer.insert(link, longer);
        draft.string(&retargeted)
    }

    /// Returns a thread of the copy; it begins later, unless it was there at the start.
    fn thread(&mut self, thread: &PlanThread, first: u32, draft: &mut Draft) -> PlanThread {
        PlanThread {
            start_ns: match thread.start_ns {
                0 => 0,
                ns => ns.saturating_add(self.late_ns as u64),
            },
            tid: thread.tid.wrapping_add(self.ids),
            pid: thread.pid.wrapping_add(self.ids),
            parent: match thread.parent {
                NONE => NONE,
                parent => first + parent,
            },
            cwd: self.path(thread.cwd, draft),
            ..*thread
        }
    }

    fn entry(&mut self, entry: &PlanEntry, draft: &mut Draft, fresh: &mut Fresh) -> PlanEntry {
        PlanEntry {
            ino: self.ino(entry.ino, fresh),
            path: self.path(entry.path, draft),
            target: self.target(entry.path, entry.target, draft),
            ..*entry
        }
    }

    fn op(&mut self, op: &PlanOp, first: u32, draft: &mut Draft, fresh: &mut Fresh) -> PlanOp {
        let kind = semantics::kind(op);
        // Operations that restore the state at the start do so for all copies then.
        let at_start = op.call == u64::MAX && op.start_ns == 0;
        let late_ns = if at_start { 0 } else { self.late_ns };
        let arg = match op.arg {
            child if op.op == PLAN_FORK && child != i64::from(NONE) => child + i64::from(first),
            _ if self.ends_common_listing(op, kind) => semantics::READS_ON,
            arg => arg,
        };
        let path = self.path(op.path, draft);
        let path2 = match kind {
            Kind::Symlink => self.target(op.path, op.path2, draft),
            _ if semantics::has_second_path(op) => self.path(op.path2, draft),
            _ => draft.taken(self.plan, op.path2),
        };
        let longer = self.longer.get(&op.path).copied().unwrap_or(0);
        PlanOp {
            start_ns: op.start_ns + late_ns,
            end_ns: op.end_ns + late_ns,
            ret: match kind {
                Kind::Readlink if op.ret >= 0 => (op.ret + longer).clamp(0, op.size.max(op.ret)),
                _ => op.ret,
            },
            arg,
            thread: first + op.thread,
            path,
            path2,
            given: self.given(op.given, draft),
            given2: self.given(op.given2, draft),
            ino: self.ino(op.ino, fresh),
            ..*op
        }
    }

    /// Returns whether a call ends a listing that holds names of other copies, too.
    fn ends_common_listing(&self, op: &PlanOp, kind: Kind) -> bool {
        let ends = kind == Kind::Getdents && op.ret == 0 && op.path != NONE;
        ends && self.common.own(self.plan.string(op.path)).is_none()
    }
}
