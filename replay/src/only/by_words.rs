//! Choice of operations by words: those of some processes, or on some mailboxes.

use anyhow::{Result, bail};
use spoolscope_traces::error_code::{Code, Failure};
use spoolscope_traces::records::{NONE, PlanOp, PlanThread};
use std::ffi::CString;

use crate::plan::Plan;

/// Returns for each operation of a plan whether at least one of some words chooses it; fails if one
/// of them chooses no call.
///
/// A word is a process id, a name of processes (may have `*`, see glob(7)), or a directory below
/// the spool: a mailbox with all that lies in it.
pub fn chosen(plan: &Plan, words: &[String]) -> Result<Vec<bool>> {
    let mut found = vec![false; plan.ops().len()];
    for word in words {
        let choice = Choice::new(plan, word);
        let mut any = false;
        for (op, found) in plan.ops().iter().zip(&mut found) {
            if choice.takes(op) {
                *found = true;
                any |= op.call != u64::MAX;
            }
        }
        if !any {
            let message = format!("no call is of a process or on a mailbox '{word}'");
            let known = processes(plan).join(", ");
            let remedy = format!("give a pid, a directory below the spool, or a process: {known}");
            bail!(Failure::new(Code::Usage, message, remedy));
        }
    }
    Ok(found)
}

/// Threads and names that a word stands for.
struct Choice {
    threads: Vec<bool>,
    names: Vec<bool>,
}

impl Choice {
    fn new(plan: &Plan, word: &str) -> Self {
        let directory = word.trim_matches('/').as_bytes();
        let inside = |name: &[u8]| {
            let rest = name.strip_prefix(directory);
            rest.is_some_and(|rest| rest.is_empty() || rest[0] == b'/')
        };
        let of_process = |thread: &PlanThread| is_of_process(thread, word);
        Self {
            threads: plan.threads().iter().map(of_process).collect(),
            names: (0..plan.n_strings())
                .map(|at| inside(plan.string(at)))
                .collect(),
        }
    }

    fn takes(&self, op: &PlanOp) -> bool {
        let named = [op.path, op.path2].into_iter().filter(|at| *at != NONE);
        self.threads[op.thread as usize] || named.into_iter().any(|at| self.names[at as usize])
    }
}

fn is_of_process(thread: &PlanThread, word: &str) -> bool {
    if !word.is_empty() && word.bytes().all(|byte| byte.is_ascii_digit()) {
        return word.parse() == Ok(thread.pid);
    }
    let name = thread.comm.split(|byte| *byte == 0).next();
    let (Ok(pattern), Ok(name)) = (CString::new(word), CString::new(name.unwrap_or_default()))
    else {
        return false;
    };
    // SAFETY: both are NUL-terminated.
    unsafe { libc::fnmatch(pattern.as_ptr(), name.as_ptr(), libc::FNM_NOESCAPE) == 0 }
}

/// Returns the names of the processes that make most operations, the most frequent first.
fn processes(plan: &Plan) -> Vec<String> {
    let mut counts = std::collections::BTreeMap::<String, u64>::new();
    for op in plan.ops() {
        let comm = &plan.threads()[op.thread as usize].comm;
        let name = comm.split(|byte| *byte == 0).next().unwrap_or_default();
        let name = String::from_utf8_lossy(name).into_owned();
        *counts.entry(name).or_default() += 1;
    }
    let mut ranked: Vec<(String, u64)> = counts.into_iter().collect();
    ranked.sort_by_key(|(_, count)| std::cmp::Reverse(*count));
    ranked
        .into_iter()
        .map(|(name, _)| name)
        .take(LISTED)
        .collect()
}

const LISTED: usize = 8;
