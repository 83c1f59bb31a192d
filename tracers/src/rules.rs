//! Rules that freeze a flight recorder, as the caller hands them over: one JSON object each.

use std::str::FromStr;

use serde_json::Value;

/// What must not happen.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Limit {
    /// A call that took longer.
    Slow(u64),
    /// A call that failed with this errno.
    Errno(i64),
    /// A call that has not returned for longer.
    InFlight(u64),
    /// A call that this cause kept longer.
    Waited { cause: String, ns: u64 },
    /// A file lock that is held longer.
    LockHeld(u64),
    /// More commits within a window.
    Commits { most: u64, window_ns: u64 },
}

/// One of --freeze-on.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Rule {
    /// As the user gave it.
    pub words: String,
    pub limit: Limit,
}

impl Rule {
    /// Of a rule on what is under way: how long that may go on.
    pub fn under_way_ns(&self) -> Option<u64> {
        match &self.limit {
            Limit::InFlight(ns) | Limit::LockHeld(ns) | Limit::Waited { ns, .. } => Some(*ns),
            _ => None,
        }
    }

    /// Do file locks matter to it?
    pub fn is_of_locks(&self) -> bool {
        matches!(&self.limit, Limit::LockHeld(_))
    }

    /// Do calls that have not returned matter to it?
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
