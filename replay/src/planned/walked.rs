//! An order as the walk over a plan finds it.

use std::mem;

use crate::model::expect::tree::Tree;
use crate::model::order::one_order::Linear;
use crate::model::order::reasons::Reasons;
use crate::model::state::world::World;
use crate::plan::Plan;
use crate::planned::circles;
use crate::planned::parts::{Rules, Start, Why};

/// Results of a walk that was just made.
#[derive(Debug)]
pub struct Walked<'a> {
    plan: &'a Plan,
    rules: Rules,
    pub(super) reasons: Reasons,
    world: World<'a>,
}

impl<'a> Walked<'a> {
    /// Walks over a plan; keeps why operations wait if that is asked for.
    pub fn of(plan: &'a Plan, explained: bool) -> Self {
        Self::with(plan, explained.then(Reasons::default))
    }

    /// Walks over a plan, and keeps why operations wait in `why`.
    pub(super) fn with(plan: &'a Plan, why: Option<Reasons>) -> Self {
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
                passes: world.take_passes(),
                listings: linear.listings,
                unexplained: linear.unexplained,
                contests: linear.turns.contests,
            },
            reasons: edges.why.unwrap_or_default(),
            world,
        }
    }

    pub fn take_rules(&mut self) -> Rules {
        mem::take(&mut self.rules)
    }

    pub fn rules(&self) -> &Rules {
        &self.rules
    }

    pub fn start(&self) -> Start {
        Start {
            tree: Tree::initial(self.plan, &self.world),
            grows: self.world.space().peak_bytes(),
        }
    }

    pub fn end(&self) -> Tree {
        Tree::expected(self.plan, &self.world)
    }

    pub fn why(&self) -> Why<'_> {
        Why {
            reasons: self.reasons.bytes().into(),
            names: self.world.names().extra().to_vec(),
        }
    }
}
