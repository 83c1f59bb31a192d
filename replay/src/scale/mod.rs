//! A plan with copies of all recorded users: their mailboxes, processes, descriptors and locks.
//!
//! The first of them is the recording itself. A copy has everything once more under other names,
//! and begins later, in the state in which the recording begins. Directories that belong to no user
//! (`Commons`) exist once, so that they hold the names of all copies.

mod commons;
mod copy;
#[cfg(test)]
mod tests;

use anyhow::{Context, Result, ensure};
use foldhash::HashSet;
use serde_json::{Value, json};
use spoolscope_traces::error_code::{Code, Failure};
use spoolscope_traces::records::NONE;
use std::fs;
use std::path::PathBuf;

use crate::assemble::Draft;
use crate::plan::Plan;
use crate::scale::commons::Commons;
use crate::scale::copy::{Copy, Fresh};

/// The time within which copies begin, as a share of the recording: it is long enough that they do
/// not act together, and short enough that all are at work for most of the time.
const WINDOW: f64 = 0.1;

/// Copies of all users.
#[derive(Debug, clap::Args)]
pub struct Copies {
    /// A file with the directories that belong to one user each, separated by NUL.
    #[arg(long)]
    users: Option<PathBuf>,
    /// When a copy of all users begins, as a share of the window; one for each copy.
    #[arg(long = "begin", requires = "users")]
    begins: Vec<f64>,
    /// Length of the window in which copies begin; a tenth of the recording by default.
    #[arg(long)]
    window_ns: Option<i64>,
    /// Length of the recording, which may have begun earlier than the plan; by default the plan's.
    #[arg(long)]
    recorded_ns: Option<i64>,
}

impl Copies {
    /// Returns a plan with these copies, and a summary of it; `None` if none are asked for.
    pub fn of(&self, plan: &Plan) -> Result<Option<(Draft, Value)>> {
        let Some(file) = &self.users else {
            return Ok(None);
        };
        let shown = || format!("cannot read {}", file.display());
        let listed = fs::read(file).with_context(shown)?;
        let listed: HashSet<&[u8]> = listed.split(|byte| *byte == 0).collect();
        let names = (0..plan.n_strings()).map(|at| plan.string(at));
        let used = names.flat_map(commons::above);
        let users = used.filter(|name| listed.contains(name));
        let users = users.map(<[u8]>::to_vec).collect();
        let recorded_ns = self.recorded_ns.unwrap_or(plan.duration_ns());
        let tenth_ns = recorded_ns as f64 * WINDOW;
        let window_ns = self.window_ns.map_or(tenth_ns, |ns| ns as f64);
        let phases = self.begins.iter().map(|share| (share * window_ns) as i64);
        let phases_ns: Vec<i64> = phases.collect();
        let (draft, mut facts) = scale(plan, &users, &phases_ns)?;
        let last_ns = *phases_ns.iter().max().unwrap_or(&0);
        facts["mailboxes"] = json!(users.len());
        facts["all_from_ns"] = json!(last_ns.min(recorded_ns));
        facts["all_to_ns"] = json!(recorded_ns);
        Ok(Some((draft, facts)))
    }
}

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
