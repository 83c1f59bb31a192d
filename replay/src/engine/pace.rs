//! Times at which calls are due: the recorded time, or some time after the thread's call before it.

use spoolscope_traces::records::PlanOp;

/// Passing of time. Open loop: calls come at their recorded times, however slow the target is.
/// Closed loop: each thread makes its next call only after the one before it, so that it slows down
/// with the target.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Pace {
    /// Open loop: at the recorded time divided by this; 1 is the original pace.
    Scaled(f64),
    /// Closed loop: the thread pauses after its previous call as long as in the recording.
    Think,
    /// Closed loop without pauses.
    AsFastAsPossible,
}

impl Pace {
    /// Returns how long something lasts that took `recorded_ns` in the recording.
    pub fn lasting_ns(self, recorded_ns: i64) -> i64 {
        match self {
            Self::Scaled(factor) => (recorded_ns as f64 / factor) as i64,
            Self::Think => recorded_ns,
            Self::AsFastAsPossible => 0,
        }
    }

    /// Returns the recorded time that has come after `passed_ns`; `None` if time is not kept.
    pub fn recorded_ns(self, passed_ns: i64) -> Option<i64> {
        match self {
            Self::Scaled(factor) => Some((passed_ns as f64 * factor) as i64),
            Self::Think => Some(passed_ns),
            Self::AsFastAsPossible => None,
        }
    }
}

/// Position of one thread, in the recording and in the replay; ns since the start of each.
#[derive(Clone, Copy, Debug, Default)]
pub struct Standing {
    /// End of the thread's previous call, or its birth.
    pub ended_ns: i64,
    /// The same in the recording.
    pub recorded_ns: i64,
}

impl Standing {
    /// Returns when the next call is due, in ns since the start.
    pub fn due_ns(&self, pace: Pace, op: &PlanOp) -> i64 {
        match pace {
            Pace::Scaled(1.0) => op.start_ns,
            Pace::Scaled(factor) => (op.start_ns as f64 / factor) as i64,
            Pace::Think => self.ended_ns + (op.start_ns - self.recorded_ns).max(0),
            Pace::AsFastAsPossible => self.ended_ns,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_open_loop_keeps_times_and_a_closed_one_pauses() {
        let op = PlanOp {
            start_ns: 1_000,
            ..PlanOp::default()
        };
        // The call before ended at 700 in the recording, and at 5,000 on a slow target.
        let late = Standing {
            ended_ns: 5_000,
            recorded_ns: 700,
        };
        assert_eq!(late.due_ns(Pace::Scaled(1.0), &op), 1_000);
        assert_eq!(late.due_ns(Pace::Scaled(4.0), &op), 250);
        assert_eq!(late.due_ns(Pace::Think, &op), 5_300);
        assert_eq!(late.due_ns(Pace::AsFastAsPossible, &op), 5_000);
        let overlapping = Standing {
            recorded_ns: 1_200,
            ..late
        };
        assert_eq!(overlapping.due_ns(Pace::Think, &op), 5_000);
    }
}
