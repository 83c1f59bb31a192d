//! Rules that freeze a flight recorder, in the form that the caller passes: one JSON object each.

use std::str::FromStr;

use serde_json::Value;

/// An event or state that breaks a rule.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Limit {
    /// A call that took longer than this, in ns.
    Slow(u64),
    /// A call that failed with this errno.
    Errno(i64),
    /// A call that has not returned for longer than this, in ns.
    InFlight(u64),
    /// A call that waited longer for this cause.
    Waited { cause: String, ns: u64 },
    /// A file lock that is held longer than this, in ns.
    LockHeld(u64),
    /// More than `most` commits within a window.
    Commits { most: u64, window_ns: u64 },
}

/// A rule of --freeze-on.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Rule {
    /// The rule as the user wrote it.
    pub words: String,
    pub limit: Limit,
}

impl Rule {
    /// Return the time limit of a rule on calls or locks that are still under way.
    pub fn under_way_ns(&self) -> Option<u64> {
        match &self.limit {
            Limit::InFlight(ns) | Limit::LockHeld(ns) | Limit::Waited { ns, .. } => Some(*ns),
            _ => None,
        }
    }

    /// Return true if the rule is about file locks.
    pub fn is_of_locks(&self) -> bool {
        matches!(&self.limit, Limit::LockHeld(_))
    }

    /// Return true if the rule is about calls that have not returned.
    pub fn is_of_calls(&self) -> bool {
        matches!(&self.limit, Limit::InFlight(_) | Limit::Waited { .. })
    }
}

impl FromStr for Rule {
    type Err = String;

    fn from_str(text: &str) -> Result<Rule, String> {
        let given: Value = serde_json::from_str(text).map_err(|error| error.to_string())?;
        let number = |name: &str| given[name].as_u64();
        let limit = if let Some(ns) = number("slow_ns") {
            Limit::Slow(ns)
        } else if let Some(errno) = number("errno") {
            Limit::Errno(errno as i64)
        } else if let Some(ns) = number("in_flight_ns") {
            Limit::InFlight(ns)
        } else if let Some(ns) = number("lock_held_ns") {
            Limit::LockHeld(ns)
        } else if let (Some(most), Some(window_ns)) = (number("commits"), number("window_ns")) {
            Limit::Commits { most, window_ns }
        } else if let (Some(cause), Some(ns)) = (given["cause"].as_str(), number("ns")) {
            let cause = cause.to_owned();
            Limit::Waited { cause, ns }
        } else {
            return Err("no rule that freezes a recorder".to_owned());
        };
        let words = given["rule"].as_str().unwrap_or_default().to_owned();
        Ok(Rule { words, limit })
    }
}
