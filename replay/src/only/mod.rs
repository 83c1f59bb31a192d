//! A part of a plan: the chosen calls, and those of all others that they depend on.
//!
//! A call that is not chosen is kept, as given, if a kept call depends on it (`depends.rs`): it made
//! what the result of that call shows. With it come the call that forked its thread, the calls that
//! set working directory, umask and user of its process, and the end of its locks and descriptors.

pub mod by_words;
#[cfg(test)]
mod tests;

use foldhash::{HashMap, HashMapExt};
use serde_json::{Value, json};
use spoolscope_traces::records::{NONE, PLAN_FORK, PlanEntry, PlanFd, PlanOp, PlanXattr};

use crate::assemble::Draft;
use crate::model::order::depends::Found;
use crate::model::order::one_order::Linear;
use crate::plan::{OF_PART, Plan};
use crate::semantics::{self, Kind};

/// Keeps the chosen operations (one flag for each) and those they depend on.
///
/// Returns the plan, and how many operations were chosen, given and left out.
pub fn only(plan: &Plan, chosen: &[bool]) -> (Draft, Value) {
    let (_, depends) = Linear::with_depends(plan);
    let mut closure = Closure {
        ops: plan.ops(),
        depends: &depends,
        kept: vec![false; plan.ops().len()],
        acting: vec![false; plan.threads().len()],
        open: Vec::new(),
    };
    let all = (0..plan.ops().len() as u32).zip(chosen);
    all.filter(|(_, chosen)| **chosen)
        .for_each(|(at, _)| closure.take(at));
    closure.close();
    let calls = plan.ops().iter().zip(closure.kept.iter().zip(chosen));
    let calls = calls.filter(|(op, _)| op.call != u64::MAX);
    let count = |kept: bool, chosen: bool| {
        let same = |(_, (was, of)): &(&PlanOp, (&bool, &bool))| (**was, **of) == (kept, chosen);
        calls.clone().filter(same).count()
    };
    let (chosen, given, left_out) = (count(true, true), count(true, false), count(false, false));
    let draft = draft(plan, &closure);
    let facts = json!({
        "chosen": chosen,
        "given": given,
        "left_out": left_out,
        "threads": draft.threads.len(),
    });
    (draft, facts)
}

/// The operations kept, grown until nothing is missing.
struct Closure<'a> {
    ops: &'a [PlanOp],
    depends: &'a Found,
    kept: Vec<bool>,
    /// Threads with a kept operation.
    acting: Vec<bool>,
    /// Operations that are kept, but not looked at yet.
    open: Vec<u32>,
}

impl Closure<'_> {
    fn take(&mut self, at: u32) {
        if !std::mem::replace(&mut self.kept[at as usize], true) {
            self.open.push(at);
        }
    }

    fn close(&mut self) {
        loop {
            while let Some(at) = self.open.pop() {
                self.follow(at);
            }
            self.take_lives();
            if self.open.is_empty() {
                return;
            }
        }
    }

    fn follow(&mut self, at: u32) {
        let thread = self.ops[at as usize].thread;
        self.acting[thread as usize] = true;
        let depends = self.depends;
        depends
            .of(at)
            .iter()
            .for_each(|earlier| self.take(*earlier));
        if let Some(fork) = depends.fork_of.get(&thread) {
            self.take(*fork);
        }
    }

    /// Takes also what later calls of acting threads depend on without using it: working directory,
    /// umask, user, exec and exit, the closing of descriptors that are kept, and the end of locks.
    fn take_lives(&mut self) {
        for (at, op) in (0..).zip(self.ops) {
            let lives = matches!(
                semantics::kind(op),
                Kind::Chdir | Kind::Fchdir | Kind::Umask | Kind::Identity | Kind::Exec | Kind::Exit
            );
            if lives && self.acting[op.thread as usize] {
                self.take(at);
            }
        }
        for (at, makers) in &self.depends.closers {
            let acts = self.acting[self.ops[*at as usize].thread as usize];
            if acts && makers.iter().any(|maker| self.kept[*maker as usize]) {
                self.take(*at);
            }
        }
        for changes in &self.depends.locks {
            let taken = |(at, ends): &&(u32, bool)| !ends && self.kept[*at as usize];
            if let Some((first, _)) = changes.iter().find(taken).copied() {
                let ends = changes.iter().skip_while(|(at, _)| *at != first);
                let ends: Vec<u32> = ends.filter(|(_, ends)| *ends).map(|(at, _)| *at).collect();
                ends.into_iter().for_each(|at| self.take(at));
            }
        }
    }
}

fn draft(plan: &Plan, closure: &Closure) -> Draft {
    let mut draft = Draft::default();
    let mut threads: HashMap<u32, u32> = HashMap::new();
    let acting = (0..)
        .zip(plan.threads())
        .filter(|(at, _)| closure.acting[*at as usize]);
    for (new, (at, _)) in (0..).zip(acting.clone()) {
        threads.insert(at, new);
    }
    for (_, thread) in acting {
        let mut thread = *thread;
        thread.parent = threads.get(&thread.parent).copied().unwrap_or(NONE);
        thread.cwd = draft.taken(plan, thread.cwd);
        thread.flags |= OF_PART;
        draft.threads.push(thread);
    }
    let kept = plan
        .ops()
        .iter()
        .zip(&closure.kept)
        .filter(|(_, kept)| **kept);
    for (op, _) in kept {
        let child = || threads.get(&(op.arg as u32)).copied().unwrap_or(NONE);
        let op = PlanOp {
            thread: threads[&op.thread],
            arg: if op.op == PLAN_FORK {
                i64::from(child())
            } else {
                op.arg
            },
            ..draft.renamed(plan, op)
        };
        draft.ops.push(op);
    }
    for fd in plan.fds() {
        if let Some(thread) = threads.get(&fd.thread) {
            let path = draft.taken(plan, fd.path);
            draft.fds.push(PlanFd {
                thread: *thread,
                path,
                ..*fd
            });
        }
    }
    for entry in plan.entries() {
        let (path, target) = (
            draft.taken(plan, entry.path),
            draft.taken(plan, entry.target),
        );
        draft.entries.push(PlanEntry {
            path,
            target,
            ..*entry
        });
    }
    for xattr in plan.xattrs() {
        let (path, name) = (draft.taken(plan, xattr.path), draft.taken(plan, xattr.name));
        draft.xattrs.push(PlanXattr {
            path,
            name,
            ..*xattr
        });
    }
    draft.duration_ns = plan.duration_ns();
    draft
}
