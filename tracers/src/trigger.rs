//! Rules that freeze a flight recorder: judged on every call that is stored.

use serde_json::{Value, json};
use spoolscope_traces::records::Syscall;

use crate::cli::Options;

/// What --freeze-on named.
#[derive(Debug, Clone, Copy, Default)]
pub struct Rules {
    slow_ns: Option<u64>,
    errno: Option<i64>,
}

impl Rules {
    /// The rules of these options.
    pub fn of(options: &Options) -> Rules {
        Rules {
            slow_ns: options.freeze_slow_ns,
            errno: options.freeze_errno,
        }
    }

    /// Why this call freezes the recorder; it names no file.
    pub fn broken_by(&self, call: &Syscall) -> Option<Freeze> {
        let took_ns = call.end_ns - call.start_ns;
        let who = || {
            let (seq, tid) = (call.seq, call.tid);
            format!("call {seq} of thread {tid} took {took_ns} ns")
        };
        let why = if self.slow_ns.is_some_and(|limit| took_ns > limit) {
            format!("slow: {}", who())
        } else if self.errno.is_some_and(|errno| call.ret == -errno) {
            format!("errno {}: {}", -call.ret, who())
        } else {
            return None;
        };
        Some(Freeze {
            why,
            call: Some(json!({"tid": call.tid, "start_ns": call.start_ns})),
        })
    }
}

/// Why the recorder is frozen.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Freeze {
    /// In words.
    pub why: String,
    /// The call that broke a rule: its thread and begin.
    pub call: Option<Value>,
}

impl Freeze {
    /// Without a call that did it.
    pub fn because(why: &str) -> Freeze {
        Freeze {
            why: why.to_owned(),
            call: None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_calls_that_break_a_rule_freeze() {
        let rules = Rules {
            slow_ns: Some(500),
            errno: Some(5),
        };
        let call = |end_ns, ret| Syscall {
            start_ns: 100,
            end_ns,
            ret,
            ..Syscall::default()
        };
        assert_eq!(rules.broken_by(&call(600, 0)), None);
        let slow = rules.broken_by(&call(601, 0)).expect("it is slow");
        assert_eq!(slow.why, "slow: call 0 of thread 0 took 501 ns");
        assert_eq!(slow.call, Some(json!({"tid": 0, "start_ns": 100})));
        assert!(rules.broken_by(&call(101, -5)).is_some());
        assert_eq!(rules.broken_by(&call(101, -2)), None);
        assert_eq!(Rules::default().broken_by(&call(1 << 40, -5)), None);
    }
}
