//! Entry points of `fuzz/`: no bytes, given as a plan or as an order, may crash the replayer.
//!
//! The engine itself is not started: `tests/root/test_hostile.py` runs mutated plans for real.

use anyhow::Result;
use foldhash::{HashSet, HashSetExt};
use memmap2::Mmap;
use std::fs::File;
use std::io::Write;
use std::os::fd::{AsRawFd, FromRawFd};
use std::path::PathBuf;

use crate::cli::Order;
use crate::cut;
use crate::explain;
use crate::only;
use crate::plan::Plan;
use crate::planned::{self, Planned, Stored};
use crate::scale;

/// Refuses bytes that are no plan; orders, explains, cuts, thins out and multiplies a plan.
///
/// # Panics
/// If an accepted plan cannot be worked with.
pub fn plan(bytes: &[u8]) {
    with_plan(bytes, |plan| {
        order(plan.bytes(), b"");
        for part in parts(plan) {
            // A plan derived from an accepted one is accepted, or refused with a reason.
            with_plan(&part, |part| order(part.bytes(), b""));
        }
    });
}

/// Works with the order of a plan, into which `changes` are XORed, or refuses it.
///
/// # Panics
/// If no plan is given, if its own order is refused, or if an accepted order cannot be worked with.
pub fn order(plan: &[u8], changes: &[u8]) {
    let accepted = with_plan(plan, |plan| {
        let whole = order_of(plan);
        work_with(plan, &mut read(plan, &whole).expect("its own order")).expect("its own order");
        let mut changed = whole;
        changed.resize(changed.len().max(changes.len()), 0);
        for (byte, change) in changed.iter_mut().zip(changes) {
            *byte ^= change;
        }
        // Both results are allowed.
        let _refused = read(plan, &changed).and_then(|mut order| work_with(plan, &mut order));
    });
    assert!(accepted, "no plan");
}

/// Calls `work` with bytes as a plan, if they are one; returns whether they are.
fn with_plan(bytes: &[u8], work: impl Fn(&Plan)) -> bool {
    let file = in_memory(bytes);
    let path = PathBuf::from(format!("/proc/self/fd/{}", file.as_raw_fd()));
    let opened = Plan::open(&path);
    opened.as_ref().into_iter().for_each(work);
    opened.is_ok()
}

fn in_memory(bytes: &[u8]) -> File {
    // SAFETY: a new descriptor, owned by the file from here on.
    let mut file = unsafe { File::from_raw_fd(libc::memfd_create(c"bytes".as_ptr(), 0)) };
    file.write_all(bytes).expect("memory");
    file
}

fn order_of(plan: &Plan) -> Vec<u8> {
    let file = in_memory(b"");
    let twin = file.try_clone().expect("a descriptor");
    planned::write(plan, twin).expect("memory");
    // SAFETY: nothing else has the file.
    let map = unsafe { Mmap::map(&file) }.expect("memory");
    map.to_vec()
}

fn read<'a>(plan: &'a Plan, order: &[u8]) -> Result<Planned<'a>> {
    Ok(Planned::Stored(Stored::of(plan, &in_memory(order))?))
}

/// Runs the steps of a replay that make no calls, with an order.
fn work_with(plan: &Plan, planned: &mut Planned) -> Result<()> {
    let (before, after) = (planned.start()?.tree, planned.end()?);
    assert!(before.bytes() >= 0 && after.bytes() >= 0);
    let all: Vec<u32> = (0..plan.ops().len() as u32).collect();
    explain::explain(plan, planned, Order::Recorded, &all)?;
    let _counted = plan.unsupported();
    Ok(())
}

/// Returns a slice of a plan, some of its calls, and the plan with a second copy of its users.
fn parts(plan: &Plan) -> Vec<Vec<u8>> {
    let ops = plan.ops().len();
    let third = plan.duration_ns() / 3;
    let every_third: Vec<bool> = (0..ops).map(|at| at % 3 == 0).collect();
    let mut users = HashSet::new();
    if plan.n_strings() > 0 {
        users.insert(plan.string(0).to_vec());
    }
    let mut drafts = vec![
        cut::cut(plan, third, third.saturating_mul(2)).0,
        only::only(plan, &every_third).0,
    ];
    drafts.extend(scale::scale(plan, &users, &[third]).map(|(draft, _)| draft));
    let written = drafts.into_iter().map(|draft| {
        let mut bytes = Vec::new();
        draft.write(&mut bytes).expect("memory");
        bytes
    });
    written.collect()
}

#[cfg(test)]
mod tests {
    use super::in_memory;
    use crate::plan::Plan;
    use std::fs;
    use std::os::fd::AsRawFd;
    use std::path::{Path, PathBuf};

    /// Returns the letters of a refusal, without names, numbers and the file: `too-short`.
    fn slug(refusal: &str) -> String {
        let reason = refusal.rsplit("is no plan: ").next().expect("a part");
        let unquoted: Vec<&str> = reason.split('\'').step_by(2).collect();
        let lower = unquoted.join(" ").to_lowercase();
        let words = lower.split(|letter: char| !letter.is_ascii_lowercase());
        let words: Vec<&str> = words.filter(|word| !word.is_empty()).collect();
        words.join("-")
    }

    /// The name of a seed says what becomes of it: the sentence that refuses it, or that its calls
    /// are put in order.
    #[test]
    fn every_seed_is_refused_or_put_in_order_as_its_name_says() {
        let seeds = Path::new(env!("CARGO_MANIFEST_DIR")).join("fuzz/seeds");
        let mut kinds = [0, 0];
        for seed in fs::read_dir(seeds).expect("seeds") {
            let seed = seed.expect("a seed");
            let name = seed.file_name().into_string().expect("a name");
            let bytes = fs::read(seed.path()).expect("a plan");
            let file = in_memory(&bytes);
            let path = PathBuf::from(format!("/proc/self/fd/{}", file.as_raw_fd()));
            match Plan::open(&path) {
                Err(refusal) => {
                    assert_eq!(name, format!("refused-{}", slug(&format!("{refusal:#}"))))
                }
                Ok(_) => assert!(name.starts_with("ordered-"), "{name} is accepted"),
            }
            kinds[usize::from(name.starts_with("ordered-"))] += 1;
            super::plan(&bytes);
        }
        assert!(kinds[0] > 30 && kinds[1] > 30, "{kinds:?}");
        super::order(include_bytes!("../fuzz/rich.plan"), b"");
    }
}
