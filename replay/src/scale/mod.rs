//! A plan with copies of all recorded users: their mailboxes, processes, descriptors and locks.
//!
//! The first of them is the recording itself. A copy has everything once more under other names,
//! and begins later, in the state in which the recording begins. Directories that belong to no user
//! (`Commons`) exist once, so that they hold the names of all copies.

mod commons;
mod copy;
#[cfg(test)]
mod tests;

use anyhow::{Result, ensure};
use foldhash::HashSet;
use serde_json::{Value, json};
use spoolscope_traces::error_code::{Code, Failure};
use spoolscope_traces::records::NONE;

use crate::assemble::Draft;
use crate::plan::Plan;
use crate::scale::commons::Commons;
use crate::scale::copy::{Copy, Fresh};

/// Adds a copy of all users for each phase, in ns after the recording.
///
/// `users` are directories that belong to one user each. Returns the plan, and a summary of it.
pub fn scale(plan: &Plan, users: &HashSet<Vec<u8>>, phases_ns: &[i64]) -> Result<(Draft, Value)> {
    let n = phases_ns.len() + 1;
    check(plan, n, phases_ns)?;
    let (common, mark) = in_common(plan, users, n)?;
    let mut draft = Draft::default();
    let mut fresh = Fresh::new(plan);
    for (number, late_ns) in [0].iter().chain(phases_ns).enumerate() {
        let tag = if number == 0 {
            Vec::new()
        } else {
            tag(&mark, number)
        };
        Copy::new(plan, &common, tag, *late_ns, number as u32).add_to(&mut draft, &mut fresh);
    }
    draft.duration_ns = plan.duration_ns() + phases_ns.iter().max().unwrap_or(&0);
    let facts = json!({
        "users": n,
        "phases_ns": phases_ns,
        "common_directories": common.names.len(),
        "threads": draft.threads.len(),
        "bytes": draft.tree_bytes(),
        "duration_ns": draft.duration_ns,
    });
    Ok((draft, facts))
}

fn check(plan: &Plan, n: usize, phases_ns: &[i64]) -> Result<()> {
    let counts = [
        plan.ops().len(),
        plan.n_strings() as usize,
        plan.threads().len(),
        plan.entries().len(),
    ];
    ensure!(
        counts
            .iter()
            .all(|count| count.saturating_mul(n) < NONE as usize),
        Failure::new(
            Code::TooManyUsers,
            format!("the plan is too large (--scale-users {n})"),
            "give fewer --scale-users"
        )
    );
    let last_ns = plan.ops().iter().map(|op| op.end_ns).max().unwrap_or(0);
    let last_ns = last_ns.max(plan.duration_ns());
    let possible = |ns: &i64| *ns >= 0 && last_ns.checked_add(*ns).is_some();
    ensure!(
        phases_ns.iter().all(possible),
        "a copy begins at an impossible time"
    );
    Ok(())
}

/// Returns the suffix of names in a copy.
fn tag(mark: &[u8], number: usize) -> Vec<u8> {
    [mark, number.to_string().as_bytes()].concat()
}

/// Returns the common directories, and a mark with which no name of a copy is a recorded one.
fn in_common(plan: &Plan, users: &HashSet<Vec<u8>>, n: usize) -> Result<(Commons, Vec<u8>)> {
    let mut mark = b".".to_vec();
    loop {
        let longest = tag(&mark, n).len();
        let common = Commons::of(plan, users, longest);
        let own: HashSet<&[u8]> = (0..plan.n_strings())
            .filter_map(|at| common.own(plan.string(at)))
            .collect();
        if let Some(name) = own.iter().find(|name| commons::is_crowded(name, longest)) {
            let name = String::from_utf8_lossy(name);
            anyhow::bail!("the name '{name}' is too long to be told apart from a copy's");
        }
        let names = common.names.iter().map(Vec::as_slice);
        let taken = |name: &[u8]| copied_from(name, &mark).is_some_and(|from| own.contains(from));
        if !own.iter().copied().chain(names).any(taken) {
            return Ok((common, mark));
        }
        mark.insert(0, b'~');
    }
}

/// Returns the name whose copy would have this name.
fn copied_from<'a>(name: &'a [u8], mark: &[u8]) -> Option<&'a [u8]> {
    let digits = name.iter().rev().take_while(|byte| byte.is_ascii_digit());
    let rest = &name[..name.len() - digits.count()];
    rest.strip_suffix(mark).filter(|_| rest.len() < name.len())
}
