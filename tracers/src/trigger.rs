//! Rules that freeze a flight recorder: judged on every call that is stored.

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
    pub fn broken_by(&self, call: &Syscall) -> Option<String> {
        let took_ns = call.end_ns - call.start_ns;
        let who = || format!("call {} of thread {} took {took_ns} ns", call.seq, call.tid);
        if self.slow_ns.is_some_and(|limit| took_ns > limit) {
            return Some(format!("slow: {}", who()));
        }
        match self.errno {
            Some(errno) if call.ret == -errno => Some(format!("errno {errno}: {}", who())),
            _ => None,
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
        assert!(rules.broken_by(&call(601, 0)).is_some());
        assert!(rules.broken_by(&call(101, -5)).is_some());
        assert_eq!(rules.broken_by(&call(101, -2)), None);
        assert_eq!(Rules::default().broken_by(&call(1 << 40, -5)), None);
    }
}
