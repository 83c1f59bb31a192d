//! Parts of an order: what a run keeps of it, the tree that it begins with, and the reasons.

use serde::{Deserialize, Serialize};
use std::borrow::Cow;

use crate::model::expect::listings::Listings;
use crate::model::expect::tree::Tree;
use crate::model::state::passed_on::Pass;

/// (operation, thread waited for, operations it must have finished).
pub type Edge = (u32, u32, u32);

/// Parts of the recorded order that a run keeps, and the names that listings should show.
#[derive(Debug, Default, Serialize, Deserialize)]
pub struct Rules {
    pub edges: Vec<Edge>,
    /// Like edges, but the call waited for need only end before the waiting call has its lock.
    pub rivals: Vec<Edge>,
    pub passes: Vec<Pass>,
    pub listings: Listings,
    /// Results that no order of the overlapping operations explains.
    pub unexplained: Vec<u32>,
    /// Contests for names that were searched.
    pub contests: u32,
}

/// State that must exist before the first operation.
#[derive(Debug, Serialize, Deserialize)]
pub struct Start {
    pub tree: Tree,
    /// Most bytes by which files grow later, at one time, by their recorded sizes.
    pub grows: i64,
}

/// Reasons why operations wait, encoded, and the names that are no strings of the plan.
#[derive(Debug)]
pub struct Why<'a> {
    pub reasons: Cow<'a, [u8]>,
    pub names: Vec<Vec<u8>>,
}
