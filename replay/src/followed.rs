//! Divergences of a run, each with the earlier ones that it may follow from.
//!
//! A call may follow from a divergence that made, or should have made, what its result depends on:
//! itself, or by way of calls that had the recorded results. It may follow, too, from one that found
//! otherwise what such a call had left.

use anyhow::{Result, ensure};
use foldhash::HashMap;
use memmap2::Mmap;
use serde_json::{Value, json};
use spoolscope_traces::records::{NONE, Outcome, PlanOp, VERDICT_DIVERGED, from_bytes};
use std::fs::File;
use std::path::Path;

use crate::model::order::one_order::Linear;
use crate::plan::Plan;

/// Most divergences that one is said to follow from; those with the earliest issue are kept.
const MOST: usize = 8;

/// Returns, for each divergence, those that it may follow from, and what opened its descriptor.
pub fn divergences(plan: &Plan, outcomes: &Path) -> Result<Value> {
    let file = File::open(outcomes)?;
    // SAFETY: the mapping is private and read-only; the file belongs to this replay.
    let map = unsafe { Mmap::map(&file) }?;
    let outcomes: &[Outcome] = from_bytes(&map).unwrap_or(&[]);
    ensure!(
        outcomes.len() == plan.ops().len(),
        "{} outcomes of {} operations",
        outcomes.len(),
        plan.ops().len()
    );
    let found = of(plan, |at| {
        let outcome = &outcomes[at as usize];
        (outcome.verdict == VERDICT_DIVERGED).then_some(outcome.issue_ns)
    });
    let listed = found.iter().map(|(at, earlier, opened)| {
        json!({
            "op": at,
            "earlier": earlier,
            "opened": opened,
        })
    });
    Ok(json!({"divergences": listed.collect::<Vec<Value>>()}))
}

/// A divergence, those that it may follow from, and the operation that opened its descriptor.
type Followed = (u32, Vec<u32>, Option<u32>);

/// Returns the divergences of a run in the order of the plan; `issued` is when one was issued.
fn of(plan: &Plan, issued: impl Fn(u32) -> Option<i64>) -> Vec<Followed> {
    let (order, depends) = Linear::with_depends(plan);
    // Divergences that an operation may pass on to those that depend on it.
    let mut passed: HashMap<u32, Vec<u32>> = HashMap::default();
    let mut found = Vec::new();
    for at in order {
        let fork = depends.fork_of.get(&plan.ops()[at as usize].thread);
        let before = depends.of(at).iter().chain(fork);
        let mut earlier: Vec<u32> = before
            .filter_map(|before| passed.get(before))
            .flatten()
            .copied()
            .collect();
        earlier.sort_unstable_by_key(|other| (issued(*other), *other));
        earlier.dedup();
        earlier.truncate(MOST);
        if issued(at).is_some() {
            passed.insert(at, vec![at]);
            for before in depends.of(at) {
                let same = are_of_one(&plan.ops()[*before as usize], &plan.ops()[at as usize]);
                if same && issued(*before).is_none() {
                    passed.entry(*before).or_default().push(at);
                }
            }
            found.push((at, earlier, depends.opened(at)));
        } else if !earlier.is_empty() {
            passed.insert(at, earlier);
        }
    }
    found.sort_unstable();
    found
}

/// Returns whether two operations are about one name or inode.
fn are_of_one(one: &PlanOp, other: &PlanOp) -> bool {
    let names = [other.path, other.path2];
    let named = [one.path, one.path2].into_iter().filter(|at| *at != NONE);
    one.ino != 0 && one.ino == other.ino || named.into_iter().any(|at| names.contains(&at))
}

#[cfg(test)]
mod tests {
    use super::of;
    use crate::testing::plan;

    /// Returns what each of some divergences follows from; times of issue are those of the plan.
    fn followed(script: &str, diverged: &[u32]) -> Vec<(u32, Vec<u32>)> {
        let plan = plan(script);
        let issued = |at: u32| {
            let is = diverged.contains(&at);
            is.then(|| plan.ops()[at as usize].start_ns)
        };
        let found = of(&plan, issued).into_iter();
        found.map(|(at, earlier, _)| (at, earlier)).collect()
    }

    #[test]
    fn a_call_follows_from_what_made_its_name_its_descriptor_and_its_data() {
        let script = "
            A 0-5 open a flags=301 mode=600 ino=7 omode=100600 osize=0 = 3
            A 10-15 write a fd=3 ino=7 off=0 size=9 omode=100600 osize=9 = 9
            B 20-25 stat a ino=7 omode=100600 osize=9 = 0
            B 30-35 stat b = -2
            B 36-37 stat b = -2
            B 40-45 stat a ino=7 omode=100600 osize=9 = 0
        ";
        assert_eq!(
            followed(script, &[0, 1, 2, 3]),
            [(0, vec![]), (1, vec![0]), (2, vec![0, 1]), (3, vec![])]
        );
        // Two that only looked at what was there at start are not the cause of each other.
        assert_eq!(followed(script, &[3, 4]), [(3, vec![]), (4, vec![])]);
        // Both found otherwise what the write had left: the first one stands for the second one.
        assert_eq!(followed(script, &[2, 5]), [(2, vec![]), (5, vec![2])]);
    }

    #[test]
    fn a_divergence_is_passed_on_by_calls_that_had_their_results() {
        let script = "
            A 0-5 mkdir d mode=700 = 0
            A 10-15 rename d e = 0
            B 20-25 chdir e = 0
            B 30-35 FORK C = 0
            C 40-45 stat e/x base=2 = -2
        ";
        assert_eq!(followed(script, &[0, 4]), [(0, vec![]), (4, vec![0])]);
        assert_eq!(followed(script, &[2, 4]), [(2, vec![]), (4, vec![2])]);
    }

    #[test]
    fn all_calls_of_a_thread_follow_from_its_fork() {
        let script = "A 0-5 FORK B = 0\nB 10-15 stat x = -2\nA 20-25 stat x = -2";
        assert_eq!(
            followed(script, &[0, 1, 2]),
            [(0, vec![]), (1, vec![0]), (2, vec![])]
        );
    }
}
