//! A limit to how far servers may fork ahead of their children, where no clock holds them back.
//!
//! As fast as possible a server that only forks is done at once: all processes of a long trace
//! would live at the same time, hundreds of kilobytes each. So a fork waits for the threads that
//! had ended `AHEAD` forks before it.

use std::collections::VecDeque;

use spoolscope_traces::records::PLAN_FORK;

use crate::plan::Plan;

/// Processes that may live at a time besides those that did in the recording.
const AHEAD: usize = 128;

/// Returns (operation, thread waited for, number of operations it must have finished), as edges.
pub fn edges(plan: &Plan) -> Vec<(u32, u32, u32)> {
    edges_ahead(plan, AHEAD)
}

fn edges_ahead(plan: &Plan, ahead: usize) -> Vec<(u32, u32, u32)> {
    let ops = plan.ops();
    let mut last = vec![(i64::MIN, 0_u32); plan.threads().len()];
    for op in ops {
        let (end_ns, count) = &mut last[op.thread as usize];
        (*end_ns, *count) = (op.end_ns.max(*end_ns), *count + 1);
    }
    let mut ended: Vec<u32> = (0..last.len() as u32).collect();
    ended.retain(|thread| last[*thread as usize].1 > 0);
    ended.sort_by_key(|thread| last[*thread as usize].0);
    let mut ended = ended.into_iter().peekable();
    let mut before: VecDeque<i64> = VecDeque::new();
    let mut found = Vec::new();
    for (at, op) in (0..).zip(ops).filter(|(_, op)| op.op == PLAN_FORK) {
        before.push_back(op.start_ns);
        if before.len() <= ahead {
            continue;
        }
        let then_ns = before.pop_front().unwrap_or(i64::MIN);
        while let Some(thread) = ended.next_if(|thread| last[*thread as usize].0 <= then_ns) {
            found.push((at, thread, last[thread as usize].1));
        }
    }
    found
}

#[cfg(test)]
mod tests {
    use super::edges_ahead;
    use crate::testing::plan;

    #[test]
    fn a_fork_waits_for_whom_had_ended_some_forks_before_it() {
        let plan = plan(
            "
            A 0-10 FORK B = 0
            B 20-30 stat a = -2
            A 40-50 FORK C = 0
            C 60-70 stat a = -2
            C 75-80 stat a = -2
            A 90-91 FORK D = 0
            D 92-93 stat a = -2
            A 95-96 FORK E = 0
            E 97-98 stat a = -2
        ",
        );
        // B had ended before the second fork, C before the third one.
        assert_eq!(edges_ahead(&plan, 1), [(5, 1, 1), (7, 2, 2)]);
        assert_eq!(edges_ahead(&plan, 2), [(7, 1, 1)]);
        assert!(edges_ahead(&plan, 3).is_empty());
    }
}
