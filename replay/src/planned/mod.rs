//! Results of one walk over a plan: made once, and kept in a file beside it for all later steps.
//!
//! A step that finds no such file walks itself; the order of another plan is refused.

mod checks;
mod circles;
mod parts;
mod stored;
#[cfg(test)]
mod tests;
mod walked;

use anyhow::Result;
use std::path::{Path, PathBuf};

use crate::model::expect::tree::Tree;
use crate::plan::Plan;

pub use parts::{Edge, Rules, Start, Why};
pub use stored::{Stored, write};
pub use walked::Walked;

/// The order of a plan, and what follows from it.
#[derive(Debug)]
pub enum Planned<'a> {
    Walked(Box<Walked<'a>>),
    Stored(Stored<'a>),
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
            Self::Walked(walked) => Ok(walked.take_rules()),
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
