//! Results of one walk over a plan: made once, and kept in a file beside it for all later steps.
//!
//! A step that finds no such file walks itself; the order of another plan is refused.

mod checks;
mod circles;
mod stored;
#[cfg(test)]
mod tests;

use anyhow::Result;
use serde::{Deserialize, Serialize};
use std::borrow::Cow;
use std::fs::File;
use std::mem;
use std::path::{Path, PathBuf};

use crate::model::linear::Linear;
use crate::model::listings::Listings;
use crate::model::passed::Pass;
use crate::model::reasons::Reasons;
use crate::model::state::Tree;
use crate::model::world::World;
use crate::plan::Plan;

pub use stored::Stored;

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

/// The order of a plan, and what follows from it.
#[derive(Debug)]
pub enum Planned<'a> {
    Walked(Box<Walked<'a>>),
    Stored(Stored<'a>),
}

/// Results of a walk that was just made.
#[derive(Debug)]
pub struct Walked<'a> {
    plan: &'a Plan,
    rules: Rules,
    reasons: Reasons,
    world: World<'a>,
}

impl<'a> Walked<'a> {
    /// Walks over a plan; keeps why operations wait if that is asked for.
    pub fn of(plan: &'a Plan, explained: bool) -> Self {
        Self::with(plan, explained.then(Reasons::default))
    }

    /// Walks over a plan, and writes all results to an empty file; the reasons why operations wait
    /// are kept only there.
    pub fn written(plan: &'a Plan, file: File) -> Result<Self> {
        stored::write(plan, file)
    }

    fn with(plan: &'a Plan, why: Option<Reasons>) -> Self {
        let linear = match why {
            Some(why) => Linear::explained(plan, why),
            None => Linear::walk(plan),
        };
        let (mut world, mut edges) = (linear.world, linear.edges);
        let closing = circles::closing(plan, &[edges.found.as_slice(), &edges.rivals].concat());
        if !closing.is_empty() {
            edges.found.retain(|edge| !closing.contains(edge));
            edges.rivals.retain(|edge| !closing.contains(edge));
        }
        Self {
            plan,
            rules: Rules {
                edges: edges.found,
                rivals: edges.rivals,
                passes: mem::take(&mut world.passes),
                listings: linear.listings,
                unexplained: linear.unexplained,
                contests: linear.contests,
            },
            reasons: edges.why.unwrap_or_default(),
            world,
        }
    }

    pub fn rules(&self) -> &Rules {
        &self.rules
    }

    pub fn start(&self) -> Start {
        Start {
            tree: Tree::initial(self.plan, &self.world),
            grows: self.world.peak_bytes,
        }
    }

    pub fn end(&self) -> Tree {
        Tree::expected(self.plan, &self.world)
    }

    pub fn why(&self) -> Why<'_> {
        Why {
            reasons: self.reasons.bytes().into(),
            names: self.world.names.extra().to_vec(),
        }
    }
}

/// Returns the path of the order of a plan.
pub fn beside(plan: &Path) -> PathBuf {
    let mut name = plan.as_os_str().to_owned();
    name.push(".order");
    name.into()
}

impl<'a> Planned<'a> {
    /// Reads the order that lies beside a plan; without one walks over the plan.
    pub fn of(plan: &'a Plan, file: &Path, explained: bool) -> Result<Self> {
        Ok(match Stored::open(plan, &beside(file))? {
            Some(stored) => Self::Stored(stored),
            None => Self::Walked(Box::new(Walked::of(plan, explained))),
        })
    }

    /// Returns the rules of a run; to be called once.
    pub fn take_rules(&mut self) -> Result<Rules> {
        match self {
            Self::Walked(walked) => Ok(mem::take(&mut walked.rules)),
            Self::Stored(stored) => stored.rules(),
        }
    }

    pub fn start(&self) -> Result<Start> {
        match self {
            Self::Walked(walked) => Ok(walked.start()),
            Self::Stored(stored) => stored.start(),
        }
    }

    /// Returns the tree that must exist after the last operation.
    pub fn end(&self) -> Result<Tree> {
        match self {
            Self::Walked(walked) => Ok(walked.end()),
            Self::Stored(stored) => stored.end(),
        }
    }

    pub fn why(&self) -> Result<Why<'_>> {
        match self {
            Self::Walked(walked) => Ok(walked.why()),
            Self::Stored(stored) => stored.why(),
        }
    }
}
