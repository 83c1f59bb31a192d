//! Checks of a stored order, wherever it comes from, that make it safe for the engine.

use anyhow::{Context, Result, ensure};

use crate::engine::schedule::streams;
use crate::model::expect::tree::{Thing, Tree};
use crate::model::order::keys::Key;
use crate::model::order::reasons;
use crate::model::state::passed_on;
use crate::plan::{MAX_FD, MAX_XATTR, Plan, check_below};
use crate::planned::circles;
use crate::planned::parts::{Edge, Rules, Start, Why};
use spoolscope_traces::records::NONE;

/// Refuses rules that name something that is not in the plan, or that cannot be kept.
pub fn rules(plan: &Plan, rules: &Rules) -> Result<()> {
    let n_ops = plan.ops().len() as u32;
    let (first, _, _) = streams(plan);
    for edge in rules.edges.iter().chain(&rules.rivals) {
        check_edge(plan, &first, *edge)?;
    }
    ensure!(
        rules.passes.len() <= passed_on::MOST,
        "too many descriptors passed"
    );
    ensure!(
        rules.passes.is_sorted_by(|a, b| a.used < b.used),
        "descriptors passed are not sorted"
    );
    for pass in &rules.passes {
        ensure!(
            pass.opened < n_ops && pass.used < n_ops && (0..=MAX_FD).contains(&pass.fd),
            "descriptor passed that is none"
        );
    }
    let listings = &rules.listings;
    let known = listings.known.len() as u32;
    ensure!(
        listings.calls.is_sorted_by(|a, b| a.0 < b.0),
        "listings are not sorted"
    );
    let fits = |(op, place): &(u32, u32)| *op < n_ops && *place < known;
    ensure!(listings.calls.iter().all(fits), "listing that is none");
    ensure!(
        rules.unexplained.iter().all(|op| *op < n_ops),
        "unknown operation"
    );
    let closing = circles::closing(plan, &[rules.edges.as_slice(), &rules.rivals].concat());
    ensure!(
        closing.is_empty(),
        "operations wait for each other in a circle"
    );
    Ok(())
}

/// Checks an edge; `first` is the first slot of each thread, one more than there are threads.
fn check_edge(plan: &Plan, first: &[u32], (op, thread, finished): Edge) -> Result<()> {
    let waiting = plan
        .actors()
        .get(op as usize)
        .context("unknown operation")?;
    let ends = first.get(thread as usize..).and_then(<[u32]>::first_chunk);
    let [from, to] = ends.context("unknown thread")?;
    ensure!(thread != *waiting, "operation {op} waits for its thread");
    ensure!(
        (1..=to - from).contains(&finished),
        "operation {op} waits for what is not there"
    );
    Ok(())
}

/// Refuses trees that could not be made, or that reach out of the target.
pub fn tree(tree: &Tree) -> Result<()> {
    for (name, thing) in &tree.names {
        ensure!(*thing < tree.things.len(), "name of nothing");
        ensure!(!name.contains(&0), "name with a NUL");
        check_below(name)?;
    }
    tree.things.iter().try_for_each(check_thing)
}

fn check_thing(thing: &Thing) -> Result<()> {
    ensure!(
        thing.attributes.size >= 0 && thing.takes >= 0,
        "file of a negative size"
    );
    let mut last = 0;
    for (from, to) in thing.written.ranges() {
        ensure!(last <= *from && from < to, "data that is not sorted");
        last = *to;
    }
    let lengths = thing.xattrs.values().filter_map(|xattr| xattr.length);
    for length in lengths {
        ensure!(length <= MAX_XATTR, "extended attribute of {length} bytes");
    }
    Ok(())
}

/// Refuses a tree with more data than it takes room for.
pub fn room(start: &Start) -> Result<()> {
    for thing in &start.tree.things {
        let fits = thing.written.bytes() <= thing.takes;
        ensure!(fits || !thing.is_file(), "more data than a file takes");
    }
    Ok(())
}

/// Refuses reasons that name something that is not there.
pub fn reasons(plan: &Plan, why: &Why) -> Result<()> {
    let (first, _, _) = streams(plan);
    let n_names = u64::from(plan.n_strings()) + why.names.len() as u64;
    for reason in reasons::decoded(&why.reasons) {
        let reason = reason?;
        check_edge(plan, &first, (reason.op, reason.thread, reason.finished))?;
        let name = match reason.key {
            Some(Key::Name(name) | Key::Listing(name) | Key::Xattr(_, name)) => name,
            _ => NONE,
        };
        ensure!(name == NONE || u64::from(name) < n_names, "unknown name");
    }
    Ok(())
}
