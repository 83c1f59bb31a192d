//! Any file given as a plan is refused with a reason, or ordered, explained, cut, thinned out and
//! multiplied.
//!
//! The engine itself is not started: `tests/root/test_hostile.py` runs mutated plans for real.
#![no_main]
#![allow(dead_code, missing_docs)]

#[path = "../../src/age.rs"]
mod age;
#[path = "../../src/arena.rs"]
mod arena;
#[path = "../../src/assemble.rs"]
mod assemble;
#[path = "../../src/cli.rs"]
mod cli;
#[path = "../../src/commands.rs"]
mod commands;
#[path = "../../src/cut/mod.rs"]
mod cut;
#[path = "../../src/engine/mod.rs"]
mod engine;
#[path = "../../src/explain.rs"]
mod explain;
#[path = "../../src/extents.rs"]
mod extents;
#[path = "../../src/fixture.rs"]
mod fixture;
#[path = "../../src/large.rs"]
mod large;
#[path = "../../src/model/mod.rs"]
mod model;
#[path = "../../src/only/mod.rs"]
mod only;
#[path = "../../src/pattern.rs"]
mod pattern;
#[path = "../../src/plan.rs"]
mod plan;
#[path = "../../src/refusal.rs"]
mod refusal;
#[path = "../../src/room.rs"]
mod room;
#[path = "../../src/sandbox.rs"]
mod sandbox;
#[path = "../../src/scale/mod.rs"]
mod scale;
#[path = "../../src/semantics/mod.rs"]
mod semantics;
#[path = "../../src/touches.rs"]
mod touches;
#[path = "../../src/verify.rs"]
mod verify;
#[path = "../../src/xattrs.rs"]
mod xattrs;

use cli::Order;
use foldhash::{HashSet, HashSetExt};
use libfuzzer_sys::fuzz_target;
use model::linear::Linear;
use model::state::Tree;
use plan::Plan;
use std::fs::File;
use std::io::Write;
use std::os::fd::{AsRawFd, FromRawFd};
use std::path::PathBuf;

fuzz_target!(|bytes: &[u8]| {
    with_plan(bytes, |plan| {
        order(plan);
        for part in parts(plan) {
            // What is derived of a plan that was accepted is one, too, or refused with a reason.
            with_plan(&part, order);
        }
    });
});

fn with_plan(bytes: &[u8], work: impl Fn(&'static Plan)) {
    // SAFETY: a new descriptor, owned by the file from here on.
    let mut file = unsafe { File::from_raw_fd(libc::memfd_create(c"plan".as_ptr(), 0)) };
    file.write_all(bytes).expect("memory");
    let path = PathBuf::from(format!("/proc/self/fd/{}", file.as_raw_fd()));
    let Ok(plan) = Plan::open(&path) else {
        return;
    };
    let leaked: *mut Plan = Box::into_raw(Box::new(plan));
    // SAFETY: given back below, after the last use.
    work(unsafe { &*leaked });
    // SAFETY: made above by `into_raw`, and nothing refers to it any more.
    drop(unsafe { Box::from_raw(leaked) });
}

fn order(plan: &'static Plan) {
    let linear = Linear::walk(plan);
    let before = Tree::initial(plan, &linear.world);
    let after = Tree::expected(plan, &linear.world);
    assert!(before.bytes() >= 0 && after.bytes() >= 0);
    let _ = plan.unsupported();
}

/// A slice of a plan, some of its calls, and two copies of its users; and all that is explained.
fn parts(plan: &'static Plan) -> Vec<Vec<u8>> {
    let ops = plan.ops().len();
    let all: Vec<u32> = (0..ops as u32).collect();
    explain::explain(plan, Order::Recorded, &all);
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
